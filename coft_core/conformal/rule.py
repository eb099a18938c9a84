"""From values to thresholds: one rule for position bins, whole chains, and the smallest levels that they support."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from coft_core.conformal.informative import is_weak
from coft_core.conformal.quantile import (
    Estimator,
    Units,
    check_draws,
    check_estimator,
    check_seed,
    conformal_rank,
    coverage_range,
    units,
)
from coft_core.conformal.shift import Shift
from coft_core.types import BinState


@dataclass(frozen=True, slots=True)
class Rule:
    """How dependent values become exchangeable units."""

    estimator: Estimator = "hierarchical"
    seed: int = 0
    draws: int = 1
    shift: Shift = field(default_factory=Shift)

    def __post_init__(self) -> None:
        """Refuse what nothing can be counted by."""
        check_estimator(self.estimator)
        check_seed(self.seed)
        check_draws(self.draws)

    def units(self, values: npt.NDArray[np.floating], contexts: npt.NDArray[np.integer]) -> Units:
        """The units of some values and their contexts, ``(n,)`` each."""
        return self._formed(values, contexts, np.unique(contexts, return_inverse=True)[1])

    def _formed(
        self, values: npt.NDArray[np.floating], contexts: npt.NDArray[np.integer], codes: npt.NDArray[np.intp]
    ) -> Units:
        support, weights = values.astype(np.float64), self.shift.of(contexts)  # (n,) each
        return units(support, codes, self.estimator, self.seed, self.draws, weights, self.shift.test_weight)

    def threshold(
        self, values: npt.NDArray[np.floating], contexts: npt.NDArray[np.integer], alpha: Fraction
    ) -> Threshold:
        """The threshold of some values and their contexts, ``(n,)`` each, at a risk level."""
        contexts_seen, codes = np.unique(contexts, return_inverse=True)  # (K,), (n,)
        log_tau = self._formed(values, contexts, codes).threshold(alpha)
        counted = values.size if self.estimator == "pooled" else contexts_seen.size
        rank = conformal_rank(alpha, counted)
        weighted = self.shift.kind == "weights"
        lawful = log_tau > -np.inf and counted == contexts_seen.size and not weighted
        low, high = coverage_range(contexts_seen.size, rank) if lawful else (None, None)
        effective = self.shift.effective(contexts_seen.tolist()) if weighted else None
        return Threshold(log_tau, int(contexts_seen.size), int(values.size), rank, low, high, effective)


@dataclass(frozen=True, slots=True)
class Threshold:
    """A log-threshold and what it rests on."""

    log_tau: float
    contexts: int
    values: int
    rank: int
    # 95 % range of coverage, Beta(n + 1 - k, k) over n contexts; None where that law does not hold: without a
    # threshold, under shift weights, and for ``pooled`` with several values per context.
    coverage_low: float | None
    coverage_high: float | None
    effective: float | None

    @property
    def state(self) -> BinState:
        """``calibrated``, or ``uninformative`` where it says nothing, see :mod:`coft_core.conformal.informative`."""
        return "calibrated" if self.log_tau > -np.inf and not is_weak(self.log_tau) else "uninformative"
