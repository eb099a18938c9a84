"""How a calibration came about: the reading in force while chains were generated, and the rounds of a rollout."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypedDict

from coft_core.conformal.bins import BinSpacing, PositionBins
from coft_core.errors import CalibrationFormatError

OTHER_THRESHOLDS = (
    "The chains were generated under other thresholds than these, so the level is approximate; "
    "calibrate again with these settings for an exact one."
)


@dataclass(frozen=True, slots=True)
class Reading:
    """How thresholds are read off a calibration's values; another reading of the same values gives other thresholds."""

    alpha: float
    estimator: str
    bin_width: int
    max_position: int
    draws: int = 1
    rho: float = 1.0
    bin_spacing: BinSpacing = "widening"

    @property
    def bin_words(self) -> str:
        """The bins in words, such as ``1, 2, 3-4, 5-8, then 8 steps`` (with en dashes)."""
        if self.bin_spacing == "finest":
            return "each step"
        positions = PositionBins(self.bin_width, self.max_position, self.bin_spacing)
        first = [positions.label(index) for index, start in enumerate(positions.starts[1:]) if start <= self.bin_width]
        return ", ".join([*first, f"then {self.bin_width} steps"]) if len(first) > 1 else f"{self.bin_width} steps"


class ReadingChanges(TypedDict, total=False):
    """Another reading of the same values."""

    alpha: float | None
    estimator: str | None
    bin_width: int | None
    max_position: int | None
    draws: int | None
    rho: float | None
    bin_spacing: str | None


@dataclass(frozen=True, slots=True)
class Iteration:
    """One round of a rollout calibration: chains of fresh contexts under the thresholds of the round before."""

    contexts: int
    values: int
    change: float
    kept: int
    consistent: bool
    final: bool


def is_settled(iteration: Iteration, tolerance: float) -> bool:
    """Whether a round left the thresholds that generated it as they were."""
    return iteration.change <= tolerance and iteration.consistent


@dataclass(frozen=True, slots=True)
class ChainRecord:
    """Chains of the deployed policy that a calibration rests on, or that its drift is measured against."""

    reading: Reading
    max_new_tokens: int
    tolerance: float | None = None
    iterations: tuple[Iteration, ...] = ()

    @property
    def settled(self) -> bool:
        """Whether the last round changed no bin's tau by more than the tolerance, at the coverage asked for.

        A small change alone proves little where taus are small: the thresholds in force must also have certified the
        share of fresh true tokens that alpha asks for.
        """
        if self.tolerance is None or not self.iterations:
            return False
        return is_settled(self.iterations[-1], self.tolerance)

    @property
    def sentence(self) -> str:
        """How the iteration ended."""
        if self.tolerance is None or not self.iterations:
            return "The thresholds were not iterated; chains were generated to measure drift against."
        last, rounds = self.iterations[-1], len(self.iterations)
        measured = (
            f"changed a bin's tau by {last.change:.2g} (allowed: {self.tolerance:g}), and the thresholds before it "
            f"certified {last.kept} of {last.contexts} fresh true tokens"
        )
        if self.settled:
            return f"The thresholds settled: the last of {rounds} rounds {measured}."
        return (
            f"The thresholds did not settle before the budget of {rounds} rounds ended: the last {measured}; "
            "give more prompts, or rely on the measured coverage."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionary; JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ChainRecord:
        """Rebuild from :meth:`to_dict`."""
        try:
            record = cls(
                # What was written before bins could widen was read in even ones.
                reading=Reading(**dict[str, Any](bin_spacing="even") | data["reading"]),
                max_new_tokens=int(data["max_new_tokens"]),
                tolerance=None if data["tolerance"] is None else float(data["tolerance"]),
                iterations=tuple(Iteration(**entry) for entry in data["iterations"]),
            )
            if any(math.isnan(entry.change) for entry in record.iterations):
                raise ValueError("a change is NaN")
        except (KeyError, TypeError, ValueError) as error:
            raise CalibrationFormatError(f"The calibration's record of its chains is damaged ({error}).") from error
        return record
