"""Comparisons as plain JSON, shared by the endpoints and the command line; steps count from 1, null where none is."""

from __future__ import annotations

from typing import Any

from app.services.plain import step_numbers
from app.services.views.comparisons import ChainSummary, Comparison, PairComparison


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Chains, where each parts from the first, the aligned rows, and what is stored of each step."""
    return {
        "chains": [_chain(chain) for chain in comparison.chains],
        "pairs": [_pair(pair) for pair in comparison.pairs],
        "rows": [
            {
                "steps": [None if step is None else step + 1 for step in row.steps],
                "differs": list(row.differs),
                "same": row.same,
            }
            for row in comparison.rows
        ],
        "notes": list(comparison.notes),
    }


def _chain(chain: ChainSummary) -> dict[str, Any]:
    return {
        "session_id": chain.session_id,
        "branch_id": chain.branch_id,
        "name": chain.name,
        "branch": chain.branch,
        "policy": chain.policy,
        "model": chain.model,
        "lam": chain.settings.lam,
        "alpha": chain.settings.alpha,
        "mask_layout": chain.settings.mask_layout,
        "calibration_id": None if chain.calibration is None else chain.calibration.id,
        "certificate": chain.certificate,
        "finished": chain.finished,
        "text": chain.text,
        "tokens": len(chain.steps),
        "certified": chain.certified,
        "fallbacks": chain.fallbacks,
        "overruled": chain.overruled,
        "mean_log_ratio": chain.mean_log_ratio,
        "seconds_per_token": chain.seconds_per_token,
        "steps": [step_numbers(step) for step in chain.steps],
    }


def _pair(pair: PairComparison) -> dict[str, Any]:
    return {
        "chain": pair.other + 1,
        "first_divergence": None if pair.first_divergence is None else pair.first_divergence + 1,
        "same": pair.same,
        "changed": pair.changed,
        "removed": pair.removed,
        "added": pair.added,
        "by_text": pair.by_text,
        "sentence": pair.sentence,
        "differences": [{"setting": name, "first": a, "other": b} for name, a, b in pair.differences],
    }
