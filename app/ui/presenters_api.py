"""What the endpoints return: plain JSON with the report's names."""

from __future__ import annotations

import math
from dataclasses import asdict, fields
from typing import Any

from app.services.errors import ServiceError
from app.services.views import AuditSettings, AuditView, CalibrationRequest, JobView, SessionSummary, Step


def step_record(step: Step) -> dict[str, Any]:
    """One step with probabilities instead of logarithms; steps count from 1."""
    return {
        "step": step.index + 1,
        "token_id": step.token_id,
        "token": step.token,
        "p_factual": math.exp(step.log_p_factual),
        "p_masked": math.exp(step.log_p_masked),
        "p_fused": math.exp(step.log_p_fused),
        "tau": math.exp(step.log_tau),
        "certified": step.certified,
        "state": step.state,
        "set_size": step.set_size,
        "certified_mass": step.certified_mass,
        "fallback": step.fallback,
        "chosen_by": "reviewer" if step.forced else "policy",
        "sensitivity": step.diagnostics.log_ratio,
        "kl_fused_masked": step.diagnostics.kl_fused_masked,
        "tv_on_set": step.diagnostics.tv_on_set,
        "tv_bound": step.diagnostics.tv_bound,
        "candidates": [
            {
                "token_id": item.token_id,
                "token": item.token,
                "p_factual": math.exp(item.log_p_factual),
                "p_masked": math.exp(item.log_p_masked),
                "p_fused": math.exp(item.log_p_fused),
                "certified": item.certified,
            }
            for item in step.candidates
        ],
    }


def session_record(view: AuditView) -> dict[str, Any]:
    """A session with the chain of its shown branch."""
    return {
        "session_id": view.session_id,
        "branch_id": view.branch_id,
        "name": view.name,
        "prompt": view.prompt,
        "masked": "".join(piece.text for piece in view.preview.pieces),
        "spans": [asdict(span) for span in view.spans],
        "settings": asdict(view.settings),
        "certificate": view.certificate,
        "fingerprint": view.fingerprint_digest,
        "finished": view.finished,
        "text": "".join(step.token for step in view.steps),
        "steps": [step_record(step) for step in view.steps],
        "branches": [asdict(branch) for branch in view.branches],
        "warnings": list(view.warnings),
    }


def summary_record(item: SessionSummary) -> dict[str, Any]:
    """A past audit in a list."""
    record = asdict(item)
    record["session_id"] = record.pop("id")
    record["created_at"] = item.created_at.isoformat()
    record["updated_at"] = item.updated_at.isoformat()
    return record


def job_record(job: JobView) -> dict[str, Any]:
    """A background job."""
    record = asdict(job)
    record["job_id"] = record.pop("id")
    return record


def audit_settings(given: dict[str, Any] | None) -> AuditSettings:
    """Settings from JSON; raises ServiceError for a name that does not exist."""
    return AuditSettings(**_known(given, AuditSettings))


def calibration_request(name: str, given: dict[str, Any] | None) -> CalibrationRequest:
    """A calibration request from JSON; raises ServiceError for a name that does not exist."""
    return CalibrationRequest(**{"name": name, **_known(given, CalibrationRequest)})


def _known(given: dict[str, Any] | None, kind: type) -> dict[str, Any]:
    names = [item.name for item in fields(kind)]
    unknown = sorted(set(given or {}) - set(names))
    if unknown:
        raise ServiceError(f"There is no setting {unknown[0]!r}; the settings are {', '.join(names)}.")
    return dict(given or {})
