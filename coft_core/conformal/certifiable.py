"""What can be certified with the contexts at hand: the smallest risk level that they support."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from coft_core.conformal.bins import PositionBins, units_by_bin
from coft_core.conformal.quantile import Estimator, level_at_least, units
from coft_core.conformal.sequence import whole_chains
from coft_core.conformal.shift import Shift
from coft_core.conformal.values import CalibrationValues


@dataclass(frozen=True, slots=True)
class BinSupport:
    """What one position bin supports.

    Attributes:
        label: The bin's steps as pages count them.
        contexts: Contexts with a value in it.
        smallest_alpha: Smallest risk level with a threshold; None where no level below 1 has one.
    """

    label: str
    contexts: int
    smallest_alpha: float | None


@dataclass(frozen=True, slots=True)
class Certifiable:
    """The smallest risk levels that a calibration supports; at any smaller one everything passes.

    Attributes:
        contexts: Number of contexts of the calibration.
        overall: Smallest level at which any bin has a threshold of its own; None if there is none.
        everywhere: Smallest level at which every bin with data has one; None if there is none.
        sequence: Smallest level of the certificate for whole chains; None if there is none.
        bins: The bins that have data, in order.
    """

    contexts: int
    overall: float | None
    everywhere: float | None
    sequence: float | None
    bins: tuple[BinSupport, ...]

    @property
    def sentence(self) -> str:
        """The answer in words."""
        if self.overall is None:
            return "Nothing can be certified with this: there are no contexts with a supported true token."
        where = "" if self.everywhere is None else f", and {self.everywhere:.3g} in every bin that has data"
        return f"With {self.contexts} contexts the smallest alpha is {self.overall:.3g}{where}."


def certifiable(
    values: CalibrationValues,
    estimator: Estimator,
    positions: PositionBins,
    shift: Shift,
    seed: int,
    draws: int,
    horizon: int,
) -> Certifiable:
    """Find the smallest risk levels that values support, exactly.

    Args:
        values: Values of the calibration contexts.
        estimator: Threshold estimator.
        positions: Position bins.
        shift: What is assumed of new prompts; a bound ``rho`` multiplies every level.
        seed: Seed of the draws of ``one_per_context``.
        draws: Number of draws that are averaged.
        horizon: Steps of a chain that the certificate for whole chains counts.
    """
    factor = 1 / shift.level(Fraction(1))
    weights = shift.of(values.contexts)
    by_bin = units_by_bin(values.values, values.steps, values.contexts, estimator, positions, seed, draws, weights)
    found = tuple(
        BinSupport(
            positions.label(index),
            group.contexts,
            level_at_least(factor * group.units.smallest_alpha(shift.test_weight)),
        )
        for index, group in enumerate(by_bin)
        if group.values
    )
    whole = whole_chains(values, max(horizon, 1))
    contexts = whole.contexts[whole.counted]  # (U,)
    codes = np.unique(contexts, return_inverse=True)[1]  # (U,)
    chains = units(whole.minima[whole.counted], codes, estimator, seed, draws, shift.of(contexts))
    known = [entry.smallest_alpha for entry in found if entry.smallest_alpha is not None]
    return Certifiable(
        contexts=values.context_count,
        overall=min(known, default=None),
        everywhere=max(known) if known and len(known) == len(found) else None,
        sequence=level_at_least(factor * chains.smallest_alpha(shift.test_weight)),
        bins=found,
    )
