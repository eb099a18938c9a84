"""Thresholds of split-conformal calibration, in log space and with exact ranks (paper Sec. 3.4).

A calibration value is the log joint support ``m`` of a true next token; the threshold ``log_tau`` is chosen
so that the true next token of a new context has ``m >= log_tau`` with probability at least ``1 - alpha``. The
paper's score is ``s = 1 - exp(m)``: its upper quantile is the lower quantile of ``m``.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv

from coft_core.conformal.values import as_log_support, context_codes, draw_one_per_context
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


Estimator = Literal["hierarchical", "one_per_context", "pooled"]
"""How dependent values of one context are counted; see :func:`conformal_threshold`."""

ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)
"""The estimators' names, the default first."""

MOST_DRAWS = 10_000
"""Draws that are averaged at most: each keeps a value of every context, and more change no threshold that shows."""


def check_alpha(alpha: float | Fraction) -> float:
    """Return ``alpha`` as a float if it is a risk level.

    Raises:
        InvalidInputError: ``alpha`` is no number, NaN, or outside (0, 1).
    """
    return float(exact_alpha(alpha))


def exact_alpha(alpha: float | Fraction) -> Fraction:
    """The rational number that ``alpha`` shows when printed: 1/10 for 0.1, which no binary float equals.

    Raises:
        InvalidInputError: ``alpha`` is no number, NaN, or outside (0, 1).
    """
    # In binary 0.29 * 100 is 28.999999999999996, and its floor would be a rank too low.
    if isinstance(alpha, numbers.Real) and not isinstance(alpha, bool) and 0 < alpha < 1:
        return Fraction(str(alpha))
    raise InvalidInputError(f"alpha is {alpha}; choose a number above 0 and below 1, for example 0.1.")


def check_estimator(estimator: str) -> Estimator:
    """Return ``estimator`` if it is one of :data:`ESTIMATORS`.

    Raises:
        InvalidInputError: It is not.
    """
    for name in ESTIMATORS:
        if estimator == name:
            return name
    raise InvalidInputError(f"The estimator is {estimator!r}; choose one of {', '.join(ESTIMATORS)}.")


def check_seed(seed: int) -> int:
    """Return ``seed`` if a generator can be seeded with it.

    Raises:
        InvalidInputError: It is no whole number, or negative.
    """
    if isinstance(seed, numbers.Integral) and not isinstance(seed, bool) and seed >= 0:
        return int(seed)
    raise InvalidInputError(f"The seed is {seed!r}; choose a whole number, 0 or larger.")


def conformal_rank(alpha: float | Fraction, n: int) -> int:
    """Rank ``k = floor(alpha * (n + 1))`` of the threshold among ``n`` values, smallest first, exactly.

    It is the mirror of the paper's ``ceil((1 - alpha) * (n + 1))``-th smallest score.

    Args:
        alpha: Risk level in (0, 1), read as the decimal that it prints as.
        n: Number of exchangeable values.

    Returns:
        The rank, from 0 (``n`` is too small for ``alpha``: no threshold) to ``n``.

    Raises:
        InvalidInputError: ``alpha`` is outside (0, 1), or ``n`` is negative.
    """
    if n < 0:
        raise InvalidInputError(f"The number of contexts is {n}; it cannot be negative.")
    return math.floor(exact_alpha(alpha) * (n + 1))


def minimum_contexts(alpha: float | Fraction) -> int:
    """Smallest ``n`` for which a threshold exists: ``ceil(1 / alpha) - 1``, exactly.

    Raises:
        InvalidInputError: ``alpha`` is outside (0, 1).
    """
    return math.ceil(1 / exact_alpha(alpha)) - 1


def level_at_least(level: Fraction) -> float | None:
    """The smallest float that, read as the decimal it prints as, is at least ``level``; None if that is not below 1."""
    if level >= 1:
        return None
    number = float(level)
    while Fraction(str(number)) < level:
        number = math.nextafter(number, 1.0)
    return number if 0 < number < 1 else None


