"""What is shown of a step of which the engine returned only the most likely tokens: bounds, and if it is decided."""

from __future__ import annotations

import math

from app.shared.format import plural, probability
from coft_core.types import Candidate, Step


def ends_of(step: Step, row: Candidate, view: str) -> tuple[float, float]:
    """Between what a candidate's log-probability in a view lies; the same twice where all tokens are known."""
    if step.bounds is None:
        return getattr(row, f"log_p_{view}"), getattr(row, f"log_p_{view}")
    return step.bounds.ends(row, view)


def bounded(low: float, high: float, digits: int) -> str:
    """A probability of which the logarithm lies between two ends: a number, ``"0.31-0.33"``, or ``"≤ 0.02"``."""
    least, most = (probability(math.exp(end), digits) for end in (low, high))
    if least == most:
        return least
    unit = 10.0**-digits
    most = probability(min(math.ceil(math.exp(high) / unit) * unit, 1.0), digits)
    if low == -math.inf:
        return f"≤ {most}"
    return f"{probability(math.floor(math.exp(low) / unit) * unit, digits)}–{most}"


def shown_probability(step: Step, row: Candidate, view: str, digits: int) -> str:
    """A candidate's probability in a view."""
    return bounded(*ends_of(step, row, view), digits)


def shown_support(step: Step, row: Candidate, digits: int) -> str:
    """The probability of a candidate that the threshold is compared with."""
    views = ("factual",) if step.certified_in == "factual" else ("masked", "fused")
    lows, highs = zip(*(ends_of(step, row, view) for view in views), strict=True)
    return bounded(min(lows), min(highs), digits)


def emitted(step: Step) -> Candidate | None:
    """The row of the token that was written."""
    return next((row for row in step.candidates if row.token_id == step.token_id), None)


def is_open_ended(step: Step) -> bool:
    """Whether nothing is known of how the written token's probability differs between the readings."""
    row = emitted(step)
    return row is not None and bool({"factual", "masked"} & {*row.at_most}) and step.diagnostics.log_ratio == 0


def decided_sentence(step: Step) -> str:
    """Whether the step is decided, and whether its draw is; empty where all tokens are known."""
    bounds = step.bounds
    if bounds is None:
        return ""
    came = f"the {bounds.seen} most likely tokens came back"
    draw = "" if bounds.exact else " With all tokens the policy could have written another one."
    if step.state == "none" or step.log_tau == -math.inf:
        return f"Only {came}, and the token was drawn from these.{draw}"
    if bounds.undecided:
        more = plural(bounds.undecided, "more token")
        return f"Undecided: up to {more} may or may not be certified, since only {came}.{draw}"
    return f"Decided: every membership shown is certain ({came}).{draw}"
