"""Shares and areas under the ROC curve with 95 % intervals that know which sentences depend on each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from coft_core.conformal.coverage import clopper_pearson

LEVEL: Final = 0.95
_DRAWS = 1000

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured number."""

    value: float
    low: float
    high: float
    n: int
    units: int


def share(hits: Sequence[bool], units: Sequence[str]) -> Figure:
    """Share of sentences with a property.

    The interval is a percentile bootstrap over units (Efron 1979). Where all units agree there is nothing to resample;
    it then is the exact one of Clopper and Pearson (1934) with the number of units in place of that of sentences.
    """
    if not hits:
        raise ValueError("there is no sentence to measure on; give the data folder that has them")
    totals = _by_unit(np.asarray(hits, dtype=float), units)  # (U, 2)
    value, count = float(np.mean(hits)), len(totals)
    if count == len(hits) or value in (0.0, 1.0):
        low, high = clopper_pearson(round(value * count), count, LEVEL)
        return Figure(value, low, high, len(hits), count)
    drawn = totals[_resampled(count)].sum(axis=1)  # (draws, 2)
    low, high = np.quantile(drawn[:, 0] / drawn[:, 1], ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return Figure(value, float(low), float(high), len(hits), count)


def area(scores: Sequence[float], labels: Sequence[bool], units: Sequence[str]) -> Figure:
    """Area under the ROC curve, its interval by a bootstrap over units of either label."""
    scored, truth, names = np.asarray(scores), np.asarray(labels), np.asarray(units)
    rng, found = np.random.default_rng(0), list[float]()
    rows = [
        [np.flatnonzero((truth == label) & (names == name)) for name in sorted(set(names[truth == label]))]
        for label in (False, True)
    ]
    for _ in range(_DRAWS):
        chosen = np.concatenate([own[i] for own in rows for i in rng.integers(0, len(own), len(own))])
        found.append(_area(scored[chosen], truth[chosen]))
    low, high = np.quantile(found, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return Figure(_area(scored, truth), float(low), float(high), len(truth), sum(map(len, rows)))


def calibration_error(scores: Sequence[float], labels: Sequence[bool], bins: int = 10) -> float:
    """Mean distance of probability and frequency over bins of equal width, weighted by their sizes."""
    p, y = np.asarray(scores), np.asarray(labels, dtype=float)
    place = np.minimum((p * bins).astype(int), bins - 1)
    return float(sum(abs(p[place == b].mean() - y[place == b].mean()) * (place == b).mean() for b in np.unique(place)))


def _area(scores: Values, labels: npt.NDArray[np.bool_]) -> float:
    """The Mann-Whitney statistic over its largest value; ties count one half."""
    positive, negative = int(labels.sum()), int((~labels).sum())
    ranks = rankdata(scores)[labels].sum()
    return float((ranks - positive * (positive + 1) / 2) / (positive * negative))


def _by_unit(values: Values, units: Sequence[str]) -> Values:
    """Sum and count of each unit, ``(U, 2)``."""
    names, places = np.unique(np.asarray(units), return_inverse=True)
    counts = np.bincount(places, minlength=len(names))
    return np.stack([np.bincount(places, values, minlength=len(names)), counts], axis=1)


def _resampled(count: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng(0).integers(0, count, (_DRAWS, count))
