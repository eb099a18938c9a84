"""The options of a calibration, checked before any model runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coft_core.calibrate.ledger import Ledger
from coft_core.conformal.bins import BinSpacing, PositionBins, check_width
from coft_core.conformal.quantile import check_draws, check_seed
from coft_core.conformal.split import check_share
from coft_core.errors import InvalidInputError
from coft_core.model.forced import Room
from coft_core.text.detection import SpanDetector, default_detector
from coft_core.text.masking import DEFAULT_HINT, MaskLayout, MaskMode, MaskSettings
from coft_core.types import Sampling

Progress = Callable[[int, int], None]
"""Called with (examples done, examples in all); raising from it ends the calibration."""


def counted(progress: Progress | None, total: int) -> Callable[[int], None]:
    """Turn counts of finished batches into (done, total)."""
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress:
            progress(done, total)

    return advance


@dataclass(frozen=True, slots=True)
class CalibrationOptions:
    """Options of a calibration.

    Attributes:
        temperature: Temperature of the policy that will use the thresholds.
        top_p: Its nucleus mass.
        top_k: Its number of tokens kept.
        sentinel: Its sentinel; None takes the tokenizer's own.
        mask_mode: Its mask mode.
        mask_hint: Hint of its soft mask.
        families: Attribute families that it masks; None is all.
        whitelist: Terms that it never masks; what an example keeps is added.
        bin_width: Steps that share a threshold, for the spacings ``"widening"`` and ``"even"``.
        bin_spacing: ``"finest"``: each step that enough contexts reach; ``"widening"``: 1, 2, 3-4, 5-8, then
            ``bin_width``; ``"even"``: ``bin_width`` throughout, as in the paper.
        max_position: Steps beyond are tied to the last bin.
        verification_share: Share of the contexts kept apart to measure coverage.
        seed: Seed of the split, of ``one_per_context`` and of rollouts.
        detector: Finds spans where an example has none; the default one if None.
        progress: Called after each batch with (examples done, examples in all).
        name: Name of the calibration.
        batch_size: Examples of one batch at most; None leaves it to their lengths.
        draws: Draws of ``one_per_context`` that are averaged.
        by_group: Keep each context's group, for thresholds by group.
        ledger: Keeps what each example gave, so that a run can be resumed.
        max_new_tokens: Steps of a rollout at most; references have their own length.
        tolerance: Rollouts are repeated on fresh contexts until no bin's tau (a probability) changes by more.
        max_iterations: Rounds of rollouts at most; fewer where alpha needs more contexts than that leaves to each.
        room: Where the memory of batches is taken from, if the device is shared.
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
    bin_spacing: BinSpacing = "finest"
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
        check_width(self.bin_width, self.bin_spacing)
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
