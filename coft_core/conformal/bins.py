"""One threshold per bin of positions (paper Sec. 3.4: "we share thresholds across short position bins")."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from coft_core.conformal.informative import is_weak, silence
from coft_core.conformal.quantile import exact_alpha, is_whole, one_of
from coft_core.conformal.rule import Rule, Threshold
from coft_core.conformal.shift import Shift
from coft_core.errors import InvalidInputError
from coft_core.types import BinState

BinSpacing = Literal["finest", "widening", "even"]
"""Which steps share a bin; see :class:`PositionBins`."""

BIN_SPACINGS: tuple[BinSpacing, ...] = get_args(BinSpacing)
"""The spacings' names, first the one that a new calibration has by default."""


def check_spacing(spacing: str) -> BinSpacing:
    """Return ``spacing`` if it is one of :data:`BIN_SPACINGS`."""
    return one_of(BIN_SPACINGS, spacing, "spacing of the bins")


USUAL_WIDTH = 8
"""Steps per bin, as in the paper."""


def check_width(width: int, spacing: str) -> None:
    """Refuse a width that somebody chose where each step has its own bin."""
    if spacing == "finest" and width != USUAL_WIDTH:
        raise InvalidInputError(
            f"Bins of {width} steps need the spacing widening or even; with finest each step has its own bin."
        )


MOST_STEPS = 1 << 20
"""Steps that bins can tell apart: more than any model's context, and few enough to be listed."""


