"""Bounds on the fused tail at any lambda, from what was measured of it at a few."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass

from coft_core.reread_types import Bounds
from coft_core.stored import Tail

ROUNDING = 1e-9
"""By this much bounds are widened, so that rounding in float64 cannot cross them."""


@dataclass(frozen=True, slots=True)
class FusedTail:
    """The fused tokens outside the head at one lambda, logits divided by the temperature.

    Attributes:
        log_mass: Log of the sum of their exponentials.
        slope: Derivative of that by lambda.
        largest: The largest of them is at most this.
    """

    log_mass: Bounds
    slope: Bounds
    largest: float


def fused_tail(tail: Tail, lam: float, temperature: float) -> FusedTail:
    """Bound the fused tail at a lambda.

    ``log sum exp((1 - lam) a + lam b)`` is convex in lambda. Between two lambdas at which it was measured it lies below
    the chord, which between 0 and 1 is Hoelder's inequality, and above both tangents; its slope lies between theirs.
    The largest fused logit is convex too. At a measured lambda all is exact.

    Args:
        tail: The tail.
        lam: Fusion weight.
        temperature: Temperature at which the tail was measured.
    """
    above = bisect_right(tail.lams, lam)
    left = above - 1
    if tail.lams[left] == lam:
        return FusedTail(
            Bounds.at(tail.fused_log_mass[left]),
            Bounds.at(tail.fused_slope[left]),
            tail.fused_largest[left] / temperature,
        )
    start, end = tail.lams[left], tail.lams[above]
    weight = (lam - start) / (end - start)
    high = _chord(tail.fused_log_mass[left], tail.fused_log_mass[above], weight)
    slopes = Bounds(tail.fused_slope[left], tail.fused_slope[above])
    largest = _chord(tail.fused_largest[left], tail.fused_largest[above], weight) / temperature
    if high == -math.inf:
        return FusedTail(Bounds.at(high), Bounds.at(0.0), -math.inf)
    low = max(
        tail.fused_log_mass[left] + slopes.low * (lam - start),
        tail.fused_log_mass[above] - slopes.high * (end - lam),
    )
    return FusedTail(Bounds(min(low, high) - ROUNDING, high + ROUNDING), slopes, largest + ROUNDING)


def _chord(left: float, right: float, weight: float) -> float:
    """Linear interpolation inside an interval; a token forbidden at one end is forbidden between the ends."""
    return -math.inf if -math.inf in (left, right) else (1.0 - weight) * left + weight * right
