"""Certificates for whole chains: the sequence score, and the union bound beside it (paper, App. "Beyond Tokens").

The paper's sequence score is ``S = max_t s_t``; in log space its mirror is ``M = min_t m_t``, the least supported token
of a chain. One value of ``M`` a chain makes chains the units, so tokens need not be independent of each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from coft_core.conformal.quantile import (
    check_draws,
    check_estimator,
    check_seed,
    conformal_rank,
    coverage_range,
    exact_alpha,
    minimum_contexts,
    units,
)
from coft_core.conformal.stepwise import PositionBins
from coft_core.conformal.values import CalibrationValues
from coft_core.conformal.weighted import effective_size
from coft_core.errors import InvalidInputError
from coft_core.types import BinState


@dataclass(frozen=True, slots=True)
class SequenceThreshold:
    """Threshold for the least supported token of a chain.

    Attributes:
        log_tau: Log-threshold, in nats; all true tokens of a new context's chain reach it with probability at least
            ``1 - alpha`` together.
        alpha: Risk level, for the whole chain at once.
        state: ``calibrated``, or ``uninformative`` (every chain passes).
        contexts: Number of contexts.
        sequences: Number of chains; a context can have several.
        horizon: Steps of the longest chain; the certificate says nothing of longer ones.
        rank: Rank of the threshold among the contexts; 0 means that there are too few.
        coverage_low: Lower end of the 95 % range of coverage; None where its law does not hold.
        coverage_high: Upper end.
        effective_contexts: Effective number of contexts under shift weights; None without.
    """

    log_tau: float
    alpha: float
    state: BinState
    contexts: int
    sequences: int
    horizon: int
    rank: int
    coverage_low: float | None = None
    coverage_high: float | None = None
    effective_contexts: float | None = None

    @property
    def tau(self) -> float:
        """Threshold as a probability; 0 when every chain passes."""
        return math.exp(self.log_tau)


def sequence_minima(
    values: CalibrationValues, horizon: int | None = None
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int32]]:
    """Least joint support of each chain.

    Args:
        values: The values; rows of one chain stand together in the order of their steps.
        horizon: Steps of a chain that count; None takes all.

    Returns:
        The minima ``(S,)`` and the chains' contexts ``(S,)``.

    Raises:
        InvalidInputError: The horizon is below 1.
    """
    if horizon is not None and horizon < 1:
        raise InvalidInputError(f"The horizon is {horizon}; count at least one step.")
    if not len(values):
        return np.empty(0), np.empty(0, dtype=np.int32)
    starts = np.flatnonzero(np.diff(values.sequences, prepend=-1))  # (S,)
    counted = values.values.astype(np.float64)  # (n,)
    if horizon is not None:
        counted = np.where(values.steps < horizon, counted, 0.0)
    return np.minimum.reduceat(counted, starts), values.contexts[starts]


def sequence_threshold(
    values: CalibrationValues,
    alpha: float | Fraction,
    estimator: str = "hierarchical",
    horizon: int | None = None,
    seed: int = 0,
    *,
    draws: int = 1,
    weights: npt.NDArray[np.float64] | None = None,
    test_weight: float = 1.0,
) -> SequenceThreshold:
    """Calibrate the sequence score on contexts.

    Args:
        values: Values of whole chains.
        alpha: Risk level for the whole chain.
        estimator: How several chains of one context are counted; with one chain each all estimators agree.
        horizon: Steps of a chain that count; None takes all.
        seed: Seed of the draws of ``one_per_context``.
        draws: Draws of ``one_per_context`` that are averaged.
        weights: Shift weight of each value's context, ``(n,)``.
        test_weight: Shift weight of a new context.

    Raises:
        InvalidInputError: An argument is outside its domain.
    """
    risk, name = exact_alpha(alpha), check_estimator(estimator)
    minima, contexts = sequence_minima(values, horizon)  # (S,)
    codes = np.unique(contexts, return_inverse=True)[1]  # (S,)
    own = None if weights is None or not minima.size else weights[np.flatnonzero(np.diff(values.sequences, prepend=-1))]
    log_tau = units(minima, codes, name, check_seed(seed), check_draws(draws), own).threshold(risk, test_weight)
    count = int(codes.max()) + 1 if codes.size else 0
    counted = minima.size if name == "pooled" else count
    rank = conformal_rank(risk, counted)
    lawful = log_tau > -math.inf and counted == count and own is None
    low, high = coverage_range(count, rank) if lawful else (None, None)
    longest = int(values.steps.max()) + 1 if len(values) else 0
    return SequenceThreshold(
        log_tau=log_tau,
        alpha=float(risk),
        state="calibrated" if log_tau > -math.inf else "uninformative",
        contexts=count,
        sequences=int(minima.size),
        horizon=longest if horizon is None else min(horizon, longest),
        rank=rank,
        coverage_low=low,
        coverage_high=high,
        effective_contexts=None if own is None else effective_size(own[np.unique(codes, return_index=True)[1]]),
    )


@dataclass(frozen=True, slots=True)
class UnionBound:
    """What per-step thresholds say of a whole chain, however dependent its steps are (paper, Theorem 4).

    Attributes:
        steps: Steps of the chain.
        charged: Steps that alpha is charged for. A threshold shared by a bin bounds the average miss of the bin's
            steps, so a bin that the chain enters is charged as a whole.
        alpha: Risk level of one step.
        level: ``1 - charged * alpha``, not below 0: probability that all true tokens pass.
        alpha_needed: Risk level of one step that would give the whole chain ``1 - alpha``.
        contexts_needed: Contexts that this smaller level needs.
    """

    steps: int
    charged: int
    alpha: float
    level: float
    alpha_needed: float
    contexts_needed: int


def union_bound(
    alpha: float | Fraction, steps: int, positions: PositionBins | None = None, values: CalibrationValues | None = None
) -> UnionBound:
    """The conservative bound ``1 - T * alpha`` for a chain of T steps.

    Args:
        alpha: Risk level of one step.
        steps: Steps of the chain, at least 1.
        positions: Bins that share a threshold; None is one threshold a step.
        values: Calibration values, whose most populous context bounds what a bin is charged; None charges a bin its
            width.

    Raises:
        InvalidInputError: Alpha is outside (0, 1), or there is no step.
    """
    risk = exact_alpha(alpha)
    if steps < 1:
        raise InvalidInputError(f"The chain has {steps} steps; a bound is for at least one.")
    charged = steps
    if positions is not None:
        last = positions.bin_of(steps - 1)
        own = _largest_context(values, positions) or list(positions.widths)
        beyond = steps - positions.first_step(last)
        charged = max(sum(own[:last]) + max(own[last], beyond), steps)
    return UnionBound(
        steps=steps,
        charged=charged,
        alpha=float(risk),
        level=float(max(1 - charged * risk, Fraction(0))),
        alpha_needed=float(risk / charged),
        contexts_needed=minimum_contexts(risk / charged),
    )


def _largest_context(values: CalibrationValues | None, positions: PositionBins) -> list[int] | None:
    """Most values that one context has in each bin, ``(B,)``."""
    if values is None or not len(values):
        return None
    codes = np.unique(values.contexts, return_inverse=True)[1]  # (n,)
    cells = positions.bins_of(values.steps) * (int(codes.max()) + 1) + codes  # (n,)
    found, counts = np.unique(cells, return_counts=True)
    largest = np.zeros(positions.count, dtype=np.int64)
    np.maximum.at(largest, found // (int(codes.max()) + 1), counts)
    return [int(size) for size in largest]