@dataclass(frozen=True, slots=True)
class PositionBins:
    """Steps grouped into bins, the last without an end; a threshold bounds the average miss over its bin's steps."""

    width: int = USUAL_WIDTH
    maximum: int = 256
    spacing: BinSpacing = "widening"
    starts: tuple[int, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse sizes below 1 and unknown spacings."""
        for name, size in (("width", self.width), ("maximum position", self.maximum)):
            if not is_whole(size, 1) or size > MOST_STEPS:
                raise InvalidInputError(
                    f"The bins' {name} is {size!r}; choose a whole number, 1 or larger and at most {MOST_STEPS:,}."
                )
        starts = set(range(0, self.maximum, 1 if check_spacing(self.spacing) == "finest" else self.width))
        if self.spacing == "widening":
            first = min(self.width, self.maximum)
            starts |= {1 << power for power in range(first.bit_length()) if 1 << power < first}
        object.__setattr__(self, "starts", tuple(sorted(starts)))

    @property
    def count(self) -> int:
        """Number of bins."""
        return len(self.starts)

    @property
    def widths(self) -> tuple[int, ...]:
        """Steps of each bin; of the last, which has no end, the usual width."""
        last = 1 if self.spacing == "finest" else self.width
        return (*(after - before for before, after in pairwise(self.starts)), last)

    def within(
        self,
        steps: npt.NDArray[np.integer],
        contexts: npt.NDArray[np.integer],
        alpha: Fraction,
        shift: Shift | None = None,
    ) -> PositionBins:
        """With ``finest``, the bins up to the last step that enough contexts reach, whatever their values."""
        if self.spacing != "finest":
            return self
        shift = shift or Shift()
        pairs = np.unique(np.stack([steps, contexts]).astype(np.intp), axis=1)  # (2, p)
        weight = np.bincount(pairs[0], shift.of(pairs[1]))  # (S,)
        enough = np.flatnonzero(weight >= float(1 / alpha - 1) * shift.test_weight)
        return replace(self, maximum=min(self.maximum, int(enough[-1]) + 1 if enough.size else 1))

    def bin_of(self, step: int) -> int:
        """Bin of a step (0-based)."""
        if step < 0:
            raise InvalidInputError(f"The step is {step}; steps are counted from 0.")
        # Traced where a step is compiled, which rules out bisect.
        return sum(start <= step for start in self.starts) - 1

    def bins_of(self, steps: npt.NDArray[np.integer]) -> npt.NDArray[np.intp]:
        """Bins of many steps, ``(n,)`` to ``(n,)``; steps are 0-based and not negative."""
        places: npt.NDArray[np.intp] = np.searchsorted(self.starts, steps, side="right") - 1
        return places

    def first_step(self, index: int) -> int:
        """First step of a bin, 0-based."""
        return self.starts[self._checked(index)]

    def last_step(self, index: int) -> int | None:
        """Last step of a bin, 0-based and inclusive; None for the last bin, which has no end."""
        return None if self._checked(index) == self.count - 1 else self.starts[index + 1] - 1

    def label(self, index: int) -> str:
        """The bin's steps as pages count them: ``1``, ``9-16`` (with an en dash), ``249 and later`` for the last."""
        return steps_label(self.first_step(index), self.last_step(index))

    def _checked(self, index: int) -> int:
        if not 0 <= index < self.count:
            raise InvalidInputError(f"There is no bin {index}; the bins are numbered 0 to {self.count - 1}.")
        return index


@dataclass(frozen=True, slots=True)
class BinEvenness:
    """What the contexts say of the steps of one bin."""

    label: str
    steps: int
    contexts: int
    p: float
    level: float

    @property
    def uneven(self) -> bool:
        """Whether the steps differ beyond noise."""
        return self.p <= self.level


@dataclass(frozen=True, slots=True)
class Bin(Threshold):
    """A position bin's threshold; steps count from 0, and the last bin has no last step."""

    index: int
    first_step: int
    last_step: int | None
    inherited_from: str | None = None
    evenness: BinEvenness | None = None

    @property
    def label(self) -> str:
        """The bin's steps as pages count them, from 1."""
        return steps_label(self.first_step, self.last_step)

    @property
    def silence(self) -> str:
        """Why an uninformative bin says nothing; empty for another one."""
        return silence(self.log_tau) if self.state == "uninformative" else ""


def stepwise_bins(
    values: npt.NDArray[np.floating],
    steps: npt.NDArray[np.integer],
    contexts: npt.NDArray[np.integer],
    alpha: float | Fraction,
    rule: Rule | None = None,
    positions: PositionBins | None = None,
) -> tuple[Bin, ...]:
    """Calibrate every position bin on its own values.

    A bin without data borrows from the nearest calibrated bin, the earlier of two; one with too little data never does.
    """
    positions, risk = positions or PositionBins(), exact_alpha(alpha)
    bins = []
    for index, (rows, own_rule) in enumerate(rows_by_bin(steps, rule or Rule(), positions)):
        threshold = own_rule.threshold(values[rows], contexts[rows], risk)
        bins.append(Bin(index, positions.first_step(index), positions.last_step(index), **threshold.rests_on))
    return tuple(_lend(bins, entry) for entry in bins)


def rows_by_bin(
    steps: npt.NDArray[np.integer], rule: Rule, positions: PositionBins
) -> Iterator[tuple[npt.NDArray[np.intp], Rule]]:
    """Rows of each bin in their order, and the rule with draws of the bin's own."""
    bin_of_row = positions.bins_of(steps)  # (n,)
    order = np.argsort(bin_of_row, kind="stable")  # (n,)
    ends = np.cumsum(np.bincount(bin_of_row, minlength=positions.count))  # (B,)
    seeds = np.random.SeedSequence(rule.seed).generate_state(positions.count)  # (B,)
    for rows, seed in zip(np.split(order, ends[:-1]), seeds.tolist(), strict=True):
        yield rows, replace(rule, seed=seed)


def _lend(bins: list[Bin], borrower: Bin) -> Bin:
    lenders = [entry for entry in bins if entry.values and entry.log_tau > -math.inf]
    if borrower.values or not lenders:
        return borrower
    # min keeps the first of equals, and bins are in order: the earlier neighbour wins a tie.
    lender = min(lenders, key=lambda entry: abs(entry.index - borrower.index))
    state: BinState = "uninformative" if is_weak(lender.log_tau) else "inherited"
    return replace(borrower, state=state, log_tau=lender.log_tau, inherited_from=lender.label)


def steps_label(first: int, last: int | None) -> str:
    """Steps as pages count them, from 1: ``3`` or ``9-16`` (with an en dash), or ``249 and later``."""
    if last is None:
        return f"{first + 1} and later"
    return f"{first + 1}" if first == last else f"{first + 1}\u2013{last + 1}"


EVENNESS_LEVEL = 0.05
"""Probability, over all bins of a calibration together, of marking any whose steps are alike."""


def bin_evenness(
    kept: npt.NDArray[np.bool_],
    contexts: npt.NDArray[np.integer],
    steps: npt.NDArray[np.integer],
    positions: PositionBins,
) -> tuple[BinEvenness, ...]:
    """Compare the steps of each bin, contexts being the clusters.

    A context gives, for each step, by how much its true tokens there were certified more often than over all its steps
    in the bin. If the steps are alike, these have mean 0, and the score statistic ``t' (sum d d')^+ t`` with ``t = sum
    d`` is chi-squared (Cochran's Q with the covariance taken from the contexts; cautious for few contexts).
    """
    of_bin = positions.bins_of(steps)  # (n,)
    evenness = []
    for index in np.unique(of_bin).tolist():
        rows = of_bin == index
        deviations = _deviations(kept[rows], contexts[rows], steps[rows])  # (K, S)
        if len(deviations):
            evenness.append((positions.label(index), *deviations.shape[::-1], _p_value(deviations)))
    level = EVENNESS_LEVEL / max(len(evenness), 1)
    return tuple(BinEvenness(label, size, count, p, level) for label, size, count, p in evenness)


def _deviations(
    kept: npt.NDArray[np.bool_], contexts: npt.NDArray[np.integer], steps: npt.NDArray[np.integer]
) -> npt.NDArray[np.float64]:
    """For each context that tells something, its kept tokens by step less those that all its steps would give it."""
    number, context_of = np.unique(contexts, return_inverse=True)
    place, column = np.unique(steps, return_inverse=True)
    cells = context_of * place.size + column  # (n,)
    shape = (number.size, place.size)
    counts = np.bincount(cells, minlength=number.size * place.size).reshape(shape)  # (K, S)
    hits = np.bincount(cells, kept, minlength=number.size * place.size).reshape(shape)  # (K, S)
    rate = hits.sum(1, keepdims=True) / counts.sum(1, keepdims=True)  # (K, 1)
    telling = ((rate > 0) & (rate < 1))[:, 0] & ((counts > 0).sum(1) > 1)
    deviations: npt.NDArray[np.float64] = (hits - counts * rate)[telling]
    return deviations


def _p_value(deviations: npt.NDArray[np.float64]) -> float:
    total = deviations.sum(0)  # (S,)
    scatter = deviations.T @ deviations  # (S, S)
    rank = int(np.linalg.matrix_rank(scatter, hermitian=True))
    statistic = total @ np.linalg.pinv(scatter, hermitian=True) @ total
    return float(chi2.sf(statistic, rank)) if rank else 1.0
