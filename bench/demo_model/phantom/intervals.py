"""Figures with their number of observations, their 95 % interval and what was aimed at."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from coft_core.conformal import clopper_pearson

Values = npt.NDArray[np.float64]

LEVEL = 0.95
_DRAWS = 2000


@dataclass(frozen=True)
class Figure:
    """A measured number.

    Attributes:
        value: The measurement.
        n: How many units it rests on.
        low: Lower end of its 95 % interval.
        high: Upper end.
        unit: What was counted.
        target: What was aimed at, in words; empty where nothing was.
        reached: Whether the measured value reaches the target; None without one.
    """

    value: float
    n: int
    low: float
    high: float
    unit: str
    target: str = ""
    reached: bool | None = None

    def to_dict(self) -> dict[str, Any]:
        """The figure for JSON; the target only where there is one."""
        row: dict[str, Any] = {
            "value": _rounded(self.value), "n": self.n, "unit": self.unit,
            "interval": [_rounded(self.low), _rounded(self.high)],
        }  # fmt: skip
        return row | ({"target": self.target, "reached": self.reached} if self.target else {})

    def aimed(self, target: str, reached: bool) -> Figure:
        """The same figure with its target."""
        return Figure(self.value, self.n, self.low, self.high, self.unit, target, bool(reached))


def _rounded(value: float) -> float:
    return round(float(value), 5)


def share(hits: int, n: int, unit: str) -> Figure:
    """A proportion with its exact interval (Clopper and Pearson 1934)."""
    low, high = clopper_pearson(hits, n, LEVEL)
    return Figure(hits / n, n, low, high, unit)


def bootstrap(
    rows: Values, unit: str, statistic: Callable[[Values], Values] = lambda sample: sample.mean(-1), seed: int = 0
) -> Figure:
    """A statistic of independent units with its percentile interval (Efron 1979).

    Args:
        rows: One number a unit, shape (n,), or several numbers a unit, shape (numbers, n).
        unit: What a unit is.
        statistic: From `(..., n)`, with the draws of the bootstrap before the last axis, to `(...)`; the axis of
            several numbers a unit comes first.
        seed: Seed of the draws.

    Raises:
        ValueError: If there are no units.
    """
    n = rows.shape[-1]
    if n == 0:
        raise ValueError(f"there is no {unit} to measure on, ask for more")
    chosen = np.random.default_rng(seed).integers(0, n, (_DRAWS, n))  # (draws, n)
    drawn = statistic(rows[..., chosen])  # (draws,)
    low, high = np.quantile(drawn, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return Figure(float(statistic(rows)), n, float(low), float(high), unit)


def reduction(pairs: Values) -> Values:
    """One minus the ratio of the mean of the second row to that of the first, shape (2, ..., n) to (...).

    Where the first mean is not above zero there is nothing to reduce, and the reduction is 0.
    """
    before, after = pairs[0].mean(-1), pairs[1].mean(-1)
    result: Values = 1 - np.divide(after, before, out=np.ones_like(before), where=before > 0)
    return result


def paired_difference(before: npt.NDArray[np.bool_], after: npt.NDArray[np.bool_], unit: str) -> Figure:
    """Difference of two success rates on the same units, with a conservative interval.

    Only units on which the two disagree count. Each kind of disagreement gets an exact interval of level 97.5 %,
    so both hold together with at least 95 %; the interval stays honest where nothing disagrees at all.
    """
    n = len(before)
    gained, lost = int((after & ~before).sum()), int((before & ~after).sum())
    level = 1 - (1 - LEVEL) / 2
    (gained_low, gained_high), (lost_low, lost_high) = (clopper_pearson(k, n, level) for k in (gained, lost))
    return Figure((gained - lost) / n, n, gained_low - lost_high, gained_high - lost_low, unit)


def perplexity(nats: Values, unit: str) -> Figure:
    """Exponential of the cross-entropy per token, from (nats, tokens) of each document, shape (2, n)."""
    rate = bootstrap(nats, unit, lambda sample: sample[0].sum(-1) / sample[1].sum(-1))
    return Figure(math.exp(rate.value), rate.n, math.exp(rate.low), math.exp(rate.high), unit)
