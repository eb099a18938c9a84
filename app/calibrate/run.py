"""How long a calibration will take: a short trial with some of its own prompts, extrapolated by tokens."""

from __future__ import annotations

import io
import math
import random
import time
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self, TypedDict, cast

import numpy as np

from app.shared.audits import CalibrationRequest
from app.shared.errors import ServiceError
from app.shared.prompt_sets import (
    CalibrationEstimate,
    ParsedPromptSet,
    PromptPreview,
    RowError,
    require_prompts,
    rows_of,
)
from coft_core.calibrate.chains import BATCH_ROWS, record_chains
from coft_core.calibrate.ledger import Entry, Ledger, MemoryLedger
from coft_core.calibrate.run import calibrate, calibrate_factorized, calibrate_single_branch, example_length
from coft_core.calibrate.settings import CalibrationOptions
from coft_core.calibrate.true_tokens import TOKEN_BUDGET
from coft_core.conformal.bins import check_spacing
from coft_core.conformal.drift import LEAST_BASELINE
from coft_core.conformal.families import AnyCalibration, split_alpha
from coft_core.conformal.quantile import exact_alpha, minimum_contexts
from coft_core.conformal.shift import EFFECTIVE_FLOOR, Shift, estimate_density_ratio, weights_by_context
from coft_core.conformal.split import context_numbers
from coft_core.conformal.values import CalibrationValues
from coft_core.errors import LedgerMismatchError
from coft_core.model.forced import Room
from coft_core.model.language_model import LanguageModel
from coft_core.policies.coft import CoftPolicy
from coft_core.policies.factorized import FactorizedCoftPolicy
from coft_core.text.detection import SpanDetector
from coft_core.text.masking import DEFAULT_HINT, MaskMode, check_whitelist, keep_whitelisted
from coft_core.types import Example, Span, in_page_order
from db.jobs import LedgersRepository
from db.prompt_sets import PromptRow

SAVE_SECONDS = 2.0
"""Least time between two saves of one job."""

SAVING_SHARE = 0.05
"""Share of a job's time that may go into saving; what takes long to write is written less often."""


