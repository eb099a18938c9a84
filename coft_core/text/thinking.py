"""Thinking and answer: which tokens of a chain a model writes between the marks of its thinking.

Models that think write their thoughts between two marks, which their tokenizer or chat template knows. A template, or
what the answer was made to begin with, may have written the opening one already.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from coft_core.errors import InvalidInputError

Part = Literal["thinking", "answer"]


@dataclass(frozen=True, slots=True)
class ThinkingMarks:
    """What a model writes before and behind its thinking.

    Attributes:
        opens: Before it.
        closes: Behind it.
    """

    opens: str
    closes: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Marks from ``"<think> </think>"``, with a space between both.

        Raises:
            InvalidInputError: There are not two, or both are the same.
        """
        marks = text.split()
        if len(marks) != 2 or marks[0] == marks[1]:
            raise InvalidInputError(
                f"The marks of thinking are {text!r}; give two different ones with a space between them, such as "
                "'<think> </think>'."
            )
        return cls(*marks)


def named_marks(text: str) -> tuple[ThinkingMarks, ...]:
    """Marks that are named in one text, separated by commas.

    Raises:
        InvalidInputError: Some are not written as marks are.
    """
    return tuple(ThinkingMarks.parse(part) for part in text.split(",") if part.strip())


KNOWN = (
    ThinkingMarks("<think>", "</think>"),
    ThinkingMarks("[THINK]", "[/THINK]"),
    ThinkingMarks("<seed:think>", "</seed:think>"),
    ThinkingMarks("<|START_THINKING|>", "<|END_THINKING|>"),
    ThinkingMarks("<|channel|>analysis<|message|>", "<|end|>"),
    ThinkingMarks("<reasoning>", "</reasoning>"),
)
"""Marks that published models use, those of most of them first."""


def thinking_marks(tokenizer: Any, further: Sequence[ThinkingMarks] = ()) -> ThinkingMarks | None:
    """The marks of a model's thinking: those that its chat template or its vocabulary has; None where it has none.

    Args:
        tokenizer: A fast tokenizer.
        further: Marks that are looked for before the known ones.
    """
    template = str(tokenizer.chat_template or "")
    vocabulary = tokenizer.get_added_vocab()

    def known(mark: str) -> bool:
        return mark in template or mark in vocabulary

    return next((marks for marks in (*further, *KNOWN) if known(marks.opens) and known(marks.closes)), None)


def begun(read: str, marks: ThinkingMarks) -> bool:
    """Whether what a model goes on with is its thinking: what it read has begun it and not ended it.

    Args:
        read: All that it read, special tokens written out.
        marks: The marks.
    """
    return read.rfind(marks.opens) > read.rfind(marks.closes)


def parts(tokens: Iterable[str], marks: ThinkingMarks | None, inside: bool) -> tuple[Part, ...]:
    """Which part each token of a chain belongs to; the tokens of the marks belong to the thinking.

    Args:
        tokens: The tokens' texts.
        marks: The marks; None where the model has none, and all is the answer.
        inside: Whether the chain goes on with a thinking that was begun before it.
    """
    texts = list(tokens)
    told: list[Part] = []
    if marks is None:
        told = ["answer"] * len(texts)
        return tuple(told)
    whole = "".join(texts)
    ranges, at, open_at = [], 0, 0 if inside else -1
    while True:
        if open_at < 0:
            open_at = whole.find(marks.opens, at)
            if open_at < 0:
                break
        close = whole.find(marks.closes, open_at)
        at = len(whole) if close < 0 else close + len(marks.closes)
        ranges.append((open_at, at))
        open_at = -1
        if close < 0:
            break
    start = 0
    for text in texts:
        end = start + len(text)
        within = any(start < stop and first < end for first, stop in ranges)
        told.append("thinking" if within else "answer")
        start = end
    return tuple(told)


def answer_text(text: str, marks: ThinkingMarks | None, inside: bool) -> str:
    """What a model wrote without its thinking; nothing where the thinking never ended."""
    if marks is None:
        return text
    kept = "".join(letter for letter, part in zip(text, parts(text, marks, inside), strict=True) if part == "answer")
    return kept.lstrip() if kept != text else text
