"""The one quantile behind every estimator: contexts with weights, values inside them, and a new context's own weight.

Contexts are exchangeable up to known weights (all 1 without a shift); the values of one context share its weight
evenly. With weights 1 this is the hierarchical rule of Lee, Barber and Willett (2023); with one value per context it is
the weighted quantile of Tibshirani, Barber, Candes and Ramdas (2019).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from coft_core.errors import InvalidInputError

_ROUNDING = 1e-9
"""Relative error that a float sum of weights may have; sums within it of the level are compared exactly."""


def mass_threshold(
    values: npt.NDArray[np.float64],
    codes: npt.NDArray[np.intp],
    alpha: Fraction,
    weights: npt.NDArray[np.float64] | None = None,
    test_weight: float = 1.0,
) -> float:
    """Largest value ``m`` such that the values ``>= m`` weigh at least ``1 - alpha``.

    Context ``i`` weighs ``w_i / (sum w + w_new)``, spread evenly over its values; the new context's own share
    ``w_new / (sum w + w_new)`` lies at ``-inf``. Sums are decided exactly, so no rounding can move the threshold.

    Args:
        values: ``(n,)`` log joint supports.
        codes: ``(n,)`` contexts, numbered 0..K-1 without gaps.
        alpha: Risk level in (0, 1).
        weights: ``(K,)`` positive weights of the contexts; None is 1 each.
        test_weight: Weight of the new context, at least 0.

    Returns:
        The threshold; ``-inf`` when the values do not weigh enough.
    """
    sizes = np.bincount(codes)  # (K,)
    per_context = np.ones(sizes.size) if weights is None else weights  # (K,)
    total = float(per_context.sum()) + test_weight
    order = np.argsort(-values)  # (n,), largest first
    cumulative = np.cumsum((per_context / np.maximum(sizes, 1))[codes][order])  # (n,)
    needed, slack = float(1 - alpha) * total, _ROUNDING * total
    low, high = np.searchsorted(cumulative, [needed - slack, needed + slack]).tolist()
    while low < high:
        middle = (low + high) // 2
        if _weighs_enough(codes[order[: middle + 1]], sizes, weights, test_weight, alpha):
            high = middle
        else:
            low = middle + 1
    return float(values[order[low]]) if low < values.size else -math.inf


def finite_mass(
    values: npt.NDArray[np.float64],
    codes: npt.NDArray[np.intp],
    weights: npt.NDArray[np.float64] | None = None,
    test_weight: float = 1.0,
) -> Fraction:
    """Exact share of all weight that lies on finite values; ``1 - alpha`` must not exceed it for a threshold.

    Args:
        values: ``(n,)`` log joint supports.
        codes: ``(n,)`` contexts, numbered 0..K-1 without gaps.
        weights: ``(K,)`` positive weights of the contexts; None is 1 each.
        test_weight: Weight of the new context.

    Returns:
        A number in [0, 1].
    """
    sizes = np.bincount(codes)  # (K,)
    found = _exact_mass(codes[values > -math.inf], sizes, weights)
    return found / _exact_total(sizes.size, weights, test_weight)


def check_weights(weights: npt.ArrayLike, what: str = "weights") -> npt.NDArray[np.float64]:
    """Read a list of shift weights.

    Raises:
        InvalidInputError: An entry is no finite number above 0, or it is no list.
    """
    array = np.asarray(weights, dtype=np.float64)
    if array.ndim != 1:
        raise InvalidInputError(f"{what} must have one dimension, not {array.ndim}.")
    if (bad := np.flatnonzero(~(np.isfinite(array) & (array > 0)))).size:
        index = int(bad[0])
        raise InvalidInputError(f"{what}[{index}] is {array[index]:g}; weights are finite numbers above 0.")
    return array


def effective_size(weights: npt.NDArray[np.float64]) -> float:
    """Effective sample size ``(sum w)^2 / sum w^2`` (Kish): how many equally weighted contexts these are worth."""
    return float(weights.sum() ** 2 / np.square(weights).sum()) if weights.size else 0.0


def _weighs_enough(
    chosen: npt.NDArray[np.intp],
    sizes: npt.NDArray[np.intp],
    weights: npt.NDArray[np.float64] | None,
    test_weight: float,
    alpha: Fraction,
) -> bool:
    return _exact_mass(chosen, sizes, weights) >= (1 - alpha) * _exact_total(sizes.size, weights, test_weight)


def _exact_total(contexts: int, weights: npt.NDArray[np.float64] | None, test_weight: float) -> Fraction:
    own = Fraction(contexts) if weights is None else sum(map(Fraction, weights.tolist()), Fraction(0))
    return own + Fraction(test_weight)


def _exact_mass(
    chosen: npt.NDArray[np.intp], sizes: npt.NDArray[np.intp], weights: npt.NDArray[np.float64] | None
) -> Fraction:
    """Weight of the rows whose contexts are ``chosen``, before division by the total."""
    if weights is None:
        counts = np.bincount(sizes[chosen])  # rows by the size of their context
        return sum((Fraction(int(counts[s]), int(s)) for s in np.flatnonzero(counts)), Fraction(0))
    counts = np.bincount(chosen, minlength=sizes.size)  # (K,)
    return sum(
        (Fraction(float(weights[i])) * Fraction(int(counts[i]), int(sizes[i])) for i in np.flatnonzero(counts)),
        Fraction(0),
    )
