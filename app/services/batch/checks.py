"""What of a prompt set a batch can audit, found out before anything is stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from app.services.audits import AuditService
from app.services.calibration.thresholds import Thresholds
from app.services.known_policies import certifies
from app.services.planning import Planner, without_calibration
from app.services.prompts.columns import require_prompts
from app.services.prompts.files import PromptRow
from app.services.views.audits import AuditSettings
from app.services.views.batches import BatchRequest
from app.services.views.prompt_sets import ParsedPromptSet, RowError
from coft_core.engine.model import LanguageModel
from coft_core.errors import CalibrationMismatch, InvalidInputError
from coft_core.masking.masker import prompt_ids


def row_errors(
    prompts: ParsedPromptSet, request: BatchRequest, model: LanguageModel, thresholds: Thresholds
) -> tuple[RowError, ...]:
    """All that is wrong with a prompt set for a request, in the order of its lines.

    Args:
        prompts: The prompt set.
        request: What is asked of it.
        model: The model that will read it.
        thresholds: Knows which groups have some.

    Raises:
        ServiceError: None of its columns is known to hold the prompts, or thresholds by group are asked for without a
            calibration.
        NotFoundError: The calibration has been deleted.
    """
    require_prompts(prompts)
    found = [*prompts.errors, *_too_long(prompts, model)]
    if request.group_thresholds:
        found += _without_thresholds(prompts, request.settings, thresholds)
    return tuple(sorted(found, key=lambda error: error.line))


def require_settings(
    settings: AuditSettings, first: PromptRow, audits: AuditService, planner: Planner, model: LanguageModel
) -> None:
    """Refuse settings under which no row could be audited.

    Args:
        settings: The settings.
        first: A row that can be used.
        audits: Detects its spans.
        planner: Plans it.
        model: The audited model.

    Raises:
        CalibrationMismatch: The calibration belongs to another policy and going on was not allowed.
        CoftError: A setting is outside its range.
        ServiceError: There is no such policy or mask.
        NotFoundError: The calibration or the word list has been deleted.
    """
    spans = audits.detect(first.example.prompt, settings) if first.example.spans is None else first.example.spans
    planner.plan(model, first.example.prompt, spans, without_calibration(settings))
    differences = audits.fit(settings).differences if certifies(settings) else ()
    if differences and not settings.proceed_uncertified:
        raise CalibrationMismatch(differences)


def _too_long(prompts: ParsedPromptSet, model: LanguageModel) -> Iterator[RowError]:
    for line, example in prompts.rows:
        length = len(prompt_ids(model.tokenizer, example.prompt, model.prompting))
        if length >= model.context_length:
            yield RowError(line, "prompt", f"has {length:,} tokens and the model takes {model.context_length:,}")


def _without_thresholds(
    prompts: ParsedPromptSet, settings: AuditSettings, thresholds: Thresholds
) -> Iterator[RowError]:
    """Rows whose group has no thresholds of its own; each group is looked up once."""
    problems: dict[str | None, str] = {None: "is empty, and thresholds by group need one"}
    for group in {example.group for _, example in prompts.rows} - {None}:
        try:
            thresholds.of(replace(settings, group=group))
        except InvalidInputError as error:
            problems[group] = f"has no thresholds: {error}"
    for line, example in prompts.rows:
        if example.group in problems:
            yield RowError(line, "group", problems[example.group])
