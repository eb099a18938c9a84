"""Thresholds of split-conformal calibration, in log space and with exact ranks (paper Sec. 3.4).

A calibration value is the log joint support ``m`` of a true next token; the threshold ``log_tau`` is chosen
so that the true next token of a new context has ``m >= log_tau`` with probability at least ``1 - alpha``. The
paper's score is ``s = 1 - exp(m)``: its upper quantile is the lower quantile of ``m``.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Hashable, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv
from torch import Tensor

from coft_core.conformal.contexts import context_codes, draw_one_per_context
from coft_core.conformal.support import as_log_support
from coft_core.errors import InvalidInputError

Estimator = Literal["hierarchical", "one_per_context", "pooled"]
"""How dependent values of one context are counted; see :func:`conformal_threshold`."""

ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)
"""The estimators' names, the default first."""


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


def conformal_threshold(
    values: Tensor | npt.ArrayLike,
    alpha: float | Fraction,
    groups: Sequence[Hashable] | npt.NDArray[Any] | Tensor | None = None,
    estimator: str = "hierarchical",
    seed: int = 0,
) -> float:
    """Log-threshold ``log_tau`` that a new context's true next token reaches with probability ``1 - alpha``.

    - ``hierarchical``: weight ``1 / ((K + 1) N_i)`` on each of the ``N_i`` values of context ``i`` of ``K``,
      and ``1 / (K + 1)`` at ``-inf``; the threshold is the largest value ``m`` such that the values ``>= m``
      weigh at least ``1 - alpha`` (Lee, Barber and Willett 2023). Sums are compared as integers, so no
      rounding can move it.
    - ``one_per_context``: the rank rule on one value drawn uniformly from each context (Dunn, Wasserman and
      Ramdas 2022). Contexts are taken in the order of their ids and values in the order of their size, so the
      draw depends on the data and ``seed``, not on the order of the rows.
    - ``pooled``: the rank rule on all values as if they were exchangeable, as in the paper's Eq. 6. It does
      not hold ``1 - alpha`` when a context gives several values.

    With one value per context all three are the ``conformal_rank(alpha, n)``-th smallest value.

    Args:
        values: Log joint support of true next tokens, ``(n,)``, at most 0; ``-inf`` is allowed.
        alpha: Risk level in (0, 1).
        groups: Context id of each value, ``(n,)``; None makes every value its own context.
        estimator: One of :data:`ESTIMATORS`.
        seed: Seed of the draw of ``one_per_context``.

    Returns:
        The threshold, in nats; ``-inf`` (everything is certified) when there are too few contexts for
        ``alpha``.

    Raises:
        InvalidInputError: An argument is outside its domain; the text names the value's index.
    """
    support = as_log_support(values)  # (n,)
    risk, name, seed = exact_alpha(alpha), check_estimator(estimator), check_seed(seed)
    codes = context_codes(groups, support.size)  # (n,)
    if name == "hierarchical":
        return _hierarchical(support, codes, risk)
    if name == "one_per_context":
        support = support[draw_one_per_context(codes, (support,), np.random.default_rng(seed))]  # (K,)
    return _kth_smallest(support, conformal_rank(risk, support.size))


def _kth_smallest(values: npt.NDArray[np.float64], k: int) -> float:
    return -math.inf if k == 0 else float(np.partition(values, k - 1)[k - 1])


def _hierarchical(values: npt.NDArray[np.float64], codes: npt.NDArray[np.intp], alpha: Fraction) -> float:
    sizes = np.bincount(codes)  # (K,)
    # In units of 1 / ((K + 1) * scale) every weight is a whole number, whatever the sizes.
    scale = math.lcm(*np.unique(sizes).tolist())
    needed = math.ceil((1 - alpha) * (sizes.size + 1) * scale)
    descending = np.argsort(-values)  # (n,)
    weights = (scale // size for size in sizes[codes][descending].tolist())
    for row, total in zip(descending, accumulate(weights), strict=True):
        if total >= needed:
            return float(values[row])
    return -math.inf
