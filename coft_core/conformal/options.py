"""How a calibration came about: the reading in force while chains were generated, and the iterations of a rollout."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypedDict

from coft_core.conformal.bins import BinSpacing, PositionBins
from coft_core.conformal.ledger import Ledger
from coft_core.conformal.quantile import check_draws, check_seed
from coft_core.conformal.split import check_share
from coft_core.errors import CalibrationFormatError, InvalidInputError
from coft_core.model.forced import Room
from coft_core.text.detection import SpanDetector, default_detector
from coft_core.text.masking import DEFAULT_HINT, MaskLayout, MaskMode, MaskSettings
from coft_core.types import Sampling

OTHER_THRESHOLDS = (
    "The chains were generated under other thresholds than these, so the level is approximate; "
    "calibrate again with these settings for an exact one."
)


@dataclass(frozen=True, slots=True)
class Reading:
    """How thresholds are read off a calibration's values; another reading of the same values gives other thresholds.

    Attributes:
        alpha: Risk level.
        estimator: Threshold estimator.
        bin_width: Steps per position bin.
        max_position: Steps with bins of their own.
        draws: Draws of ``one_per_context`` that are averaged.
        rho: Density-ratio bound; 1 without.
        bin_spacing: How the first steps are grouped; see :class:`coft_core.conformal.bins.PositionBins`.
    """

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
        positions = PositionBins(self.bin_width, self.max_position, self.bin_spacing)
        first = [positions.label(index) for index, start in enumerate(positions.starts[1:]) if start <= self.bin_width]
        return ", ".join([*first, f"then {self.bin_width} steps"]) if len(first) > 1 else f"{self.bin_width} steps"


@dataclass(frozen=True, slots=True)
class Iteration:
    """One round of a rollout calibration: chains of fresh contexts under the thresholds of the round before.

    Attributes:
        contexts: Fresh contexts that were rolled out.
        values: True next tokens that they gave.
        change: Largest change of any bin's ``tau`` (a probability) against the thresholds that generated the chains.
        kept: Contexts whose drawn true token these thresholds certified: at the fixed point, a share of 1 - alpha.
        consistent: Whether the exact interval of that share contains 1 - alpha.
        final: True for the round whose values are the calibration's.
    """

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
    """Chains of the deployed policy that a calibration rests on, or that its drift is measured against.

    Attributes:
        reading: The reading whose thresholds the deployed policy uses; another reading was not rolled out.
        max_new_tokens: Steps of a chain at most.
        tolerance: Largest change of any bin's tau that counts as settled; None where nothing was iterated.
        iterations: The rounds, in order; empty where nothing was iterated.
    """

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
        """Rebuild from :meth:`to_dict`.

        Raises:
            CalibrationFormatError: A field is missing or unknown, or a number is none.
        """
        try:
            record = cls(
                # What was written before bins could widen was read in even ones.
                reading=Reading(**{"bin_spacing": "even", **data["reading"]}),
                max_new_tokens=int(data["max_new_tokens"]),
                tolerance=None if data["tolerance"] is None else float(data["tolerance"]),
                iterations=tuple(Iteration(**entry) for entry in data["iterations"]),
            )
            if any(math.isnan(entry.change) for entry in record.iterations):
                raise ValueError("a change is NaN")
        except (KeyError, TypeError, ValueError) as error:
            raise CalibrationFormatError(f"The calibration's record of its chains is damaged ({error}).") from error
        return record


Progress = Callable[[int, int], None]
"""Called with (examples done, examples in all); raising from it ends the calibration."""


class CalibrationOptions(TypedDict, total=False):
    """Options of a calibration; what is left out has the default of :class:`CalibrationSettings`.

    Attributes:
        temperature: Temperature of the policy that will use the thresholds.
        top_p: Its nucleus mass.
        top_k: Its number of tokens kept.
        sentinel: Its sentinel; None takes the tokenizer's own.
        mask_mode: Its mask mode.
        mask_hint: Hint of its soft mask.
        families: Attribute families that it masks; None is all.
        whitelist: Terms that it never masks; what an example keeps is added.
        bin_width: Steps that share a threshold.
        bin_spacing: ``"widening"``: the first steps have bins of their own, 1, 2, 3-4, 5-8, before those of
            ``bin_width``; ``"even"``: all bins have that width, as in the paper.
        max_position: Steps beyond are tied to the last bin.
        verification_share: Share of the contexts kept apart to measure coverage.
        seed: Seed of the split, of ``one_per_context`` and of rollouts.
        detector: Finds spans where an example has none; the default one if None.
        progress: Called after each batch with (examples done, examples in all).
        name: Name of the calibration.
        batch_size: Examples of one batch at most; None leaves it to their lengths.
        draws: Draws of ``one_per_context`` that are averaged.
        by_group: Keep each context's group, for thresholds by group.
        ledger: Keeps what each example gave. Given again with the same inputs, what it holds is not computed again:
            thresholds are those of a run without interruption, exactly where whole batches were done.
        max_new_tokens: Steps of a rollout at most; references have their own length.
        tolerance: Rollouts are iterated on fresh contexts until no bin's tau (a probability) changes by more.
        max_iterations: Rounds of rollouts at most; fewer where alpha needs more contexts than that leaves to each.
        room: Where the memory of batches is taken from, if the device is shared; None takes it without asking.
    """

    temperature: float
    top_p: float
    top_k: int
    sentinel: str | None
    mask_mode: MaskMode
    mask_hint: str
    families: tuple[str, ...] | None
    whitelist: tuple[str, ...]
    bin_width: int
    bin_spacing: BinSpacing
    max_position: int
    verification_share: float
    seed: int
    detector: SpanDetector | None
    progress: Progress | None
    name: str
    batch_size: int | None
    draws: int
    by_group: bool
    ledger: Ledger | None
    max_new_tokens: int
    tolerance: float
    max_iterations: int
    room: Room | None


@dataclass(frozen=True, slots=True)
class CalibrationSettings:
    """The options with their defaults; see :class:`CalibrationOptions`.

    Raises:
        InvalidInputError: One is outside its range.
    """

    temperature: float = 1.0
    top_p: float = 0.9
    top_k: int = 0
    sentinel: str | None = None
    mask_mode: MaskMode = "hard"
    mask_hint: str = DEFAULT_HINT
    families: tuple[str, ...] | None = None
    whitelist: tuple[str, ...] = ()
    bin_width: int = 8
    bin_spacing: BinSpacing = "widening"
    max_position: int = 256
    verification_share: float = 0.25
    seed: int = 0
    detector: SpanDetector | None = None
    progress: Progress | None = None
    name: str = ""
    batch_size: int | None = None
    draws: int = 1
    by_group: bool = False
    ledger: Ledger | None = None
    max_new_tokens: int = 64
    tolerance: float = 0.01
    max_iterations: int = 4
    room: Room | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be calibrated with, before any model runs."""
        _ = self.sampling, self.mask("joint"), PositionBins(self.bin_width, self.max_position, self.bin_spacing)
        check_share(self.verification_share)
        check_seed(self.seed)
        check_draws(self.draws)
        if self.max_new_tokens < 1:
            raise InvalidInputError(f"The number of steps is {self.max_new_tokens}; ask for at least one.")
        if not self.tolerance >= 0:
            raise InvalidInputError(f"The tolerance is {self.tolerance}; choose 0 or more, for example 0.01.")
        if self.max_iterations < 1:
            raise InvalidInputError(f"The number of rounds is {self.max_iterations}; allow at least one.")
        if self.batch_size is not None and self.batch_size < 1:
            raise InvalidInputError(f"The batch size is {self.batch_size}; choose 1 or larger, or none.")

    @property
    def sampling(self) -> Sampling:
        """Sampling controls of the policy that will use the thresholds."""
        return Sampling(self.temperature, self.top_p, self.top_k)

    @property
    def spans(self) -> SpanDetector:
        """What finds spans where an example has none."""
        return self.detector or default_detector()

    def mask(self, layout: MaskLayout) -> MaskSettings:
        """How that policy masks spans."""
        return MaskSettings(self.mask_mode, self.mask_hint, self.sentinel, self.families, layout, self.whitelist)
