"""Figures with their number of independent units, their 95 % interval and what was aimed at.

Groups of one setting are asked with the same words and share one masked prompt, so they agree or differ together. Such
observations are one cluster, and an interval rests on the clusters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import beta, t

from coft_core.conformal.coverage import clopper_pearson

Values = npt.NDArray[np.float64]

LEVEL = 0.95
_DRAWS = 2000


@dataclass(frozen=True)
class Figure:
    """A measured number."""

    value: float
    n: int
    low: float
    high: float
    unit: str
    target: str = ""
    shown: bool | None = None

    def to_dict(self) -> dict[str, Any]:
        """The figure for JSON; the target only where there is one."""
        row: dict[str, Any] = {
            "value": _rounded(self.value), "n": self.n, "unit": self.unit,
            "interval": [_rounded(self.low), _rounded(self.high)],
        }  # fmt: skip
        return row | ({"target": self.target, "shown": self.shown} if self.target else {})

    def aimed(self, target: str, least: float = -math.inf, most: float = math.inf) -> Figure:
        """The same figure with its target: shown if no value of the interval is under `least` or over `most`."""
        shown = bool(least <= self.low and self.high <= most)
        return Figure(self.value, self.n, self.low, self.high, self.unit, target, shown)


def _rounded(value: float) -> float:
    return round(float(value), 5)


def share(hits: int, n: int, unit: str) -> Figure:
    """A proportion with its exact interval (Clopper and Pearson 1934)."""
    low, high = clopper_pearson(hits, n, LEVEL)
    return Figure(hits / n, n, low, high, unit)


def cluster_share(hits: npt.ArrayLike, sizes: npt.ArrayLike, unit: str) -> Figure:
    """A proportion of observations that come in clusters, with an interval that knows it.

    The exact interval of Clopper and Pearson with the number of independent observations that vary as much as the
    clusters do (Korn and Graubard 1998): with clusters that agree in themselves, their number. It is that, too, where
    nothing varies.
    """
    hit, size = np.asarray(hits, dtype=float), np.asarray(sizes, dtype=float)
    n, clusters = float(size.sum()), len(size)
    value = float(hit.sum()) / n
    variance = float(((hit - value * size) ** 2).sum()) / n**2
    effective = (
        float(clusters) if value in (0.0, 1.0) else n if variance == 0 else min(n, value * (1 - value) / variance)
    )
    tail, right = (1 - LEVEL) / 2, value * effective
    low = 0.0 if value == 0 else float(beta.ppf(tail, right, effective - right + 1))
    high = 1.0 if value == 1 else float(beta.ppf(1 - tail, right + 1, effective - right))
    return Figure(value, clusters, low, high, unit)


def jackknife(
    rows: Values,
    clusters: npt.ArrayLike,
    unit: str,
    statistic: Callable[[Values], Values] = lambda sample: sample.mean(-1),
) -> Figure:
    """A statistic of observations that come in clusters, with Student's interval over the clusters.

    The standard error is that of leaving out one cluster after the other (Quenouille and Tukey).
    """
    labels = np.unique(np.asarray(clusters), return_inverse=True)[1]
    number = int(labels.max()) + 1 if labels.size else 0
    if number < 2:
        raise ValueError(f"an interval over {unit} takes at least two of them, ask for more")
    value = float(statistic(rows))
    without = np.array([float(statistic(rows[..., labels != cluster])) for cluster in range(number)])
    error = math.sqrt((number - 1) / number * float(((without - without.mean()) ** 2).sum()))
    reach = float(t.ppf((1 + LEVEL) / 2, number - 1)) * error
    return Figure(value, number, value - reach, value + reach, unit)


def bootstrap(
    rows: Values, unit: str, statistic: Callable[[Values], Values] = lambda sample: sample.mean(-1), seed: int = 0
) -> Figure:
    """A statistic of independent units with its percentile interval (Efron 1979)."""
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


def cluster_difference(
    before: npt.NDArray[np.bool_], after: npt.NDArray[np.bool_], clusters: npt.ArrayLike, unit: str
) -> Figure:
    """Difference of two success rates on the same observations, which come in clusters.

    Where the two never disagree, nothing is known of how clusters vary: then each kind of disagreement gets the exact
    interval that no disagreement in so many clusters leaves.
    """
    differences = after.astype(float) - before.astype(float)
    figure = jackknife(differences, clusters, unit)
    if differences.any():
        return figure
    _, reach = clopper_pearson(0, figure.n, 1 - (1 - LEVEL) / 2)
    return Figure(0.0, figure.n, -reach, reach, unit)


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
