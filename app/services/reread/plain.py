"""Plain JSON form of a reading at another lambda or alpha; see :mod:`app.services.plain`."""

from __future__ import annotations

import math
from typing import Any

from app.services.views.rereading import Rereading, RereadRow
from coft_core.reread_types import Bounds


def rereading_json(found: Rereading) -> dict[str, Any]:
    """A reading with all its steps; steps count from 1, and what hangs on logits that were not kept is null."""
    told = found.thresholds
    return {
        "session_id": found.session_id,
        "branch_id": found.branch_id,
        "lam": found.lam,
        "alpha": found.alpha,
        "own_lam": found.own_lam,
        "own_alpha": found.own_alpha,
        "certificate": told.certificate,
        "thresholds": told.kind,
        "thresholds_text": told.sentence,
        "calibration_id": told.calibration_id,
        "calibration": told.name,
        "notes": list(told.notes),
        "summary": found.summary,
        "differing": len(found.differing),
        "first": None if found.first is None else found.first.index + 1,
        "certified_then": found.certified_then,
        "certified": found.certified_now,
        "not_kept": [index + 1 for index in found.unread],
        "other_lambdas": [
            {"lam": offer.lam, "calibration_id": offer.calibration_id, "name": offer.name} for offer in found.offers
        ],
        "steps": [row_json(row) for row in found.rows],
    }


def row_json(row: RereadRow) -> dict[str, Any]:
    """One step as it was audited and as it reads now; numbers that are only bounded are ``[low, high]``."""
    then, now = row.then, row.now
    return {
        "step": row.index + 1,
        "token_id": then.token_id,
        "token": then.token,
        "chosen_by": "reviewer" if then.forced else "policy",
        "differs": row.differs,
        "policy_token_then": then.policy_token,
        "policy_token_id": now.policy_token_id,
        "policy_token": now.policy_token,
        "certified_then": then.certified,
        "certified": now.certified,
        "threshold_state_then": then.state,
        "threshold_state": now.state,
        "fallback_then": then.fallback,
        "fallback": now.fallback,
        "tau_then": math.exp(then.log_tau),
        "tau": math.exp(now.log_tau),
        "p_fused_then": math.exp(then.log_p_fused),
        "p_fused": _number(Bounds(math.exp(now.log_p_fused.low), math.exp(now.log_p_fused.high))),
        "set_size_then": then.set_size,
        "set_size": _number(now.set_size),
        "exact": now.mode == "full",
        "note": now.note,
    }


def _number(bounds: Bounds) -> float | list[float]:
    return bounds.low if bounds.exact else [bounds.low, bounds.high]