class KeptLedger:
    """The ledgers of a job's stages in memory, saved now and then, and once more when the job ends early.

    Used as a context around the work: they are deleted when the work is done, and saved when it is cancelled or fails.

    Attributes:
        phase: Label of the phase that is at work, as the core calls it.
    """

    def __init__(
        self,
        ledgers: LedgersRepository,
        job_id: int,
        prompt_set_id: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take up what the store has for a job, or begin with nothing.

        Args:
            ledgers: Where it is kept.
            job_id: The job.
            prompt_set_id: The prompt set that the job works on.
            clock: Monotonic seconds.

        Raises:
            LedgerMismatchError: What is stored is damaged, or of another version.
        """
        self._ledgers = ledgers
        self._job_id, self._prompt_set_id = job_id, prompt_set_id
        self._clock = clock
        stored = ledgers.load(job_id)
        self._stages: dict[str, MemoryLedger] = {} if stored is None else _unpacked(stored)
        self._saved = self._size
        self._due = clock() + SAVE_SECONDS
        self.phase = ""

    def stage(self, name: str) -> StageLedger:
        """The ledger of one stage of the work; each stage is bound to its own inputs."""
        return StageLedger(self, self._stages.setdefault(name, MemoryLedger()))

    def save_if_due(self) -> None:
        """Save between two batches, if the last save is long enough ago."""
        if self._clock() < self._due:
            return
        began = self._clock()
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
        """Begin the work."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Delete what was kept after the work, or save it if the work ended early."""
        if error is None:
            self._ledgers.delete(self._job_id)
        else:
            self.save()


class StageLedger:
    """The ledger of one stage, as the core takes it."""

    def __init__(self, kept: KeptLedger, ledger: MemoryLedger) -> None:
        """Made by :meth:`KeptLedger.stage`."""
        self._kept, self._ledger = kept, ledger

    def bind(self, key: str) -> None:
        """Tie the ledger to the inputs that its results depend on."""
        self._ledger.bind(key)

    def get_many(self, phase: str, examples: Sequence[int]) -> dict[int, Entry]:
        """What is known of some examples."""
        self._kept.phase = phase
        return self._ledger.get_many(phase, examples)

    def put_many(self, phase: str, results: Mapping[int, Entry]) -> None:
        """Keep what a batch gave."""
        self._kept.phase = phase
        self._ledger.put_many(phase, results)


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


@dataclass(frozen=True, slots=True)
class ContextWeights:
    """Weight of each context.

    Attributes:
        by_context: Weight by the context's number.
        test_weight: Weight of a new prompt; None takes the largest weight.
        estimated: Whether they were estimated.
    """

    by_context: dict[int, float]
    test_weight: float | None = None
    estimated: bool = False

    def require_effective(self, alpha: float) -> None:
        """Refuse weights under which all contexts together, those kept apart included, are worth too little.

        Raises:
            InvalidInputError: They are; the finished calibration would refuse them.
        """
        shift = Shift.weighted(self.by_context, self.test_weight, self.estimated)
        shift.require_effective(np.array(sorted(self.by_context)), max(EFFECTIVE_FLOOR, minimum_contexts(alpha)))


def asked_weights(rows: Sequence[PromptRow], request: CalibrationRequest) -> ContextWeights | None:
    """The weights that a request asks for; None if it asks for none.

    Raises:
        ServiceError: The rows have no weights.
        InvalidInputError: There are too few prompts to estimate weights, or rows of one context differ in theirs.
    """
    if request.weighting == "none":
        return None
    numbers = context_numbers([row.example for row in rows], request.by_group)
    if request.weighting == "estimated":
        return estimated_weights([row.example.prompt for row in rows], numbers, request.deployment)
    given = [row.weight for row in rows if row.weight is not None]
    if len(given) != len(rows):
        raise ServiceError("The prompt set has no column of weights; add one, or choose other weights.")
    return ContextWeights(weights_by_context(given, numbers))


def estimated_weights(prompts: Sequence[str], contexts: Sequence[int], deployment: Sequence[str]) -> ContextWeights:
    """Estimate how much likelier each context is in the deployment.

    A context of several prompts weighs the mean of their ratios.

    Args:
        prompts: Calibration prompts.
        contexts: Their contexts' numbers.
        deployment: Prompts like those that will be audited; blank ones do not count.

    Raises:
        InvalidInputError: There are too few prompts on either side.
    """
    ratio = estimate_density_ratio(prompts, [prompt for prompt in deployment if prompt.strip()])
    found: defaultdict[int, list[float]] = defaultdict(list)
    for context, weight in zip(contexts, ratio.weights.tolist(), strict=True):
        found[context].append(weight)
    by_context = {context: sum(weights) / len(weights) for context, weights in found.items()}
    return ContextWeights(by_context, ratio.test_weight, estimated=True)


def weighted(calibration: AnyCalibration, weights: ContextWeights) -> AnyCalibration:
    """Thresholds for the prompts that weights speak of.

    Raises:
        InvalidInputError: The weights leave too few effective contexts, with factorized masks for any family.
    """
    return calibration.reweighted(weights.by_context, weights.test_weight, weights.estimated)


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
    if calibration.layout == "joint":
        policy = CoftPolicy(calibration=calibration, **_controls(work.request))
        recorded = record_chains(work.model, examples, policy, *settings)
    else:
        factorized = FactorizedCoftPolicy(calibration=calibration, **_controls(work.request))
        recorded = record_chains(work.model, examples, factorized, *settings)
    return replace(recorded, chosen=_numbered(recorded.chosen, list(dict.fromkeys(numbers[i] for i in chosen))))


def rows_to_record(work: CalibrationWork, calibration: AnyCalibration) -> list[int]:
    """Places of the rows whose chains are recorded."""
    held_out = {int(n) for _, part in calibration.parts for n in np.unique(part.verification.contexts)}
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


NOTHING_MASKED = "nothing is masked here or in any other row, and factorized masks need a family; mark sensitive spans"


def usable_rows(
    prompts: ParsedPromptSet, request: CalibrationRequest, model: LanguageModel
) -> tuple[tuple[PromptRow, ...], tuple[RowError, ...]]:
    """The rows that a calibration can use, and what is wrong with the others, in the order of their lines.

    Args:
        prompts: The prompt set.
        request: What is asked of it.
        model: The model that will read it.

    Raises:
        ServiceError: None of its columns is known to hold the prompts.
    """
    require_prompts(prompts)
    rows, errors = list(rows_of(prompts)), list(prompts.errors)
    for check in (_without_reference, _without_group, _of_another_group, _of_another_weight):
        problems = {problem.line: problem for problem in check(rows, request)}
        errors += problems.values()
        rows = [row for row in rows if row.line not in problems]
    too_long = {problem.line: problem for problem in _too_long(rows, request, model)}
    errors += too_long.values()
    rows = [row for row in rows if row.line not in too_long]
    return tuple(rows), tuple(sorted(errors, key=lambda error: error.line))


def nothing_masked(rows: Iterable[PromptRow], request: CalibrationRequest, detector: SpanDetector) -> bool:
    """Whether factorized masks are asked for and no row has anything masked."""
    if request.mask_layout != "factorized":
        return False
    return not any(span.masked for row in rows for span in spans_of(row.example, request, detector))


def require_maskable(rows: Iterable[PromptRow], request: CalibrationRequest, detector: SpanDetector) -> None:
    """Refuse rows that factorized masks cannot be calibrated on.

    Raises:
        ServiceError: Nothing is masked in any row.
        InvalidInputError: The shares of alpha do not fit the families that are masked.
    """
    rows = tuple(rows)
    if nothing_masked(rows, request, detector):
        raise ServiceError(
            "Nothing is masked in any prompt, so factorized masks have no family to calibrate; mark sensitive spans, "
            "or choose the joint mask."
        )
    if request.alpha_by_family is not None:
        # Found out here, since otherwise only the finished calibration would tell.
        named = {s.category for row in rows for s in spans_of(row.example, request, detector) if s.masked}
        split_alpha(request.alpha, in_page_order(named), dict(request.alpha_by_family))


def spans_of(example: Example, request: CalibrationRequest, detector: SpanDetector) -> tuple[Span, ...]:
    """An example's spans, its own or detected, with what the whitelist keeps marked as kept."""
    found = detector.detect(example.prompt) if example.spans is None else example.spans
    return keep_whitelisted(example.prompt, found, check_whitelist(request.whitelist))


def preview_rows(
    prompts: ParsedPromptSet, request: CalibrationRequest, detector: SpanDetector, limit: int
) -> tuple[PromptPreview, ...]:
    """The first rows with what will be masked, and what the whitelist keeps; mere suggestions are left out."""
    return tuple(
        PromptPreview(
            line=line,
            prompt=example.prompt,
            reference=example.reference,
            spans=tuple(span for span in spans_of(example, request, detector) if not span.suggested),
            detected=example.spans is None,
            group=example.group,
            context=example.context,
        )
        for line, example in prompts.rows[: max(limit, 0)]
    )


def length_of(model: LanguageModel, example: Example, request: CalibrationRequest) -> int:
    """Tokens of a prompt, with its reference where the calibration reads it."""
    return example_length(model, example if request.source == "reference" else replace(example, reference=None))


def _without_reference(rows: list[PromptRow], request: CalibrationRequest) -> Iterator[RowError]:
    if request.source == "reference":
        yield from (RowError(row.line, "reference", "is empty") for row in rows if not row.example.reference)


def _without_group(rows: list[PromptRow], request: CalibrationRequest) -> Iterator[RowError]:
    if request.by_group:
        yield from (RowError(row.line, "group", "is empty") for row in rows if not row.example.group)


def _of_another_group(rows: list[PromptRow], request: CalibrationRequest) -> Iterator[RowError]:
    first: dict[str, PromptRow] = {}
    for row in rows if request.by_group else ():
        if row.example.context is None:
            continue
        other = first.setdefault(row.example.context, row)
        if other.example.group != row.example.group:
            own, theirs = row.example.group, other.example.group
            yield RowError(
                row.line, "group", f"is “{own}”, and line {other.line} of the same context has “{theirs}”; use one"
            )


def _of_another_weight(rows: list[PromptRow], request: CalibrationRequest) -> Iterator[RowError]:
    if request.weighting != "column":
        return
    first: dict[int, PromptRow] = {}
    numbers = context_numbers([row.example for row in rows], request.by_group)
    for row, number in zip(rows, numbers, strict=True):
        other = first.setdefault(number, row)
        if other.weight != row.weight:
            yield RowError(
                row.line,
                "weight",
                f"is {row.weight:g}, and line {other.line} of the same context has {other.weight:g}; use one",
            )


def _too_long(rows: list[PromptRow], request: CalibrationRequest, model: LanguageModel) -> Iterator[RowError]:
    # A rollout needs room for the first token that it writes.
    largest = model.context_length - (request.source == "rollout")
    for row in rows:
        if (length := length_of(model, row.example, request)) > largest:
            yield RowError(row.line, "prompt", f"has {length:,} tokens, the model takes {largest:,}")


LOOKING_SECONDS = 1.0
"""Time for looking at what is masked; where it does not suffice for all prompts, the estimate says how many it saw."""

TRIAL_SECONDS = 1.0
"""Time for running the model on so many prompts as it allows, after a first run that is always slow."""

LARGEST_TRIAL = 32
"""Prompts of a trial on references at most."""

BRANCHES = 2
FEWEST, WHOLE_BATCH = 2, BATCH_ROWS // BRANCHES
"""Prompts of a small trial of rollouts, and of a whole batch with two branches."""

TRIAL_STEPS = 4
"""Steps that a trial of rollouts takes beyond the first."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What prompts have masked, as far as they were looked at.

    Attributes:
        looked_at: Their number.
        rows: Those in which something is masked.
        families: The families that are masked in them.
    """

    looked_at: int
    rows: tuple[PromptRow, ...]
    families: tuple[str, ...]

    @property
    def share(self) -> float:
        """Share of them in which something is masked."""
        return len(self.rows) / max(self.looked_at, 1)


class Trial:
    """A calibration's work, tried on a few of its prompts."""

    def __init__(self, work: CalibrationWork, clock: Callable[[], float] = time.perf_counter) -> None:
        """Prepare a trial.

        Args:
            work: The work as it would be done.
            clock: Seconds.
        """
        self._work = work
        self._clock = clock
        self._lengths = {row.line: length_of(work.model, row.example, work.request) for row in work.rows}
        self._look = self._looked()
        # Factorized masks leave out what has nothing masked.
        taking_part, share = (self._look.rows, self._look.share) if self._factorized else (work.rows, 1.0)
        self._sorted = sorted(taking_part, key=lambda row: self._lengths[row.line])
        self._share = share
        self._tried = 0

    def estimate(self) -> CalibrationEstimate:
        """Try and extrapolate.

        Raises:
            CoftError: The calibration would be refused.
        """
        rows, request = self._work.rows, self._work.request
        seconds = self._seconds() if self._sorted else 0.0
        return CalibrationEstimate(
            prompts=len(rows),
            contexts=len(set(context_numbers([row.example for row in rows], request.by_group))),
            needed=_needed(request, self._look.families),
            tried=self._tried,
            seconds=seconds,
            unmasked=self._look.looked_at - len(self._look.rows),
            looked_at=None if self._look.looked_at == len(rows) else self._look.looked_at,
        )

    @property
    def _factorized(self) -> bool:
        return self._work.request.mask_layout == "factorized"

    def _looked(self) -> _Look:
        work, began, looked = self._work, self._clock(), 0
        rows: list[PromptRow] = []
        families: set[str] = set()
        # In any order, so that a sorted file is not judged by its beginning.
        for row in random.Random(0).sample(work.rows, len(work.rows)):
            masked = {span.category for span in spans_of(row.example, work.request, work.detector) if span.masked}
            looked += 1
            families |= masked
            rows += [row] if masked else []
            if self._clock() - began > LOOKING_SECONDS:
                break
        return _Look(looked, tuple(rows), in_page_order(families))

    def _seconds(self) -> float:
        work = self._work
        if work.request.source == "rollout":
            return self._rollout_seconds(len(work.rows))
        recording = self._rollout_seconds(work.prompts_to_record) if work.request.record_chains else 0.0
        return self._reference_seconds() + recording

    def _reference_seconds(self) -> float:
        request = self._request()
        total = self._tokens(self._sorted) * (len(self._work.rows) * self._share / len(self._sorted))
        shortest = self._sorted[:1]
        self._timed(shortest, request)
        short, few = self._timed(shortest, request), self._tokens(shortest)
        # Two trials of different sizes tell what a batch costs from what its tokens cost.
        more = self._spread(self._affordable(short / few))
        longer, many = self._timed(more, request), self._tokens(more)
        if many <= few:
            return longer / many * total
        a_token = max((longer - short) / (many - few), 0.0)
        a_batch = max(short - a_token * few, 0.0)
        batches = math.ceil(total * BRANCHES / TOKEN_BUDGET)
        return batches * a_batch + total * a_token

    def _affordable(self, a_token: float) -> int:
        """Prompts whose trial fits the time if tokens are all that costs; at least one, of medium length."""
        size = min(LARGEST_TRIAL, len(self._sorted))
        while size > 1 and a_token * self._tokens(self._spread(size)) > TRIAL_SECONDS:
            size //= 2
        return size

    def _rollout_seconds(self, prompts: int) -> float:
        steps = self._work.request.max_new_tokens
        first = replace(self._request(source="rollout"), max_new_tokens=1)
        self._timed(self._sorted[:1], first)
        few = self._spread(FEWEST)
        read_few = self._timed(few, first)
        quick = read_few < TRIAL_SECONDS / 4
        many = self._spread(WHOLE_BATCH if quick else 2 * FEWEST)
        read_many = self._timed(many, first)
        further = min(TRIAL_STEPS if quick else 1, steps - 1)
        longer = self._timed(many, replace(first, max_new_tokens=1 + further)) if further else read_many
        a_step = max(longer - read_many, 0.0) / max(further, 1)
        # A step costs a small model the same for a whole batch as for a few prompts; reading tells how far that holds.
        a_prompt = max(read_many - read_few, 0.0) / max(len(many) - len(few), 1)
        a_batch = max(read_many - a_prompt * len(many), 0.0)
        to_whole = (a_batch + a_prompt * WHOLE_BATCH) / read_many if read_many and a_batch + a_prompt else 1.0
        longer_prompts = self._tokens(self._sorted) / len(self._sorted) / (self._tokens(many) / len(many))
        batches = prompts * self._share / WHOLE_BATCH
        return batches * to_whole * (read_many * longer_prompts + (steps - 1) * a_step)

    def _tokens(self, rows: Sequence[PromptRow]) -> int:
        return sum(self._lengths[row.line] for row in rows)

    def _request(self, **changes: str) -> CalibrationRequest:
        """The request without what only makes sense for all prompts."""
        plain = replace(
            self._work.request,
            weighting="none",
            rho=1.0,
            by_group=False,
            alpha_by_family=None,
            record_chains=False,
            max_iterations=1,
            verification_share=0.0,
        )
        return replace(plain, **changes)  # type: ignore[arg-type]

    def _spread(self, size: int) -> list[PromptRow]:
        """So many rows, spread over the lengths."""
        count = len(self._sorted)
        places = sorted({(2 * i + 1) * count // (2 * size) for i in range(size)}) if size < count else range(count)
        return [self._sorted[place] for place in places]

    def _timed(self, rows: Sequence[PromptRow], request: CalibrationRequest) -> float:
        self._tried = max(self._tried, len(rows))
        began = self._clock()
        calibrated(replace(self._work, rows=tuple(rows), request=request))
        return self._clock() - began


def _needed(request: CalibrationRequest, families: Sequence[str]) -> int:
    """Contexts that alpha needs at least; with factorized masks, the most that any family's share needs."""
    shift = Shift.bounded(request.rho)
    if request.mask_layout == "joint" or not families:
        return minimum_contexts(shift.level(exact_alpha(request.alpha)))
    shares = None if request.alpha_by_family is None else dict(request.alpha_by_family)
    levels = split_alpha(request.alpha, families, shares).values()
    return max(minimum_contexts(shift.level(exact_alpha(level))) for level in levels)
