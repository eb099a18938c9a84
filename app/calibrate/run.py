"""The work of a calibration: weights for other prompts, thresholds, recorded chains, and what is kept on the way."""

from __future__ import annotations

import io
import time
import zipfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

import numpy as np

from app.shared.audits import CalibrationRequest
from app.shared.errors import ServiceError
from app.shared.planning import controls_of
from coft_core.calibrate.chains import record_chains
from coft_core.calibrate.ledger import Ledger, MemoryLedger
from coft_core.calibrate.run import calibrate, calibrate_factorized, calibrate_single_branch
from coft_core.conformal.bins import check_spacing
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.drift import LEAST_BASELINE
from coft_core.conformal.quantile import minimum_contexts
from coft_core.conformal.shift import EFFECTIVE_FLOOR, Shift, estimate_density_ratio, weights_by_context
from coft_core.conformal.split import context_numbers
from coft_core.errors import LedgerMismatchError
from coft_core.model.forced import Room
from coft_core.model.language_model import LanguageModel
from coft_core.policies.coft import CoftPolicy
from coft_core.policies.factorized import FactorizedCoftPolicy
from coft_core.text.detection import SpanDetector
from coft_core.types import Example
from db.jobs import LedgersRepository
from db.prompt_sets import PromptRow

NO_WEIGHTS = "The prompt set has no column of weights; add one, or choose other weights."


def asked_weights(rows: Sequence[PromptRow], request: CalibrationRequest) -> Shift | None:
    """The weights of contexts that a request asks for; None if it asks for none."""
    if request.weighting == "none":
        return None
    numbers = context_numbers([row.example for row in rows], request.by_group)
    if request.weighting == "estimated":
        return estimated_weights([row.example.prompt for row in rows], numbers, request.deployment)
    weights = [row.weight for row in rows if row.weight is not None]
    if len(weights) != len(rows):
        raise ServiceError(NO_WEIGHTS)
    return Shift.weighted(weights_by_context(weights, numbers))


def estimated_weights(prompts: Sequence[str], contexts: Sequence[int], deployment: Sequence[str]) -> Shift:
    """Estimate how much likelier each context is in the deployment: the mean ratio of its prompts."""
    ratio = estimate_density_ratio(prompts, [prompt for prompt in deployment if prompt.strip()])
    weights: defaultdict[int, list[float]] = defaultdict(list)
    for context, weight in zip(contexts, ratio.weights.tolist(), strict=True):
        weights[context].append(weight)
    by_context = {context: sum(ratios) / len(ratios) for context, ratios in weights.items()}
    return Shift.weighted(by_context, ratio.test_weight, estimated=True)


Progress = Callable[[int, int], None]

CHARACTERS_A_TOKEN = 4
COST_OF_WRITING = 4
"""A token written one by one takes about so many times as long as one that is read with many others."""


@dataclass(frozen=True, slots=True)
class CalibrationWork:
    """What a calibration is made of."""

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


def calibrated(work: CalibrationWork, progress: Progress | None = None, ledger: Ledger | None = None) -> Calibration:
    """Calibrate as asked, weights and bounds of a shift included; progress is told prompts done, and prompts in all."""
    request = work.request
    shift = asked_weights(work.rows, request)
    if shift is not None:
        # Refused before the model runs; the contexts that thresholds rest on are checked once they are known.
        shift.require_effective(np.array(shift.contexts), max(EFFECTIVE_FLOOR, minimum_contexts(request.alpha)))
    calibration = _calibrated(work, progress, ledger)
    if shift is not None:
        return calibration.under(shift)
    return calibration if request.rho == 1 else calibration.read(rho=request.rho)


def with_chains(
    work: CalibrationWork, calibration: Calibration, progress: Progress | None = None, ledger: Ledger | None = None
) -> Calibration:
    """Record what the calibrated policy writes on the prompts that measure drift best.

    These are the prompts kept apart, which no threshold was read off, where they are enough; else all.
    """
    chosen, numbers = rows_to_record(work, calibration), work.contexts
    # A context is named in every row, since rows of one group are no single context where there are groups.
    examples = [replace(work.rows[i].example, group=None, context=str(numbers[i])) for i in chosen]
    request = work.request
    kind: Any = CoftPolicy if calibration.layout == "joint" else FactorizedCoftPolicy
    policy = kind(calibration=calibration, lam=request.lam, **controls_of(request))
    recorded = record_chains(
        work.model, examples, policy, request.max_new_tokens, request.seed, work.detector, progress, ledger, work.room
    )
    written = recorded.chosen
    if len(written):
        # The core numbers the contexts of these rows again; here they have the numbers of the calibration.
        contexts = np.array(list(dict.fromkeys(numbers[i] for i in chosen)), dtype=np.int32)
        written = replace(written, contexts=contexts[written.contexts])
    return replace(recorded, chosen=written)


