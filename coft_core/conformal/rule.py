"""From values to thresholds: one rule for position bins, whole chains, and the smallest levels that they support."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any

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
    minimum_contexts,
    units,
)
from coft_core.conformal.shift import Shift
from coft_core.types import BinState


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A log-threshold and what it rests on, of a position bin or of whole chains.

    ``inherited``: that of the nearest calibrated bin; ``uninformative``: every token passes, or nearly every one.
    """

    state: BinState
    log_tau: float
    contexts: int
    values: int
    rank: int
    # 95 % range of coverage, Beta(n + 1 - k, k) over n contexts; None where that law does not hold: without a
    # threshold, under shift weights, and for ``pooled`` with several values per context.
    coverage_low: float | None = None
    coverage_high: float | None = None
    effective_contexts: float | None = None
    needed: int = 0

    @property
    def tau(self) -> float:
        """Threshold as a probability; 0 when everything passes."""
        return math.exp(self.log_tau)

    @property
    def rests_on(self) -> dict[str, Any]:
        """Its fields by name, for a threshold that says more."""
        return {item.name: getattr(self, item.name) for item in fields(Threshold)}


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
        support, codes = values.astype(np.float64), np.unique(contexts, return_inverse=True)[1]  # (n,) each
        shift = self.shift
        return units(support, codes, self.estimator, self.seed, self.draws, shift.of(contexts), shift.test_weight)

    def threshold(
        self, values: npt.NDArray[np.floating], contexts: npt.NDArray[np.integer], alpha: Fraction
    ) -> Threshold:
        """The threshold of some values and their contexts, ``(n,)`` each, at a risk level."""
        seen = np.unique(contexts)  # (K,)
        log_tau = self.units(values, contexts).threshold(alpha)
        counted = values.size if self.estimator == "pooled" else seen.size
        rank = conformal_rank(alpha, counted)
        weighted = self.shift.kind == "weights"
        lawful = log_tau > -np.inf and counted == seen.size and not weighted
        low, high = coverage_range(seen.size, rank) if lawful else (None, None)
        return Threshold(
            state="calibrated" if log_tau > -np.inf and not is_weak(log_tau) else "uninformative",
            log_tau=log_tau,
            contexts=int(seen.size),
            values=int(values.size),
            rank=rank,
            coverage_low=low,
            coverage_high=high,
            effective_contexts=self.shift.effective(seen.tolist()) if weighted and seen.size else None,
            needed=minimum_contexts(alpha),
        )
