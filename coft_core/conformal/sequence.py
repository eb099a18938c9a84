"""Certificates for whole chains: the sequence score, and the union bound beside it (paper, App. "Beyond Tokens").

The paper's score is ``S = max_t s_t``; in log space its mirror is ``M = min_t m_t``, the least supported token of a
chain. A chain that was cut short says nothing of the tokens it would still have had, so a threshold is for a *horizon*
and rests on chains that reach it or end by themselves before it. Chains cut short are left out if none ended by itself.
Otherwise that would favour short chains, which are cut less often, and they count as chains that miss every threshold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from coft_core.conformal.bins import PositionBins
from coft_core.conformal.coverage import CoverageRow
from coft_core.conformal.informative import TOO_WEAK, is_weak
from coft_core.conformal.quantile import exact_alpha, minimum_contexts
from coft_core.conformal.rule import Rule, Threshold
from coft_core.conformal.values import UNKNOWN, CalibrationValues, draw_one_per_context
from coft_core.errors import InvalidInputError

HORIZON_SHARE = Fraction(9, 10)
"""Share of the contexts that must reach a horizon, or end before it, where none is asked for."""


@dataclass(frozen=True, slots=True)
class ChainLengths:
    """The law of lengths that a threshold for whole chains rests on."""

    reached: int = 0
    ended: int = 0
    cut: int = 0
    shortest: int = 0
    median: float = 0.0
    longest: int = 0
    known: bool = True


UNKNOWN_ENDS = (
    "This calibration was saved by an earlier version, which did not note how its chains ended, so nothing is said of "
    "whole chains; calibrate again."
)


@dataclass(frozen=True, slots=True)
class SequenceThreshold(Threshold):
    """Threshold for the least supported token of a chain that reaches the horizon, or ends by itself before it."""

    alpha: float
    horizon: int
    lengths: ChainLengths = ChainLengths()

    @property
    def applies(self) -> str:
        """Which chains it speaks of."""
        return chains_of(self.horizon, self.lengths.ended > 0)

    @property
    def reason(self) -> str:
        """Why there is no threshold that says anything; empty where there is one."""
        if self.state == "calibrated":
            return ""
        if not self.lengths.known:
            return UNKNOWN_ENDS
        if is_weak(self.log_tau):
            return f"Of whole chains, {TOO_WEAK}: it is {self.tau:.1g}, and nearly every chain passes."
        return f"{self.contexts} contexts with {self.applies} are too few for a threshold of whole chains."


@dataclass(frozen=True, slots=True, eq=False)
class WholeChains:
    """The chains of some values, and which of them a horizon can be read off."""

    minima: npt.NDArray[np.float64]
    contexts: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int64]
    ended: npt.NDArray[np.int8]
    usable: npt.NDArray[np.bool_]
    counted: npt.NDArray[np.bool_]
    starts: npt.NDArray[np.intp]

    def law(self, horizon: int) -> ChainLengths:
        """The law of lengths of the usable chains."""
        counted = np.minimum(self.lengths[self.usable], horizon)  # (U,)
        reached = int((counted >= horizon).sum())
        return ChainLengths(
            reached=reached,
            ended=int(counted.size) - reached,
            cut=int((~self.usable).sum()),
            shortest=int(counted.min()) if counted.size else 0,
            median=float(np.median(counted)) if counted.size else 0.0,
            longest=int(counted.max()) if counted.size else 0,
            known=bool((self.ended != UNKNOWN).all()),
        )


def whole_chains(values: CalibrationValues, horizon: int | None = None) -> WholeChains:
    """The chains of some values, counted up to a horizon."""
    if horizon is not None and horizon < 1:
        raise InvalidInputError(f"The horizon is {horizon}; count at least one step.")
    starts = np.flatnonzero(np.diff(values.sequences, prepend=-1))  # (S,)
    counted = values.values.astype(np.float64)  # (n,)
    if horizon is not None:
        counted = np.where(values.steps < horizon, counted, 0.0)
    last = np.append(starts[1:], len(values))[: starts.size] - 1  # (S,)
    lengths, ended = values.steps[last].astype(np.int64) + 1, values.ends[last]  # (S,) each
    minima = np.minimum.reduceat(counted, starts) if starts.size else np.empty(0)  # (S,)
    known = ended != UNKNOWN  # (S,)
    usable = np.ones(starts.size, dtype=bool) if horizon is None else known & ((lengths >= horizon) | (ended == 1))
    missed = known & ~usable & bool((usable & (ended == 1)).any())  # (S,)
    return WholeChains(
        minima=np.where(missed, -math.inf, minima),
        contexts=values.contexts[starts],
        lengths=lengths,
        ended=ended,
        usable=usable,
        counted=usable | missed,
        starts=starts,
    )


def usual_horizon(values: CalibrationValues) -> int:
    """The longest horizon that nine contexts in ten reach, or end before; chosen by lengths, not by values."""
    chains = whole_chains(values)
    if not chains.lengths.size:
        return 0
    longest = int(chains.lengths.max())
    codes = np.unique(chains.contexts, return_inverse=True)[1]  # (S,)
    reach = np.zeros(int(codes.max()) + 1, dtype=np.int64)  # (K,)
    np.maximum.at(reach, codes, np.where(chains.ended == 1, longest, chains.lengths))
    needed = math.ceil(HORIZON_SHARE * reach.size)
    return int(np.sort(reach)[reach.size - needed])


def sequence_threshold(
    values: CalibrationValues, alpha: float | Fraction, rule: Rule | None = None, horizon: int | None = None
) -> SequenceThreshold:
    """Calibrate the sequence score on the contexts whose chain reaches a horizon, or ends by itself before it."""
    risk = exact_alpha(alpha)
    counted_steps = usual_horizon(values) if horizon is None else horizon
    chains = whole_chains(values, max(counted_steps, 1) if horizon is None else horizon)
    threshold = (rule or Rule()).threshold(chains.minima[chains.counted], chains.contexts[chains.counted], risk)
    return SequenceThreshold(float(risk), counted_steps, chains.law(max(counted_steps, 1)), **threshold.rests_on)


def chains_of(horizon: int, ended: bool) -> str:
    """Which chains a horizon is of, in words."""
    many = "1 step" if horizon == 1 else f"{horizon} steps"
    return f"chains that reach {many}" + (" or end by themselves before" if ended else "")


def why_silent(sequence: SequenceThreshold, steps: int, finished: str | None) -> str:
    """Why a threshold for whole chains says nothing of a chain; empty where it speaks of it."""
    if sequence.reason:
        return sequence.reason
    if steps > sequence.horizon:
        return f"The chain has {_counted(steps)}, and the certificate of whole chains is for {sequence.applies}."
    if steps == sequence.horizon:
        return ""
    if finished == "end" and sequence.lengths.ended:
        return ""
    stopped = {
        "end": "ended by itself after {}, as none did that the certificate rests on",
        "context": "was cut at {}, where the model’s context is full",
    }.get(finished or "", "has {} and has not ended")
    return f"The chain {stopped.format(_counted(steps))}: the certificate of whole chains is for {sequence.applies}."


def _counted(steps: int) -> str:
    return "1 step" if steps == 1 else f"{steps} steps"


@dataclass(frozen=True, slots=True)
class UnionBound:
    """What per-step thresholds say of a whole chain, however dependent its steps are (paper, Theorem 4)."""

    steps: int
    charged: int
    alpha: float
    level: float
    alpha_needed: float
    contexts_needed: int


def union_bound(
    alpha: float | Fraction, steps: int, positions: PositionBins | None = None, values: CalibrationValues | None = None
) -> UnionBound:
    """The conservative bound ``1 - T * alpha`` for a chain of T steps."""
    risk = exact_alpha(alpha)
    if steps < 1:
        raise InvalidInputError(f"The chain has {steps} steps; a bound is for at least one.")
    charged = steps
    if positions is not None:
        last = positions.bin_of(steps - 1)
        most = _largest_context(values, positions) or list(positions.widths)
        beyond = steps - positions.first_step(last)
        charged = max(sum(most[:last]) + max(most[last], beyond), steps)
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
    seen, counts = np.unique(cells, return_counts=True)
    largest = np.zeros(positions.count, dtype=np.int64)
    np.maximum.at(largest, seen // (int(codes.max()) + 1), counts)
    return [int(size) for size in largest]


SHORTEST_CLASS = 8
"""Chains of up to this many steps make the first class of lengths; every further class is twice as long."""


@dataclass(frozen=True, slots=True)
class ChainCoverage:
    """Coverage of whole chains on the verification split, over contexts."""

    overall: CoverageRow
    lengths: tuple[CoverageRow, ...]


def chain_coverage(
    verification: CalibrationValues,
    threshold: SequenceThreshold,
    alpha: float | Fraction,
    seed: int = 0,
) -> ChainCoverage:
    """Measure how many whole chains a threshold keeps."""
    generator = np.random.default_rng([seed, 2])
    risk = float(alpha)
    if threshold.log_tau == -math.inf or not len(verification):
        return ChainCoverage(CoverageRow.measured("Whole chains", 0, 0, risk), ())
    chains = whole_chains(verification, threshold.horizon)
    so_far = np.where(verification.steps < threshold.horizon, verification.values, 0.0)  # (n,)
    kept = np.minimum.reduceat(so_far, chains.starts) >= threshold.log_tau  # (S,), as far as the chain goes

    def row(label: str, chosen: npt.NDArray[np.bool_]) -> CoverageRow:
        codes = np.unique(chains.contexts[chosen], return_inverse=True)[1]
        drawn = draw_one_per_context(codes, (chains.starts[chosen], chains.lengths[chosen]), generator)
        return CoverageRow.measured(label, int(kept[chosen][drawn].sum()), drawn.size, risk)

    rows = [row(label, chosen) for label, chosen in _classes(chains, threshold.horizon)]
    return ChainCoverage(row("Whole chains", chains.usable), tuple(coverage for coverage in rows if coverage.contexts))


def _classes(chains: WholeChains, horizon: int) -> list[tuple[str, npt.NDArray[np.bool_]]]:
    """Label and members of every class of lengths."""
    shorter = chains.lengths < horizon  # (S,)
    bounds = [(1, SHORTEST_CLASS)]
    while bounds[-1][1] < horizon - 1:
        bounds.append((bounds[-1][1] + 1, 2 * bounds[-1][1]))
    classes: list[tuple[str, npt.NDArray[np.bool_]]] = []
    for kind, members in (("ended", shorter & chains.usable), ("cut short", shorter & ~chains.usable)):
        for first, last in bounds:
            inside = members & (chains.lengths >= first) & (chains.lengths <= last)
            classes.append((f"{first}–{min(last, horizon - 1)} steps, {kind}", inside))
    place = len(bounds)
    return [*classes[:place], (f"{horizon} steps, the horizon", ~shorter), *classes[place:]]
