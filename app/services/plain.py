"""Plain JSON forms, shared by the endpoints, the command line and the report.

Probabilities stand in place of logarithms, steps count from 1, and an absent threshold is tau 0.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from app.services.views import (
    AuditView,
    CalibrationView,
    Candidate,
    CoverageView,
    JobView,
    SessionSummary,
    Span,
    Step,
    UserListSummary,
    UserListView,
)


def step_numbers(step: Step) -> dict[str, Any]:
    """A step without its candidates, under the names of the report's columns."""
    return {
        "step": step.index + 1,
        "token_id": step.token_id,
        "token": step.token,
        "p_factual": math.exp(step.log_p_factual),
        "p_masked": math.exp(step.log_p_masked),
        "p_fused": math.exp(step.log_p_fused),
        "tau": math.exp(step.log_tau),
        "certified": step.certified,
        "set_size": step.set_size,
        "certified_mass": step.certified_mass,
        "fallback": step.fallback,
        "chosen_by": chosen_by(step),
        "policy_token": step.policy_token,
        "threshold_state": step.state,
        "kl_fused_masked": step.diagnostics.kl_fused_masked,
        "tv_on_set": step.diagnostics.tv_on_set,
        "tv_bound": step.diagnostics.tv_bound,
        "sensitivity": step.diagnostics.sensitivity,
        "log_ratio": step.diagnostics.log_ratio,
    }


def chosen_by(step: Step) -> str:
    """Who chose the token: ``reviewer``, ``fallback`` or ``policy``."""
    return "reviewer" if step.forced else "fallback" if step.fallback else "policy"


def step_json(step: Step) -> dict[str, Any]:
    """A step with its candidates."""
    return {**step_numbers(step), "candidates": [_candidate(item) for item in step.candidates]}


def session_json(view: AuditView) -> dict[str, Any]:
    """A session with the chain of its shown branch."""
    return {
        "session_id": view.session_id,
        "branch_id": view.branch_id,
        "name": view.name,
        "prompt": view.prompt,
        "masked": "".join(piece.text for piece in view.preview.pieces),
        "spans": [span_json(span) for span in view.spans],
        "settings": asdict(view.settings),
        "user_list": view.user_list or None,
        "certificate": view.certificate,
        "fingerprint": view.fingerprint_digest,
        "finished": view.finished,
        "text": chain_text(view),
        "steps": [step_json(step) for step in view.steps],
        "branches": [asdict(branch) for branch in view.branches],
        "warnings": list(view.warnings),
    }


def span_json(span: Span) -> dict[str, Any]:
    """A span: offsets, family, source with its detail and how sure it is, whether it is kept or only suggested."""
    return asdict(span)


def spans_text(spans: tuple[Span, ...]) -> str:
    """Spans in one cell of a report: a JSON list of ``[start, end, family, state, source, score]``.

    The state is ``"masked"``, ``"kept"`` or ``"suggested"``; a score that nobody gave is null.
    """
    rows = [[s.start, s.end, s.category, span_state(s), s.source, s.score] for s in spans]
    return json.dumps(rows)


def span_state(span: Span) -> str:
    """What becomes of a span: ``"masked"``, ``"kept"`` or ``"suggested"``."""
    return "masked" if span.masked else "kept" if span.kept else "suggested"


def user_list_summary_json(item: UserListSummary) -> dict[str, Any]:
    """A word list without its terms."""
    record = asdict(item)
    record["user_list_id"] = record.pop("id")
    record["created_at"] = item.created_at.isoformat()
    return record


def user_list_json(view: UserListView) -> dict[str, Any]:
    """A word list; each term has its family and its action, ``"mask"`` or ``"keep"``."""
    return {
        **user_list_summary_json(view.summary),
        "terms": [
            {"term": term.term, "family": term.family, "action": "keep" if term.keep else "mask"} for term in view.terms
        ],
    }


def chain_text(view: AuditView) -> str:
    """The chain without the end token that finished it."""
    steps = view.steps[:-1] if view.finished == "end" else view.steps
    return "".join(step.token for step in steps)


def summary_json(item: SessionSummary) -> dict[str, Any]:
    """A past audit in a list."""
    record = asdict(item)
    record["session_id"] = record.pop("id")
    record["created_at"] = item.created_at.isoformat()
    record["updated_at"] = item.updated_at.isoformat()
    return record


def job_json(job: JobView) -> dict[str, Any]:
    """A background job."""
    record = asdict(job)
    record["job_id"] = record.pop("id")
    return record


def calibration_json(view: CalibrationView) -> dict[str, Any]:
    """A calibration without its values."""
    bins = ("label", "contexts", "rank", "tau", "state", "inherited_from", "coverage_low", "coverage_high")
    return {
        "calibration_id": view.summary.id,
        "name": view.summary.name,
        "model": view.summary.model,
        "alpha": view.alpha,
        "lam": view.summary.lam,
        "estimator": view.summary.estimator,
        "source": view.summary.source,
        "contexts": view.summary.contexts,
        "fingerprint": view.fingerprint_digest,
        "bins": [{name: getattr(entry, name) for name in bins} for entry in view.bins],
        "coverage": _coverage(view.coverage[0]) if view.coverage else None,
    }


def _coverage(row: CoverageView) -> dict[str, Any]:
    return {name: getattr(row, name) for name in ("contexts", "kept", "coverage", "low", "high")}


def _candidate(item: Candidate) -> dict[str, Any]:
    return {
        "token_id": item.token_id,
        "token": item.token,
        "p_factual": math.exp(item.log_p_factual),
        "p_masked": math.exp(item.log_p_masked),
        "p_fused": math.exp(item.log_p_fused),
        "certified": item.certified,
    }
