"""Coverage measured on contexts that the calibration has not seen, with exact intervals over contexts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv

from coft_core.conformal.bins import Bin, PositionBins, steps_label
from coft_core.conformal.quantile import check_alpha, check_level, check_seed, minimum_contexts
from coft_core.conformal.values import CalibrationValues, draw_one_per_context
from coft_core.errors import InvalidInputError

INTERVAL_LEVEL = 0.95
"""Probability of the intervals."""

WIDEST_INTERVAL = 0.2
"""An interval wider than this is too wide to agree with any level."""

CoverageVerdict = Literal["not measured", "too few", "agrees", "above", "below"]
"""What a measured coverage says of the level asked for; see :attr:`CoverageRow.verdict`."""


@dataclass(frozen=True, slots=True)
class CoverageRow:
    """Coverage over independent contexts, one step of each."""

    label: str
    contexts: int
    kept: int
    alpha: float
    coverage: float | None
    low: float | None
    high: float | None
    among: int = 1

    @classmethod
    def measured(cls, label: str, kept: int, contexts: int, alpha: float, among: int = 1) -> Self:
        """What a number of kept contexts says."""
        if contexts == 0:
            return cls(label, 0, 0, alpha, None, None, None, among)
        low, high = clopper_pearson(kept, contexts, INTERVAL_LEVEL)
        return cls(label, contexts, kept, alpha, kept / contexts, low, high, among)

    @property
    def agrees(self) -> bool:
        """Whether the measurement leaves room for coverage of ``1 - alpha``; False without a measurement."""
        return self.contexts > 0 and self._judged[1] >= 1 - self.alpha

    @property
    def _judged(self) -> tuple[float, float]:
        return clopper_pearson(self.kept, self.contexts, 1 - (1 - INTERVAL_LEVEL) / self.among)

    @property
    def verdict(self) -> CoverageVerdict:
        """The measurement in a word, judged among all rows that are judged together.

        ``too few``: no threshold could be set with so few, or the interval is wider than :data:`WIDEST_INTERVAL`.
        ``above`` keeps the promise and is cautious.
        """
        if self.low is None or self.high is None:
            return "not measured"
        if not self.agrees:
            return "below"
        if self.contexts < minimum_contexts(self.alpha) or self.high - self.low > WIDEST_INTERVAL:
            return "too few"
        return "above" if self._judged[0] > 1 - self.alpha else "agrees"


@dataclass(frozen=True, slots=True)
class CoverageReport(CoverageRow):
    """Coverage on the verification split: over all steps, by bin and at each step."""

    bins: tuple[CoverageRow, ...] = ()
    steps: tuple[CoverageRow, ...] = ()


def clopper_pearson(k: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """Exact binomial confidence interval of ``k`` successes in ``n`` trials (Clopper and Pearson 1934)."""
    if n < 1 or not 0 <= k <= n:
        raise InvalidInputError(
            f"{k} of {n} is no count of successes; give at least one trial, and 0 to {n} successes."
        )
    tail = (1 - check_level(level)) / 2
    low = float(betaincinv(k, n - k + 1, tail)) if k else 0.0
    high = float(betaincinv(k + 1, n - k, 1 - tail)) if k < n else 1.0
    return low, high


def coverage_report(
    verification: CalibrationValues,
    bins: Sequence[Bin],
    positions: PositionBins,
    alpha: float | Fraction,
    seed: int = 0,
) -> CoverageReport:
    """Measure the coverage of thresholds on contexts kept apart; each row counts one step of each context."""
    log_tau = np.array([entry.log_tau for entry in bins])  # (B,)
    kept = verification.values >= log_tau[positions.bins_of(verification.steps)]  # (n,)
    order = (verification.steps, verification.values)
    return kept_report(kept, verification.contexts, order, positions, alpha, seed)


def kept_report(
    kept: npt.NDArray[np.bool_],
    contexts: npt.NDArray[np.integer],
    order: tuple[npt.NDArray[Any], npt.NDArray[Any]],
    positions: PositionBins,
    alpha: float | Fraction,
    seed: int = 0,
) -> CoverageReport:
    """Measure coverage where it is known which true tokens were certified."""
    risk = check_alpha(alpha)
    streams = np.random.default_rng(check_seed(seed)).spawn(1 + positions.count)
    reached, starts = np.unique(np.sort(order[0]), return_index=True)  # (S,)
    by_step = np.split(np.argsort(order[0], kind="stable"), starts[1:]) if reached.size else []
    later = np.random.default_rng([check_seed(seed), 1]).spawn(reached.size)
    bin_of_row = positions.bins_of(order[0])  # (n,)

    def drawn(rows: npt.NDArray[Any], generator: np.random.Generator) -> tuple[int, int]:
        """Contexts that are kept, and all, at one step of each."""
        codes = np.unique(contexts[rows], return_inverse=True)[1]
        chosen = draw_one_per_context(codes, (order[0][rows], order[1][rows]), generator)
        return int(kept[rows][chosen].sum()), chosen.size

    bins = (
        CoverageRow.measured(positions.label(i), *drawn(bin_of_row == i, streams[1 + i]), risk, positions.count)
        for i in range(positions.count)
    )
    steps = (
        CoverageRow.measured(steps_label(step, step), *drawn(rows, stream), risk, reached.size)
        for step, rows, stream in zip(reached.tolist(), by_step, later, strict=True)
    )
    overall = CoverageReport.measured("All steps", *drawn(np.ones(kept.size, dtype=bool), streams[0]), risk)
    return replace(overall, bins=tuple(bins), steps=tuple(steps))