def coverage_range(n: int, k: int, level: float = 0.95) -> tuple[float, float]:
    """Where the coverage of one calibration can lie: the equal-tailed interval of ``Beta(n + 1 - k, k)``.

    The law holds for ``n`` independent contexts with continuous values, one each (Vovk 2012).

    Args:
        n: Number of contexts.
        k: Rank of the threshold, see :func:`conformal_rank`.
        level: Probability of the interval.

    Returns:
        Lower and upper end; ``(1.0, 1.0)`` for ``k = 0``, where everything is certified.

    Raises:
        InvalidInputError: ``k`` is not in 0..n, or ``level`` not in (0, 1).
    """
    if not 0 <= k <= n:
        raise InvalidInputError(f"The rank is {k}; it must lie between 0 and the number of contexts, {n}.")
    check_level(level)
    if k == 0:
        return 1.0, 1.0
    tail = (1 - level) / 2
    return float(betaincinv(n + 1 - k, k, tail)), float(betaincinv(n + 1 - k, k, 1 - tail))


def check_level(level: float) -> float:
    """Return ``level`` if it is the probability of an interval.

    Raises:
        InvalidInputError: It is not in (0, 1).
    """
    if 0 < level < 1:
        return level
    raise InvalidInputError(f"The interval's level is {level}; choose a number above 0 and below 1, for example 0.95.")


def check_draws(draws: int) -> int:
    """Return ``draws`` if it is a number of draws.

    Raises:
        InvalidInputError: It is no whole number, or not in 1..:data:`MOST_DRAWS`.
    """
    if isinstance(draws, numbers.Integral) and not isinstance(draws, bool) and 1 <= draws <= MOST_DRAWS:
        return int(draws)
    raise InvalidInputError(f"The number of draws is {draws!r}; choose a whole number from 1 to {MOST_DRAWS}.")


def conformal_threshold(
    values: npt.ArrayLike,
    alpha: float | Fraction,
    groups: Sequence[Hashable] | npt.NDArray[Any] | None = None,
    estimator: str = "hierarchical",
    seed: int = 0,
    *,
    draws: int = 1,
    weights: npt.ArrayLike | None = None,
    test_weight: float = 1.0,
) -> float:
    """Log-threshold ``log_tau`` that a new context's true next token reaches with probability ``1 - alpha``.

    - ``hierarchical``: weight ``1 / ((K + 1) N_i)`` on each of the ``N_i`` values of context ``i`` of ``K``,
      and ``1 / (K + 1)`` at ``-inf``; the threshold is the largest value ``m`` such that the values ``>= m``
      weigh at least ``1 - alpha`` (Lee, Barber and Willett 2023). Sums are compared exactly, so no rounding
      can move it.
    - ``one_per_context``: the rank rule on one value drawn uniformly from each context (Dunn, Wasserman and
      Ramdas 2022). Contexts are taken in the order of their ids and values in the order of their size, so the
      draw depends on the data and ``seed``, not on the order of the rows. With ``draws`` above 1 the conformal
      p-values of that many independent draws are averaged, and a token is kept if their mean exceeds ``alpha``.
      Means of arbitrarily dependent p-values need the factor 2 (Rueschendorf 1982); these do not: ``draws`` rows
      of each context are again exchangeable contexts, of ``draws`` values each, and the mean exceeds ``alpha``
      exactly where the hierarchical rule on them keeps a token. Its level is therefore ``1 - alpha`` too.
    - ``pooled``: the rank rule on all values as if they were exchangeable, as in the paper's Eq. 6. It does
      not hold ``1 - alpha`` when a context gives several values.

    With one value per context all three are the ``conformal_rank(alpha, n)``-th smallest value.

    Under covariate shift, ``weights`` are the density ratios of the calibration contexts and ``test_weight`` that
    of the new one (Tibshirani et al. 2019); a context's weight is spread evenly over its values.

    Args:
        values: Log joint support of true next tokens, ``(n,)``, at most 0; ``-inf`` is allowed.
        alpha: Risk level in (0, 1).
        groups: Context id of each value, ``(n,)``; None makes every value its own context.
        estimator: One of :data:`ESTIMATORS`.
        seed: Seed of the draw of ``one_per_context``.
        draws: Draws of ``one_per_context`` that are averaged.
        weights: Shift weight of each value's context, ``(n,)``, equal within a context; None is 1 each.
        test_weight: Shift weight of the new context; only its size relative to ``weights`` matters.

    Returns:
        The threshold, in nats; ``-inf`` (everything is certified) when there are too few contexts for
        ``alpha``.

    Raises:
        InvalidInputError: An argument is outside its domain; the text names the value's index.
    """
    support = as_log_support(values)  # (n,)
    risk, name, seed = exact_alpha(alpha), check_estimator(estimator), check_seed(seed)
    codes = context_codes(groups, support.size)  # (n,)
    unit = units(support, codes, name, seed, check_draws(draws), weights)
    if not (math.isfinite(test_weight) and test_weight >= 0):
        raise InvalidInputError(f"The new context's weight is {test_weight}; give a finite number, 0 or larger.")
    return unit.threshold(risk, test_weight)


