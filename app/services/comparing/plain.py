"""Comparisons as plain JSON, shared by the endpoints and the command line; steps count from 1, null where none is."""

from __future__ import annotations

from typing import Any

from app.services.comparing.tables import FROM_VANILLA
from app.services.plain import step_numbers
from app.services.views.comparisons import ChainSummary, Comparison, PairComparison
from coft_core.types import Step


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
        "parameters": dict(chain.settings.parameters),
        "mean_kl_factual": chain.mean_kl_factual,
        "mean_tv_factual": chain.mean_tv_factual,
        "seconds_per_token": chain.seconds_per_token,
        "memory": _memory(chain),
        "steps": [_step(step, chain.own_model) for step in chain.steps],
    }


def _memory(chain: ChainSummary) -> dict[str, Any]:
    """Bytes: keys and values of all branches and weights as computed from the models' shapes, the peak as measured."""
    own = chain.footprint
    return {
        "key_value_bytes": chain.key_value_bytes,
        "branches": None if own is None else len(own.prompt_tokens),
        "model_bytes": None if own is None else own.model_bytes,
        "further_bytes": None if own is None else own.further_bytes,
        "peak_bytes": chain.peak_bytes,
    }


def _step(step: Step, own_model: bool) -> dict[str, Any]:
    numbers = step_numbers(step)
    return numbers | dict.fromkeys(FROM_VANILLA) if own_model else numbers


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
