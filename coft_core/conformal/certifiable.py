"""What can be certified with the contexts at hand: the smallest risk level that they support."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from coft_core.conformal.bins import PositionBins, rows_by_bin
from coft_core.conformal.quantile import level_at_least
from coft_core.conformal.rule import Rule
from coft_core.conformal.sequence import whole_chains
from coft_core.conformal.values import CalibrationValues


@dataclass(frozen=True, slots=True)
class BinSupport:
    """What one position bin supports."""

    label: str
    contexts: int
    smallest_alpha: float | None


@dataclass(frozen=True, slots=True)
class Certifiable:
    """The smallest risk levels that a calibration supports; at any smaller one everything passes."""

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


def certifiable(values: CalibrationValues, rule: Rule, positions: PositionBins, horizon: int) -> Certifiable:
    """Find the smallest risk levels that values support, exactly."""

    def smallest(rule: Rule, values: npt.NDArray[np.floating], contexts: npt.NDArray[np.integer]) -> float | None:
        return level_at_least(rule.units(values, contexts).smallest_alpha() / rule.shift.level(Fraction(1)))

    bins = tuple(
        BinSupport(
            positions.label(index),
            int(np.unique(values.contexts[rows]).size),
            smallest(own_rule, values.values[rows], values.contexts[rows]),
        )
        for index, (rows, own_rule) in enumerate(rows_by_bin(values.steps, rule, positions))
        if rows.size
    )
    whole = whole_chains(values, max(horizon, 1))
    known = [entry.smallest_alpha for entry in bins if entry.smallest_alpha is not None]
    return Certifiable(
        contexts=values.context_count,
        overall=min(known, default=None),
        everywhere=(min if positions.spacing == "finest" else max)(known) if len(known) == len(bins) > 0 else None,
        sequence=smallest(rule, whole.minima[whole.counted], whole.contexts[whole.counted]),
        bins=bins,
    )
