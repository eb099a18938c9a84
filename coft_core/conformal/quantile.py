"""Thresholds of split-conformal calibration, in log space and with exact ranks (paper Sec. 3.4).

A calibration value is the log joint support ``m`` of a true next token. The paper's score is ``s = 1 - exp(m)``: its
upper quantile is the lower quantile of ``m``.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv

from coft_core.conformal.values import as_log_support, context_codes, draw_one_per_context
from coft_core.errors import InvalidInputError

_ROUNDING = 1e-9
"""Relative error that a float sum of weights may have; sums within it of the level are compared exactly."""


def check_weights(weights: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Read a list of shift weights."""
    array = np.asarray(weights, dtype=np.float64)
    if array.ndim != 1:
        raise InvalidInputError(f"weights must have one dimension, not {array.ndim}.")
    if (bad := np.flatnonzero(~(np.isfinite(array) & (array > 0)))).size:
        index = int(bad[0])
        raise InvalidInputError(f"weights[{index}] is {array[index]:g}; weights are finite numbers above 0.")
    return array


def effective_size(weights: npt.NDArray[np.float64]) -> float:
    """Effective sample size ``(sum w)^2 / sum w^2`` (Kish): how many equally weighted contexts these are worth."""
    return float(weights.sum() ** 2 / np.square(weights).sum()) if weights.size else 0.0


Estimator = Literal["hierarchical", "one_per_context", "pooled"]
"""How dependent values of one context are counted; see :func:`conformal_threshold`."""

ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)
"""The estimators' names, the default first."""

MOST_DRAWS = 10_000
"""Draws that are averaged at most: each keeps a value of every context, and more change no threshold that shows."""


def check_alpha(alpha: float | Fraction) -> float:
    """Return ``alpha`` as a float if it is a risk level."""
    return float(exact_alpha(alpha))


def exact_alpha(alpha: float | Fraction) -> Fraction:
    """The rational number that ``alpha`` shows when printed: 1/10 for 0.1, which no binary float equals."""
    # In binary 0.29 * 100 is 28.999999999999996, and its floor would be a rank too low.
    if isinstance(alpha, numbers.Real) and not isinstance(alpha, bool) and 0 < alpha < 1:
        return Fraction(str(alpha))
    raise InvalidInputError(f"alpha is {alpha}; choose a number above 0 and below 1, for example 0.1.")


def check_estimator(estimator: str) -> Estimator:
    """Return ``estimator`` if it is one of :data:`ESTIMATORS`."""
    return one_of(ESTIMATORS, estimator, "estimator")


Name = TypeVar("Name", bound=str)


def one_of(names: tuple[Name, ...], given: str, what: str) -> Name:
    """Return ``given`` if it is one of some names."""
    if given in names:
        return names[names.index(given)]
    raise InvalidInputError(f"The {what} is {given!r}; choose one of {', '.join(names)}.")


def is_whole(number: object, low: int) -> bool:
    """Whether something is a whole number, at least ``low``."""
    return isinstance(number, numbers.Integral) and not isinstance(number, bool) and int(number) >= low


def check_seed(seed: int) -> int:
    """Return ``seed`` if a generator can be seeded with it."""
    if is_whole(seed, 0):
        return int(seed)
    raise InvalidInputError(f"The seed is {seed!r}; choose a whole number, 0 or larger.")


def conformal_rank(alpha: float | Fraction, n: int) -> int:
    """Rank ``k = floor(alpha * (n + 1))`` of the threshold among ``n`` values, smallest first, exactly."""
    if n < 0:
        raise InvalidInputError(f"The number of contexts is {n}; it cannot be negative.")
    return math.floor(exact_alpha(alpha) * (n + 1))


def minimum_contexts(alpha: float | Fraction) -> int:
    """Smallest ``n`` for which a threshold exists: ``ceil(1 / alpha) - 1``, exactly."""
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
    """Where coverage lies: the equal-tailed interval of ``Beta(n + 1 - k, k)``, one value a context (Vovk 2012)."""
    if not 0 <= k <= n:
        raise InvalidInputError(f"The rank is {k}; it must lie between 0 and the number of contexts, {n}.")
    check_level(level)
    if k == 0:
        return 1.0, 1.0
    tail = (1 - level) / 2
    return float(betaincinv(n + 1 - k, k, tail)), float(betaincinv(n + 1 - k, k, 1 - tail))


def check_level(level: float) -> float:
    """Return ``level`` if it is the probability of an interval."""
    if 0 < level < 1:
        return level
    raise InvalidInputError(f"The interval's level is {level}; choose a number above 0 and below 1, for example 0.95.")