def rows_to_record(work: CalibrationWork, calibration: Calibration) -> list[int]:
    """Places of the rows whose chains are recorded."""
    held_out = {int(n) for _, part in calibration.parts for n in np.unique(part.verification.contexts)}
    everything = range(len(work.rows))
    if len(held_out) < LEAST_BASELINE:
        return list(everything)
    numbers = work.contexts
    return [i for i in everything if numbers[i] in held_out]


def _calibrated(work: CalibrationWork, progress: Progress | None, ledger: Ledger | None) -> Calibration:
    """The calibration without weights or bounds of a shift."""
    request = work.request
    options: dict[str, Any] = {
        **controls_of(request),
        **{name: getattr(request, name) for name in OPTIONS},
        "bin_spacing": check_spacing(request.bin_spacing),
        "detector": work.detector,
        "progress": progress,
        "ledger": ledger,
        "room": work.room,
    }
    if request.certified_in == "factual":
        return calibrate_single_branch(work.model, work.examples, request.alpha, request.estimator, **options)
    common = (request.alpha, request.estimator, request.source)
    if request.mask_layout == "joint":
        return calibrate(work.model, work.examples, request.lam, *common, **options)
    shares = None if request.alpha_by_family is None else dict(request.alpha_by_family)
    return calibrate_factorized(work.model, work.examples, (request.lam,), *common, shares, **options)[0]


OPTIONS = (
    "name", "bin_width", "max_position", "verification_share", "seed", "draws", "by_group", "max_new_tokens",
    "tolerance", "max_iterations",
)  # fmt: skip
"""Options of the core that a request names alike."""


SAVE_SECONDS = 2.0
"""Least time between two saves of one job."""

SAVING_SHARE = 0.05
"""Share of a job's time that may go into saving; what takes long to write is written less often."""


class KeptLedger:
    """The ledgers of a job's stages in memory, saved now and then, and once more when the job ends early.

    Used as a context around the work: they are deleted when the work is done, and saved when it is cancelled or fails.
    """

    def __init__(
        self,
        ledgers: LedgersRepository,
        job_id: int,
        prompt_set_id: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledgers = ledgers
        self._job_id, self._prompt_set_id = job_id, prompt_set_id
        self._clock = clock
        stored = ledgers.load(job_id)
        self._stages: dict[str, MemoryLedger] = {} if stored is None else _unpacked(stored)
        self._saved = self._size
        self._due = clock() + SAVE_SECONDS
        self._at_work = MemoryLedger()

    def stage(self, name: str) -> MemoryLedger:
        """The ledger of the stage that begins; each stage is bound to its own inputs."""
        self._at_work = self._stages.setdefault(name, MemoryLedger())
        return self._at_work

    @property
    def phase(self) -> str:
        """The phase of the stage that is at work."""
        return self._at_work.phase

    def save_if_due(self) -> None:
        """Save between two batches, if the last save is long enough ago."""
        began = self._clock()
        if began >= self._due:
            self.save()
            ended = self._clock()
            self._due = ended + max(SAVE_SECONDS, (ended - began) / SAVING_SHARE)

    def save(self) -> None:
        """Save what is new, whole or not at all."""
        if self._size != self._saved:
            self._ledgers.save(self._job_id, self._prompt_set_id, _packed(self._stages))
            self._saved = self._size

    @property
    def _size(self) -> int:
        return sum(len(ledger) for ledger in self._stages.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._ledgers.delete(self._job_id)
        else:
            self.save()


def _packed(stages: Mapping[str, MemoryLedger]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, ledger in stages.items():
            archive.writestr(name, ledger.to_bytes())
    return buffer.getvalue()


def _unpacked(data: bytes) -> dict[str, MemoryLedger]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {name: MemoryLedger.from_bytes(archive.read(name)) for name in archive.namelist()}
    except zipfile.BadZipFile as error:
        raise LedgerMismatchError(
            "What was worked out so far is damaged; start a new calibration from the beginning."
        ) from error
