"""Thinking and answer of a stored chain: which steps belong to which, and how far the masked words move each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from app.shared.audits import PartFigures, ThinkingView
from app.shared.format import plural, signed
from coft_core.model.language_model import LanguageModel
from coft_core.text.masking import MaskedPrompt
from coft_core.text.thinking import ChainThinking, Divided, Part, ThinkingMarks, begun, thinking_marks, thinking_of
from coft_core.types import Step

STORED = "thinking"
"""Where a session's settings hold the marks."""


def marks_json(model: LanguageModel, prompt: MaskedPrompt, further: Sequence[ThinkingMarks]) -> dict[str, Any] | None:
    """The marks of a model's thinking as a session keeps them, and whether its prompt has begun one; None without."""
    tokenizer = model.tokenizer
    told = thinking_of(tokenizer, prompt.factual_ids, thinking_marks(tokenizer, further))
    if told is None:
        return None
    return {"opens": told.marks.opens, "closes": told.marks.closes, "inside": told.inside}


def step_parts(steps: Sequence[Step], stored: Mapping[str, Any]) -> tuple[Part, ...] | None:
    """Which part each step of a chain belongs to; None where the session's model marks no thinking."""
    told = stored_thinking(stored)
    return None if told is None else told.parts(step.token for step in steps)


def stored_thinking(stored: Mapping[str, Any]) -> ChainThinking | None:
    """How a session's thinking is told from its answer; None where its model marks none."""
    kept = stored.get(STORED)
    if not isinstance(kept, Mapping):
        return None
    return ChainThinking(ThinkingMarks(str(kept["opens"]), str(kept["closes"])), bool(kept["inside"]))


def divided_text(text: str, kept: Mapping[str, Any] | None) -> Divided | None:
    """Thinking and answer of a stored continuation; None where there is no thinking."""
    told = stored_thinking({STORED: kept})
    if told is None or "thinking" not in told.parts((text,)):
        return None
    return told.divided((0,), (text,), lambda _: text)


def thinking_view(steps: Sequence[Step], stored: Mapping[str, Any]) -> ThinkingView | None:
    """Thinking and answer of a chain; None where there is no thinking."""
    told = step_parts(steps, stored)
    if told is None or "thinking" not in told:
        return None
    ranges = []
    for part, run in groupby(range(len(told)), told.__getitem__):
        indices = list(run)
        if part == "thinking":
            ranges.append((indices[0], indices[-1]))
    kept = stored[STORED]
    marks = ThinkingMarks(str(kept["opens"]), str(kept["closes"]))
    written = "".join(step.token for step in steps)
    return ThinkingView(
        tuple(ranges),
        _figures([step for step, part in zip(steps, told, strict=True) if part == "thinking"]),
        _figures([step for step, part in zip(steps, told, strict=True) if part == "answer"]),
        not begun((marks.opens if kept["inside"] else "") + written, marks),
    )


def thinking_json(view: ThinkingView | None) -> dict[str, Any] | None:
    """Thinking and answer as JSON; steps count from 1."""
    if view is None:
        return None
    return {
        "ranges": [[first + 1, last + 1] for first, last in view.ranges],
        "thinking": _figures_json(view.thinking),
        "answer": _figures_json(view.answer),
        "ended": view.ended,
    }


def thinking_sentence(view: ThinkingView) -> str:
    """Both parts in words."""
    told = [_part_words("Thinking", view.thinking), _part_words("Answer", view.answer)]
    return f"{'; '.join(told)}.{'' if view.ended else ' The thinking has not ended.'}"


def _figures(steps: Sequence[Step]) -> PartFigures:
    strongest = max(steps, key=lambda step: abs(step.diagnostics.log_ratio), default=None)
    if strongest is None:
        return PartFigures(0, None, None)
    return PartFigures(len(steps), strongest.index, strongest.diagnostics.log_ratio)


def _figures_json(part: PartFigures) -> dict[str, Any]:
    step = None if part.strongest is None else part.strongest + 1
    return {"steps": part.steps, "most_sensitive_step": step, "largest_log_ratio": part.largest_log_ratio}


def _part_words(name: str, part: PartFigures) -> str:
    if part.strongest is None or part.largest_log_ratio is None:
        return f"{name}: no token"
    return (
        f"{name}: {plural(part.steps, 'token')}, strongest sensitivity {signed(part.largest_log_ratio)} at step "
        f"{part.strongest + 1}"
    )
