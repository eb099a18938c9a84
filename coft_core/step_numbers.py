"""A step as plain numbers, under the names of the report's columns, wherever it leaves the program.

Probabilities stand in place of logarithms, steps count from 1, and an absent threshold is tau 0.
"""

from __future__ import annotations

import math
from typing import Any

from coft_core.types import Step


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
        "certified_in": step.certified_in,
        "margin": _finite(step.diagnostics.margin),
        "kl_fused_masked": step.diagnostics.kl_fused_masked,
        "kl_fused_factual": step.diagnostics.kl_fused_factual,
        "tv_fused_factual": step.diagnostics.tv_fused_factual,
        "tv_on_set": step.diagnostics.tv_on_set,
        "tv_bound": step.diagnostics.tv_bound,
        "sensitivity": step.diagnostics.sensitivity,
        "log_ratio": step.diagnostics.log_ratio,
        "set_size_low": step.set_size_low,
        "set_size_high": step.set_size_high,
        "noise": step.noise,
        **bound_numbers(step),
    }


def bound_numbers(step: Step) -> dict[str, Any]:
    """What is known of a step of which the engine returned only the most likely tokens; empty where all are known."""
    bounds = step.bounds
    return {} if bounds is None else {"seen": bounds.seen, "undecided": bounds.undecided, "exact": bounds.exact}


def chosen_by(step: Step) -> str:
    """Who chose the token: ``reviewer``, ``fallback`` or ``policy``."""
    return "reviewer" if step.forced else "fallback" if step.fallback else "policy"


def _finite(value: float) -> float | None:
    """A number, or null where it is infinite; JSON has no infinities."""
    return value if math.isfinite(value) else None


def finite(value: Any) -> Any:
    """The same for those who read strict JSON; what is not finite is null."""
    if isinstance(value, dict):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
