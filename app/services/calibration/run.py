"""A calibration's work from its prompts to the finished calibration: the one place that asks the core for one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypedDict, cast

import numpy as np

from app.services.calibration.shift import asked_weights, weighted
from app.services.calibration.store import AnyCalibration, parts_of
from app.services.prompts.files import PromptRow
from app.services.views import CalibrationRequest, Example
from coft_core.calibrating import calibrate, calibrate_factorized, record_chains
from coft_core.calibrating.single import calibrate_single_branch
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.drift import LEAST_BASELINE
from coft_core.conformal.ledger import Ledger
from coft_core.conformal.options import CalibrationOptions
from coft_core.conformal.split import context_numbers
from coft_core.conformal.stepwise import check_spacing
from coft_core.conformal.values import CalibrationValues
from coft_core.engine.model import LanguageModel
from coft_core.engine.room import Room
from coft_core.masking.masker import DEFAULT_HINT, MaskMode
from coft_core.masking.spans import SpanDetector
from coft_core.policies import CoftPolicy, FactorizedCoftPolicy

Progress = Callable[[int, int], None]

CHARACTERS_A_TOKEN = 4
COST_OF_WRITING = 4
"""A token written one by one takes about so many times as long as one that is read with many others."""


class _Controls(TypedDict):
    """What a policy is made of beside its calibration."""

    lam: float
    temperature: float
    top_p: float
    top_k: int
    sentinel: str | None
    mask_mode: MaskMode
    mask_hint: str
    whitelist: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CalibrationWork:
    """What a calibration is made of.

    Attributes:
        model: The model.
        detector: Finds spans where a row has none.
        rows: The usable rows.
        request: What is asked of them.
        room: Where the memory of its batches is taken from; None takes it without asking.
    """

    model: LanguageModel
    detector: SpanDetector
    rows: tuple[PromptRow, ...]
    request: CalibrationRequest
    room: Room | None = None

    @property
    def examples(self) -> list[Example]:
        """The rows' examples."""
        return [row.example for row in self.rows]

    @property
    def contexts(self) -> list[int]:
        """The rows' contexts, numbered as in the calibration."""
        return context_numbers(self.examples, self.request.by_group)

    @property
    def records_chains(self) -> bool:
        """Whether chains are written after calibrating; a calibration on rollouts has them already."""
        return self.request.record_chains and self.request.source == "reference"

    @property
    def prompts_to_record(self) -> int:
        """About how many prompts' chains are recorded; which ones is known when the contexts are split."""
        held_out = int(self.request.verification_share * len(set(self.contexts)))
        return round(self.request.verification_share * len(self.rows)) if held_out >= LEAST_BASELINE else len(self.rows)

    @property
    def share_of_calibrating(self) -> float:
        """About which share of the whole work is done when chains begin to be recorded; 1 without chains."""
        if not self.records_chains:
            return 1.0
        read = sum(len(e.prompt) + len(e.reference or "") for e in self.examples) / CHARACTERS_A_TOKEN
        written = self.prompts_to_record * self.request.max_new_tokens * COST_OF_WRITING
        return read / (read + written)


def calibrated(work: CalibrationWork, progress: Progress | None = None, ledger: Ledger | None = None) -> AnyCalibration:
    """Calibrate as asked, weights and bounds of a shift included.

    Args:
        work: The work.
        progress: Called after each batch with prompts done and prompts in all.
        ledger: Keeps what is worked out, and gives what is known.

    Raises:
        ServiceError: Weights are asked of rows without weights.
        CoftError: A prompt or a setting cannot be used, or the weights leave too few contexts.
    """
    request = work.request
    weights = asked_weights(work.rows, request)
    if weights is not None:
        # Refused before the model runs; the contexts that thresholds rest on are checked once they are known.
        weights.require_effective(request.alpha)
    made = _made(work, _options(work, progress, ledger))
    if weights is not None:
        return weighted(made, weights)
    return made if request.rho == 1 else made.read(rho=request.rho)


