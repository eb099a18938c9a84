"""Thinking and answer: which tokens of a chain a model writes between the marks of its thinking.

Models that think write their thoughts between two marks, which their tokenizer or chat template knows. A template, or
what the answer was made to begin with, may have written the opening one already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, Self

from coft_core.errors import InvalidInputError

Part = Literal["thinking", "answer"]


@dataclass(frozen=True, slots=True)
class ThinkingMarks:
    """What a model writes before and behind its thinking."""

    opens: str
    closes: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Marks from ``"<think> </think>"``, with a space between both."""
        marks = text.split()
        if len(marks) != 2 or marks[0] == marks[1]:
            raise InvalidInputError(
                f"The marks of thinking are {text!r}; give two different ones with a space between them, such as "
                "'<think> </think>'."
            )
        return cls(*marks)


def named_marks(text: str) -> tuple[ThinkingMarks, ...]:
    """Marks that are named in one text, separated by commas."""
    return tuple(ThinkingMarks.parse(part) for part in text.split(",") if part.strip())


KNOWN = (
    ThinkingMarks("<think>", "</think>"),
    ThinkingMarks("[THINK]", "[/THINK]"),
    ThinkingMarks("<seed:think>", "</seed:think>"),
    ThinkingMarks("<|START_THINKING|>", "<|END_THINKING|>"),
    ThinkingMarks("<|channel|>analysis<|message|>", "<|start|>assistant<|channel|>final<|message|>"),
    ThinkingMarks("<reasoning>", "</reasoning>"),
)
"""Marks that published models use, those of most of them first."""


def thinking_marks(tokenizer: Any, further: Sequence[ThinkingMarks] = ()) -> ThinkingMarks | None:
    """The marks of a model's thinking: those that its chat template or its vocabulary has; None where it has none."""
    template = str(tokenizer.chat_template or "")
    vocabulary = tokenizer.get_added_vocab()

    def known(mark: str) -> bool:
        return mark in template or mark in vocabulary

    return next((marks for marks in (*further, *KNOWN) if known(marks.opens) and known(marks.closes)), None)


def begun(read: str, marks: ThinkingMarks) -> bool:
    """Whether what a model goes on with is its thinking: what it read has begun it and not ended it."""
    return read.rfind(marks.opens) > read.rfind(marks.closes)


@dataclass(frozen=True, slots=True)
class Divided:
    """What a model wrote, in two."""

    thinking: str
    answer: str
    ended: bool


@dataclass(frozen=True, slots=True)
class _Thought:
    """A run of thinking in a text: where its opening mark begins, the thought itself, and where its closing mark ends.

    The thought and the run end with the text where there is no closing mark.
    """

    start: int
    first: int
    last: int
    stop: int


@dataclass(frozen=True, slots=True)
class ChainThinking:
    """How the thinking of a chain is told from its answer."""

    marks: ThinkingMarks
    inside: bool = False

    def parts(self, tokens: Iterable[str]) -> tuple[Part, ...]:
        """Which part each token of a chain belongs to, by the tokens' texts; those of the marks are of the thinking."""
        texts = list(tokens)
        thoughts, _ = self._thoughts("".join(texts))
        told: list[Part] = [
            "thinking" if any(thought.start < end and start < thought.stop for thought in thoughts) else "answer"
            for start, end in _ranges(texts)
        ]
        return tuple(told)

    def divided(self, token_ids: Sequence[int], tokens: Sequence[str], text_of: Callable[..., str]) -> Divided:
        """A chain's texts."""
        thoughts, ended = self._thoughts("".join(tokens))
        if not thoughts:
            return Divided("", text_of(token_ids), True)
        written: dict[Part, list[int | str]] = {"thinking": [], "answer": []}
        for token, text, (start, end) in zip(token_ids, tokens, _ranges(tokens), strict=True):
            pieces = list(_pieces(start, end, thoughts))
            whole = len(pieces) == 1
            for part, first, last in pieces:
                if part is not None:
                    # A token that a mark cuts has no text of its own but its letters.
                    written[part].append(token if whole else text[first - start : last - start])
        thinking, answer = _assembled(written["thinking"], text_of), _assembled(written["answer"], text_of)
        return Divided(thinking.strip(), answer.lstrip(), ended)

    def _thoughts(self, whole: str) -> tuple[list[_Thought], bool]:
        """The runs of thinking in a text, in order, and whether the last one has ended."""
        opens, closes = self.marks.opens, self.marks.closes
        thoughts: list[_Thought] = []
        start = 0 if self.inside else whole.find(opens)
        while start >= 0:
            begun_before = self.inside and not thoughts
            first = start if begun_before else start + len(opens)
            last = whole.find(closes, first)
            if last < 0:
                return [*thoughts, _Thought(start, first, len(whole), len(whole))], False
            thoughts.append(_Thought(start, first, last, last + len(closes)))
            start = whole.find(opens, thoughts[-1].stop)
        return thoughts, True


def _ranges(texts: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Where each text stands in all of them together."""
    start = 0
    for text in texts:
        yield start, start + len(text)
        start += len(text)


def _pieces(start: int, end: int, thoughts: Iterable[_Thought]) -> Iterator[tuple[Part | None, int, int]]:
    """What of a range is thinking, answer, or (None) a mark; a range without letters belongs to where it stands."""
    at = start
    for thought in thoughts:
        edges: tuple[tuple[Part | None, int], ...] = (
            ("answer", thought.start), (None, thought.first), ("thinking", thought.last), (None, thought.stop),
        )  # fmt: skip
        for part, edge in edges:
            if at < min(edge, end):
                yield part, at, min(edge, end)
                at = min(edge, end)
    if at < end or start == end:
        yield "answer", at, end


def _assembled(written: Iterable[int | str], text_of: Callable[..., str]) -> str:
    """The text of tokens and of letters of tokens, in order."""
    runs = groupby(written, key=lambda piece: isinstance(piece, str))
    return "".join("".join(map(str, run)) if letters else text_of(list(run)) for letters, run in runs)


def thinking_of(tokenizer: Any, prompt_ids: Sequence[int], marks: ThinkingMarks | None) -> ChainThinking | None:
    """How the thinking of what follows a prompt is told from its answer; None where the model has no marks."""
    if marks is None:
        return None
    read = tokenizer.decode(list(prompt_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return ChainThinking(marks, begun(str(read), marks))


def parts(tokens: Iterable[str], marks: ThinkingMarks | None, inside: bool) -> tuple[Part, ...]:
    """Which part each token of a chain belongs to; all is the answer where the model has no marks."""
    if marks is not None:
        return ChainThinking(marks, inside).parts(tokens)
    told: list[Part] = ["answer" for _ in tokens]
    return tuple(told)
