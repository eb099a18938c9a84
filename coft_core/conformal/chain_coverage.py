"""How many whole chains of contexts kept apart a threshold for whole chains keeps, overall and by length."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from coft_core.conformal.contexts import draw_one_per_context
from coft_core.conformal.coverage import CoverageRow, clopper_pearson
from coft_core.conformal.sequence import SequenceThreshold, WholeChains, whole_chains
from coft_core.conformal.values import CalibrationValues

SHORTEST_CLASS = 8
"""Chains of up to this many steps make the first class of lengths; every further class is twice as long."""


@dataclass(frozen=True, slots=True)
class ChainCoverage:
    """Coverage of whole chains on the verification split, over contexts.

    Attributes:
        overall: The chains that the threshold speaks of, one of each context.
        lengths: The chains of each length, one of each context, counted up to the horizon: those that end by themselves
            before it, those that reach it, then those that were cut short before it. The threshold promises nothing for
            one length alone, and nothing at all for chains that were cut short.
        level: Probability of the intervals.
    """

    overall: CoverageRow
    lengths: tuple[CoverageRow, ...]
    level: float = 0.95

    @property
    def sentence(self) -> str:
        """The overall measurement in words; empty where nothing was measured."""
        row = self.overall
        if row.coverage is None:
            return ""
        return (
            f"On {row.contexts} contexts not used for calibration, {row.kept} whole chains were kept: coverage "
            f"{row.coverage:.3f} ({self.level:.0%} interval {row.low:.3f} to {row.high:.3f}), asked for "
            f"{1 - row.alpha:g}."
        )


def chain_coverage(
    verification: CalibrationValues,
    threshold: SequenceThreshold,
    alpha: float | Fraction,
    seed: int = 0,
    level: float = 0.95,
) -> ChainCoverage:
    """Measure how many whole chains a threshold keeps.

    Args:
        verification: Values of contexts kept apart.
        threshold: The threshold; one that keeps every chain is not measured.
        alpha: Risk level at which it was read.
        seed: Seed of the draws of one chain of each context.
        level: Probability of the exact intervals.
    """
    generator = np.random.default_rng([seed, 2])
    risk = float(alpha)
    if threshold.log_tau == -math.inf or not len(verification):
        return ChainCoverage(CoverageRow("Whole chains", 0, 0, risk, None, None, None), (), level)
    chains = whole_chains(verification, threshold.horizon)
    so_far = np.where(verification.steps < threshold.horizon, verification.values, 0.0)  # (n,)
    kept = np.minimum.reduceat(so_far, chains.starts) >= threshold.log_tau  # (S,), as far as the chain goes

    def row(label: str, chosen: npt.NDArray[np.bool_]) -> CoverageRow:
        contexts = chains.contexts[chosen]
        if not contexts.size:
            return CoverageRow(label, 0, 0, risk, None, None, None)
        codes = np.unique(contexts, return_inverse=True)[1]
        drawn = draw_one_per_context(codes, (chains.starts[chosen], chains.lengths[chosen]), generator)
        good = int(kept[chosen][drawn].sum())
        low, high = clopper_pearson(good, drawn.size, level)
        return CoverageRow(label, int(drawn.size), good, risk, good / drawn.size, low, high)

    rows = [row(label, chosen) for label, chosen in _classes(chains, threshold.horizon)]
    return ChainCoverage(row("Whole chains", chains.usable), tuple(own for own in rows if own.contexts), level)


def _classes(chains: WholeChains, horizon: int) -> list[tuple[str, npt.NDArray[np.bool_]]]:
    """Label and members of every class of lengths."""
    shorter = chains.lengths < horizon  # (S,)
    bounds = [(1, SHORTEST_CLASS)]
    while bounds[-1][1] < horizon - 1:
        bounds.append((bounds[-1][1] + 1, 2 * bounds[-1][1]))
    found: list[tuple[str, npt.NDArray[np.bool_]]] = []
    for kind, members in (("ended", shorter & chains.usable), ("cut short", shorter & ~chains.usable)):
        for first, last in bounds:
            inside = members & (chains.lengths >= first) & (chains.lengths <= last)
            found.append((f"{first}–{min(last, horizon - 1)} steps, {kind}", inside))
    place = len(bounds)
    return [*found[:place], (f"{horizon} steps, the horizon", ~shorter), *found[place:]]