def with_chains(
    work: CalibrationWork, calibration: AnyCalibration, progress: Progress | None = None, ledger: Ledger | None = None
) -> AnyCalibration:
    """Record what the calibrated policy writes on the prompts that measure drift best.

    These are the prompts kept apart, which no threshold was read off, where they are enough; else all.

    Args:
        work: The work.
        calibration: The finished calibration.
        progress: Called after each batch with prompts done and prompts in all.
        ledger: Keeps the chains, and gives those that are known.
    """
    chosen = rows_to_record(work, calibration)
    numbers = work.contexts
    # A context is named in every row, since rows of one group are no single context where there are groups.
    examples = [replace(work.rows[i].example, group=None, context=str(numbers[i])) for i in chosen]
    settings = (work.request.max_new_tokens, work.request.seed, work.detector, progress, ledger, work.room)
    recorded: AnyCalibration
    if isinstance(calibration, Calibration):
        policy = CoftPolicy(calibration=calibration, **_controls(work.request))
        recorded = record_chains(work.model, examples, policy, *settings)
    else:
        factorized = FactorizedCoftPolicy(calibration=calibration, **_controls(work.request))
        recorded = record_chains(work.model, examples, factorized, *settings)
    return replace(recorded, chosen=_numbered(recorded.chosen, list(dict.fromkeys(numbers[i] for i in chosen))))


def rows_to_record(work: CalibrationWork, calibration: AnyCalibration) -> list[int]:
    """Places of the rows whose chains are recorded."""
    held_out = {int(n) for part in parts_of(calibration) for n in np.unique(part.verification.contexts)}
    everything = range(len(work.rows))
    if len(held_out) < LEAST_BASELINE:
        return list(everything)
    numbers = work.contexts
    return [i for i in everything if numbers[i] in held_out]


def _made(work: CalibrationWork, options: CalibrationOptions) -> AnyCalibration:
    request = work.request
    if request.certified_in == "factual":
        return calibrate_single_branch(work.model, work.examples, request.alpha, request.estimator, **options)
    common = (request.alpha, request.estimator, request.source)
    if request.mask_layout == "joint":
        return calibrate(work.model, work.examples, request.lam, *common, **options)
    shares = None if request.alpha_by_family is None else dict(request.alpha_by_family)
    return calibrate_factorized(work.model, work.examples, (request.lam,), *common, shares, **options)[0]


def _options(work: CalibrationWork, progress: Progress | None, ledger: Ledger | None) -> CalibrationOptions:
    request = work.request
    return {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        "sentinel": request.sentinel or None,
        "mask_mode": cast(MaskMode, request.mask_mode),
        "mask_hint": _hint(request),
        "whitelist": request.whitelist,
        "bin_width": request.bin_width,
        "max_position": request.max_position,
        "bin_spacing": check_spacing(request.bin_spacing),
        "verification_share": request.verification_share,
        "seed": request.seed,
        "detector": work.detector,
        "progress": progress,
        "name": request.name,
        "draws": request.draws,
        "by_group": request.by_group,
        "ledger": ledger,
        "max_new_tokens": request.max_new_tokens,
        "tolerance": request.tolerance,
        "max_iterations": request.max_iterations,
        "room": work.room,
    }


def _controls(request: CalibrationRequest) -> _Controls:
    """The controls of the policy that the calibration is for."""
    return {
        "lam": request.lam,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        "sentinel": request.sentinel or None,
        "mask_mode": cast(MaskMode, request.mask_mode),
        "mask_hint": _hint(request),
        "whitelist": request.whitelist,
    }


def _hint(request: CalibrationRequest) -> str:
    return (request.mask_hint or "").strip() or DEFAULT_HINT


def _numbered(chosen: CalibrationValues, numbers: list[int]) -> CalibrationValues:
    """Values of contexts 0, 1, ... under the numbers that their contexts have in the calibration."""
    if not len(chosen):
        return chosen
    return replace(chosen, contexts=np.array(numbers, dtype=np.int32)[chosen.contexts])
