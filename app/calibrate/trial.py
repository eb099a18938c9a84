"""Before a calibration: which rows of a prompt set it can use, how they will be masked, and how long it will take."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from app.calibrate.run import CalibrationWork, calibrated
from app.prompts.sets import ParsedPromptSet, PromptPreview, RowError, require_prompts, rows_of
from app.shared.audits import CalibrationRequest
from app.shared.errors import ServiceError
from coft_core.calibrate.chains import BATCH_ROWS
from coft_core.calibrate.run import example_length
from coft_core.calibrate.true_tokens import TOKEN_BUDGET
from coft_core.conformal.calibration import split_alpha
from coft_core.conformal.quantile import exact_alpha, minimum_contexts
from coft_core.conformal.shift import Shift
from coft_core.conformal.split import context_numbers
from coft_core.model.language_model import LanguageModel
from coft_core.text.detection import SpanDetector
from coft_core.text.masking import check_whitelist, keep_whitelisted
from coft_core.types import Example, Span, in_page_order
from db.prompt_sets import PromptRow

NOTHING_MASKED = "nothing is masked here or in any other row, and factorized masks need a family; mark sensitive spans"


def usable_rows(
    prompts: ParsedPromptSet, request: CalibrationRequest, model: LanguageModel
) -> tuple[tuple[PromptRow, ...], tuple[RowError, ...]]:
    """The rows that a calibration can use, and what is wrong with the others, in the order of their lines."""
    require_prompts(prompts)
    rows, errors = list(rows_of(prompts)), list(prompts.errors)
    for check in (_left_empty, _of_another_group, _of_another_weight, partial(_too_long, model)):
        problems = {problem.line: problem for problem in check(rows, request)}
        errors += problems.values()
        rows = [row for row in rows if row.line not in problems]
    return tuple(rows), tuple(sorted(errors, key=lambda error: error.line))


def nothing_masked(rows: Iterable[PromptRow], request: CalibrationRequest, detector: SpanDetector) -> bool:
    """Whether factorized masks are asked for and no row has anything masked."""
    if request.mask_layout != "factorized":
        return False
    return not any(span.masked for row in rows for span in spans_of(row.example, request, detector))


def require_maskable(rows: Iterable[PromptRow], request: CalibrationRequest, detector: SpanDetector) -> None:
    """Refuse rows that factorized masks cannot be calibrated on."""
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
    spans = detector.detect(example.prompt) if example.spans is None else example.spans
    return keep_whitelisted(example.prompt, spans, check_whitelist(request.whitelist))


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


def _left_empty(rows: list[PromptRow], request: CalibrationRequest) -> Iterator[RowError]:
    for field, needed in (("group", request.by_group), ("reference", request.source == "reference")):
        if needed:
            yield from (RowError(row.line, field, "is empty") for row in rows if not getattr(row.example, field))


def _of_another_group(rows: list[PromptRow], request: CalibrationRequest) -> Iterator[RowError]:
    if request.by_group:
        said = ((row.example.context, row, row.example.group) for row in rows if row.example.context is not None)
        yield from _differing("group", "“{}”", said)


def _of_another_weight(rows: list[PromptRow], request: CalibrationRequest) -> Iterator[RowError]:
    if request.weighting == "column":
        numbers = context_numbers([row.example for row in rows], request.by_group)
        yield from _differing("weight", "{:g}", zip(numbers, rows, (row.weight for row in rows), strict=True))


def _differing(field: str, shown: str, said: Iterable[tuple[object, PromptRow, object]]) -> Iterator[RowError]:
    """Rows that have another value than the first row of their context; each comes with its context and value."""
    first: dict[object, tuple[PromptRow, object]] = {}
    for context, row, own in said:
        other, theirs = first.setdefault(context, (row, own))
        if own != theirs:
            there = f"line {other.line} of the same context has {shown.format(theirs)}"
            yield RowError(row.line, field, f"is {shown.format(own)}, and {there}; use one")


def _too_long(model: LanguageModel, rows: list[PromptRow], request: CalibrationRequest) -> Iterator[RowError]:
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


class Trial:
    """A calibration's work, tried on a few of its prompts."""

    def __init__(self, work: CalibrationWork, clock: Callable[[], float] = time.perf_counter) -> None:
        self._work = work
        self._clock = clock
        self._lengths = {row.line: length_of(work.model, row.example, work.request) for row in work.rows}
        self._looked_at, self._masked, self._families = self._looked()
        # Factorized masks leave out what has nothing masked.
        parts = work.request.mask_layout == "factorized"
        self._sorted = sorted(self._masked if parts else work.rows, key=lambda row: self._lengths[row.line])
        self._share = len(self._masked) / max(self._looked_at, 1) if parts else 1.0
        self._tried = 0

    def estimate(self) -> CalibrationEstimate:
        """Try and extrapolate."""
        rows, request = self._work.rows, self._work.request
        seconds = self._seconds() if self._sorted else 0.0
        return CalibrationEstimate(
            prompts=len(rows),
            contexts=len(set(context_numbers([row.example for row in rows], request.by_group))),
            needed=_needed(request, self._families),
            tried=self._tried,
            seconds=seconds,
            unmasked=self._looked_at - len(self._masked),
            looked_at=None if self._looked_at == len(rows) else self._looked_at,
        )

    def _looked(self) -> tuple[int, list[PromptRow], tuple[str, ...]]:
        """How many rows were looked at, those of them that have something masked, and the families there."""
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
        return looked, rows, in_page_order(families)

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

    def _request(self, **changes: Any) -> CalibrationRequest:
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
        return replace(plain, **changes)

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


@dataclass(frozen=True, slots=True)
class CalibrationEstimate:
    """What a calibration will take, from a short trial with a few of its own prompts."""

    prompts: int
    contexts: int
    needed: int
    tried: int
    seconds: float
    unmasked: int
    looked_at: int | None = None
