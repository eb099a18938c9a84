"""What of a prompt set a calibration can use, and how its prompts will be masked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from app.services.errors import ServiceError
from app.services.prompts.columns import require_prompts
from app.services.prompts.files import PromptRow, rows_of
from app.services.views import CalibrationRequest, Example, ParsedPromptSet, PromptPreview, RowError, Span
from coft_core.conformal.calibrator import example_length
from coft_core.conformal.shares import split_alpha
from coft_core.conformal.split import context_numbers
from coft_core.engine.model import LanguageModel
from coft_core.masking.partial import in_page_order
from coft_core.masking.spans import SpanDetector
from coft_core.masking.whitelist import check_whitelist, keep_whitelisted

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