def check_draws(draws: int) -> int:
    """Return ``draws`` if it is a number of draws."""
    if is_whole(draws, 1) and draws <= MOST_DRAWS:
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

    - ``hierarchical``: weight ``1 / ((K + 1) N_i)`` on each of the ``N_i`` values of context ``i`` of ``K``, and
      ``1 / (K + 1)`` at ``-inf``; the largest value ``m`` such that the values ``>= m`` weigh at least ``1 - alpha``
      (Lee, Barber and Willett 2023).
    - ``one_per_context``: the rank rule on one value drawn from each context (Dunn, Wasserman and Ramdas 2022). With
      ``draws`` above 1 a token is kept if the mean of the draws' p-values exceeds ``alpha``. Means of dependent
      p-values need the factor 2 (Rueschendorf 1982); these do not: ``draws`` rows of each context are again
      exchangeable contexts, and the mean exceeds ``alpha`` exactly where the hierarchical rule on them keeps a token.
    - ``pooled``: the rank rule on all values as if they were exchangeable, as in the paper's Eq. 6; it does not hold
      ``1 - alpha`` when a context gives several values.

    Under covariate shift, ``weights`` are density ratios (Tibshirani et al. 2019), spread evenly over a context's
    values.

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
        The threshold, in nats; ``-inf`` (everything is certified) when there are too few contexts for ``alpha``.

    Raises:
        InvalidInputError: An argument is outside its domain; the text names the value's index.
    """
    support = as_log_support(values)  # (n,)
    risk, name, seed = exact_alpha(alpha), check_estimator(estimator), check_seed(seed)
    codes = context_codes(groups, support.size)  # (n,)
    formed = units(support, codes, name, seed, check_draws(draws), weights, test_weight)
    if not (math.isfinite(test_weight) and test_weight >= 0):
        raise InvalidInputError(f"The new context's weight is {test_weight}; give a finite number, 0 or larger.")
    return formed.threshold(risk)


@dataclass(frozen=True, slots=True)
class Units:
    """K exchangeable units; unit ``i`` weighs ``w_i / (sum w + w_new)``, spread evenly over its values."""

    values: npt.NDArray[np.float64]
    codes: npt.NDArray[np.intp]
    weights: npt.NDArray[np.float64] | None
    test_weight: float = 1.0

    def threshold(self, alpha: Fraction) -> float:
        """Largest ``m`` such that the values ``>= m`` weigh at least ``1 - alpha``, exactly; else ``-inf``."""
        sizes = np.bincount(self.codes)  # (K,)
        if self.weights is None and sizes.size == self.values.size:
            k = conformal_rank(alpha, self.values.size)
            return -math.inf if k == 0 else float(np.partition(self.values, k - 1)[k - 1])
        per_unit = np.ones(sizes.size) if self.weights is None else self.weights  # (K,)
        total = float(per_unit.sum()) + self.test_weight
        order = np.argsort(-self.values)  # (n,), largest first
        cumulative = np.cumsum((per_unit / np.maximum(sizes, 1))[self.codes][order])  # (n,)
        needed, slack = float(1 - alpha) * total, _ROUNDING * total
        low, high = np.searchsorted(cumulative, [needed - slack, needed + slack]).tolist()
        while low < high:
            middle = (low + high) // 2
            if self._mass(self.codes[order[: middle + 1]], sizes) >= (1 - alpha) * self._total(sizes.size):
                high = middle
            else:
                low = middle + 1
        return float(self.values[order[low]]) if low < self.values.size else -math.inf

    def smallest_alpha(self) -> Fraction:
        """Smallest risk level with a threshold above ``-inf``, exactly; 1 when no level below 1 has one."""
        sizes = np.bincount(self.codes)  # (K,)
        return 1 - self._mass(self.codes[self.values > -math.inf], sizes) / self._total(sizes.size)

    def _mass(self, chosen: npt.NDArray[np.intp], sizes: npt.NDArray[np.intp]) -> Fraction:
        """Exact weight of the values whose units are ``chosen``, before division by the total."""
        if self.weights is None:
            counts = np.bincount(sizes[chosen])  # values by the size of their unit
            return sum((Fraction(int(counts[s]), int(s)) for s in np.flatnonzero(counts)), Fraction(0))
        counts = np.bincount(chosen, minlength=sizes.size)  # (K,)
        return sum(
            (
                Fraction(float(self.weights[i])) * Fraction(int(counts[i]), int(sizes[i]))
                for i in np.flatnonzero(counts)
            ),
            Fraction(0),
        )

    def _total(self, count: int) -> Fraction:
        total = Fraction(count) if self.weights is None else sum(map(Fraction, self.weights.tolist()), Fraction(0))
        return total + Fraction(self.test_weight)


def units(
    values: npt.NDArray[np.float64],
    codes: npt.NDArray[np.intp],
    estimator: Estimator,
    seed: int = 0,
    draws: int = 1,
    weights: npt.ArrayLike | None = None,
    test_weight: float = 1.0,
) -> Units:
    """Form the units of an estimator."""
    per_context = None if weights is None else _weights_of_contexts(check_weights(weights), codes)  # (K,)
    if estimator == "pooled":
        per_value = None if per_context is None else per_context[codes]
        return Units(values, np.arange(values.size), per_value, test_weight)
    if estimator == "one_per_context":
        rows = draw_one_per_context(codes, (values,), np.random.default_rng(seed), draws)  # (draws * K,)
        return Units(values[rows], codes[rows], per_context, test_weight)
    return Units(values, codes, per_context, test_weight)


def _weights_of_contexts(weights: npt.NDArray[np.float64], codes: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
    if weights.size != codes.size:
        raise InvalidInputError(f"weights has {weights.size} entries for {codes.size} values; give one per value.")
    first = np.unique(codes, return_index=True)[1]  # (K,)
    per_context = weights[first]
    if (bad := np.flatnonzero(per_context[codes] != weights)).size:
        raise InvalidInputError(f"weights[{int(bad[0])}] differs from another weight of the same context; give one.")
    return per_context