@dataclass(frozen=True, slots=True)
class Units:
    """What an estimator counts: exchangeable units with the values of each.

    Attributes:
        values: ``(n,)`` log joint supports.
        codes: ``(n,)`` unit of each value, numbered without gaps.
        weights: ``(units,)`` shift weights; None is 1 each.
    """

    values: npt.NDArray[np.float64]
    codes: npt.NDArray[np.intp]
    weights: npt.NDArray[np.float64] | None

    @property
    def count(self) -> int:
        """Number of units."""
        return int(self.codes.max()) + 1 if self.codes.size else 0

    def threshold(self, alpha: Fraction, test_weight: float = 1.0) -> float:
        """``log_tau`` at a risk level, see :func:`coft_core.conformal.quantile.mass_threshold`."""
        if self.weights is None and self.count == self.values.size:
            k = conformal_rank(alpha, self.values.size)
            return -math.inf if k == 0 else float(np.partition(self.values, k - 1)[k - 1])
        return mass_threshold(self.values, self.codes, alpha, self.weights, test_weight)

    def smallest_alpha(self, test_weight: float = 1.0) -> Fraction:
        """Smallest risk level with a threshold above ``-inf``, exactly; 1 when no level below 1 has one."""
        return 1 - finite_mass(self.values, self.codes, self.weights, test_weight)


def units(
    values: npt.NDArray[np.float64],
    codes: npt.NDArray[np.intp],
    estimator: Estimator,
    seed: int = 0,
    draws: int = 1,
    weights: npt.ArrayLike | None = None,
) -> Units:
    """Form the units of an estimator.

    Args:
        values: ``(n,)`` log joint supports.
        codes: ``(n,)`` contexts, numbered without gaps.
        estimator: The estimator.
        seed: Seed of the draws.
        draws: Draws of ``one_per_context``.
        weights: ``(n,)`` shift weight of each value's context.

    Raises:
        InvalidInputError: The weights are not positive, not as many as the values, or differ within a context.
    """
    per_context = None if weights is None else _weights_of_contexts(check_weights(weights), codes)  # (K,)
    if estimator == "pooled":
        return Units(values, np.arange(values.size), None if per_context is None else per_context[codes])
    if estimator == "one_per_context":
        rows = draw_one_per_context(codes, (values,), np.random.default_rng(seed), draws)  # (draws * K,)
        return Units(values[rows], codes[rows], per_context)
    return Units(values, codes, per_context)


def _weights_of_contexts(weights: npt.NDArray[np.float64], codes: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
    if weights.size != codes.size:
        raise InvalidInputError(f"weights has {weights.size} entries for {codes.size} values; give one per value.")
    first = np.unique(codes, return_index=True)[1]  # (K,)
    per_context = weights[first]
    if (bad := np.flatnonzero(per_context[codes] != weights)).size:
        raise InvalidInputError(f"weights[{int(bad[0])}] differs from another weight of the same context; give one.")
    return per_context
