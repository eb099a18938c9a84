"""Plain JSON forms, shared by the endpoints, the command line and the report.

Probabilities stand in place of logarithms, steps count from 1, and an absent threshold is tau 0.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from app.jobs.service import JobView
from app.shared.audits import AuditSettings, AuditView
from app.shared.thinking import thinking_json
from coft_core.conformal.chain import ChainCertificate
from coft_core.step_numbers import step_numbers
from coft_core.types import Candidate, FamilyStep, Span, Step


def refused_by(step: Step) -> tuple[str, ...]:
    """Families whose threshold the emitted token misses; empty with one masked branch."""
    emitted = next((item for item in step.candidates if item.token_id == step.token_id), None)
    return () if emitted is None else emitted.refused_by


def family_json(part: FamilyStep) -> dict[str, Any]:
    """What one family's masked branch says of the emitted token."""
    return {
        "family": part.family,
        "p_masked": math.exp(part.log_p_masked),
        "joint": math.exp(part.log_joint),
        "tau": math.exp(part.log_tau),
        "certified": part.certified,
        "threshold_state": part.state,
    }


def step_json(step: Step) -> dict[str, Any]:
    """A step with its candidates, and with factorized masks what each family says of it."""
    return {
        **step_numbers(step),
        "refused_by": list(refused_by(step)),
        "families": [family_json(part) for part in step.families],
        "candidates": [candidate_json(item) for item in step.candidates],
    }


def chain_json(chain: ChainCertificate | None) -> dict[str, Any] | None:
    """Both certificates of a chain as a whole; null where there is none."""
    if chain is None:
        return None
    least = math.exp(chain.log_support)
    factual = chain.certified_in == "factual"
    return {
        "steps": chain.steps,
        "weakest_step": chain.weakest + 1,
        **({"certified_in": "factual", "least_factual": least} if factual else {"least_joint": least}),
        "sequence": {
            "certified": chain.sequence_certified,
            "informative_steps": chain.informative_steps,
            "alpha": chain.sequence.alpha,
            "tau": chain.sequence.tau,
            "contexts": chain.sequence.contexts,
            "horizon": chain.sequence.horizon,
            "holds_for": chain.sequence.applies,
            "lengths": asdict(chain.sequence.lengths),
        },
        "union": {
            "certified": chain.union_certified,
            "alpha": chain.union.alpha,
            "steps_charged": chain.union.charged,
            "level": chain.union.level,
            "alpha_needed": chain.union.alpha_needed,
            "contexts_needed": chain.union.contexts_needed,
        },
        "reason": chain.reason,
    }


def settings_json(settings: AuditSettings) -> dict[str, Any]:
    """The settings of an audit, the policy's own parameters as an object."""
    return {**asdict(settings), "parameters": dict(settings.parameters)}


def _masked_branches(view: AuditView) -> list[str]:
    """The masked readings, without those that a method has of its own."""
    further = view.preview.branches[1:]
    return list(further[:1] if further[:1] == ("masked",) else further)


def session_json(view: AuditView) -> dict[str, Any]:
    """A session with the chain of its shown branch."""
    return {
        "session_id": view.session_id,
        "branch_id": view.branch_id,
        "name": view.name,
        "prompt": view.prompt,
        "masked": "".join(piece.text for piece in view.preview.pieces),
        "sentinel": view.preview.sentinel or None,
        "spans": [span_json(span) for span in view.spans],
        "settings": settings_json(view.settings),
        "user_list": view.user_list or None,
        "certificate": view.certificate,
        "fingerprint": view.fingerprint_digest,
        "finished": view.finished,
        "text": chain_text(view),
        "steps": [{**step_json(step), "near_threshold": step.near_threshold(view.noise.nats)} for step in view.steps],
        "numeric_noise": view.noise.text,
        "computed": [item.sentence for item in view.computed],
        "masked_branches": _masked_branches(view),
        "chain": chain_json(view.chain),
        **({} if view.thinking is None else {"thinking": thinking_json(view.thinking)}),
        "drift": None if view.drift is None else view.drift.status,
        "branches": [asdict(branch) for branch in view.branches],
        "warnings": list(view.warnings),
    }


def span_json(span: Span) -> dict[str, Any]:
    """A span: offsets, family, source with its detail and how sure it is, whether it is kept or only suggested."""
    return asdict(span)


def span_state(span: Span) -> str:
    """What becomes of a span: ``"masked"``, ``"kept"`` or ``"suggested"``."""
    return "masked" if span.masked else "kept" if span.kept else "suggested"


def chain_text(view: AuditView) -> str:
    """The chain without the end token that finished it."""
    steps = view.steps[:-1] if view.finished == "end" else view.steps
    return "".join(step.token for step in steps)


def job_json(job: JobView) -> dict[str, Any]:
    """A background job."""
    told = ("kind", "title", "status", "progress", "message", "error", "result", "seconds_left", "resumable")
    return {**{name: getattr(job, name) for name in told}, "job_id": job.id}


def candidate_json(item: Candidate) -> dict[str, Any]:
    """A row of a step's candidate table."""
    return {
        "token_id": item.token_id,
        "token": item.token,
        "p_factual": math.exp(item.log_p_factual),
        "p_masked": math.exp(item.log_p_masked),
        "p_fused": math.exp(item.log_p_fused),
        "certified": item.certified,
        "refused_by": list(item.refused_by),
        **({"at_most": list(item.at_most)} if item.at_most else {}),
    }
