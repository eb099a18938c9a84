"""A conversation as one text: its turns one after the other, each below a line that says whose it is.

A prompt of several turns stays one text, so that spans, lists, stores and reports hold it as they hold any other::

    ⟦system⟧
    You advise on loans.
    ⟦user⟧
    Is she a good risk?
    ⟦assistant⟧
    The answer is

The lines are no part of what a model reads: a chat template takes their place, or a blank line where there is none.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from coft_core.errors import InvalidInputError
from coft_core.types import OWN, Span

Role = Literal["system", "user", "assistant"]
ROLES: tuple[Role, ...] = ("system", "user", "assistant")
SYSTEM, USER, ASSISTANT = ROLES

Thinking = Literal["auto", "on", "off"]
THINKING: tuple[Thinking, ...] = ("auto", "on", "off")
"""As the chat template has it; with thinking; without."""

BETWEEN_TURNS = "\n\n"
"""What stands between the turns where no chat template is used."""

SEVERAL = "several"
"""The turns of a prompt that has any before its last one."""

_LINE = re.compile(rf"^⟦({'|'.join(ROLES)})⟧(?:\n|\Z)", re.MULTILINE)


class ConversationError(InvalidInputError):
    """Turns that make no conversation."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What somebody says in a conversation."""

    role: str
    content: str
    start: int = 0

    @property
    def end(self) -> int:
        """Where it ends there."""
        return self.start + len(self.content)


@dataclass(frozen=True, slots=True)
class Frame:
    """What is put around each prompt before a model reads it, beside its chat template."""

    system: str = ""
    prefill: str = ""
    thinking: Thinking = "auto"
    turns: str = ""

    def __post_init__(self) -> None:
        """Validate."""
        if self.thinking not in THINKING:
            raise InvalidInputError(f"There is no thinking {self.thinking!r}; choose {', '.join(THINKING)}.")

    @property
    def adds(self) -> bool:
        """Whether it adds a text to prompts."""
        return any(text and text != OWN for text in (self.system, self.prefill))

    @property
    def identity(self) -> dict[str, str]:
        """System prompt, prefill and turns as fingerprints hold them: of the system prompt its SHA-256."""
        system = self.system
        if system and system != OWN:
            system = hashlib.sha256(system.encode("utf-8", "surrogatepass")).hexdigest()
        return {"system": system, "prefill": self.prefill, "turns": self.turns}

    def to_dict(self) -> dict[str, str]:
        """As plain JSON; what is not set is left out."""
        usual = Frame()
        named = {name: getattr(self, name) for name in ("system", "prefill", "thinking", "turns")}
        return {name: value for name, value in named.items() if value != getattr(usual, name)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Frame:
        """Rebuild from :meth:`to_dict`."""
        given: dict[str, Any] = {name: str(value) for name, value in data.items()}
        return cls(**given)


def conversation_text(turns: Iterable[Turn]) -> str:
    """The turns as one text."""
    parts = []
    for number, turn in enumerate(turns, start=1):
        if turn.role not in ROLES:
            raise ConversationError(f"Turn {number} is of {turn.role!r}; a turn is of {', '.join(ROLES)}.")
        if line := _LINE.search(turn.content):
            raise ConversationError(
                f"Turn {number} has the line “{line[0].strip()}”, with which turns begin; write that line otherwise."
            )
        parts.append(f"⟦{turn.role}⟧\n{turn.content}")
    return "\n".join(parts)


def conversation_from(messages: object) -> tuple[str, tuple[Turn, ...]]:
    """The text of messages as chat programs write them, and its turns."""
    if not isinstance(messages, list) or not messages:
        raise ConversationError('The messages are no list of objects such as {"role": "user", "content": "…"}.')
    turns = []
    for number, message in enumerate(messages, start=1):
        known = isinstance(message, dict) and set(message) == {"role", "content"}
        if not known or not all(isinstance(value, str) for value in message.values()):
            raise ConversationError(
                f'Message {number} is no object with the texts "role" and "content", and nothing else.'
            )
        turns.append(Turn(message["role"], message["content"]))
    text = conversation_text(turns)
    said_turns(text)
    return text, turns_of(text)


def messages_of(text: str) -> list[dict[str, str]] | None:
    """A conversation's turns as chat programs write them; None where the text is no conversation."""
    return [{"role": turn.role, "content": turn.content} for turn in turns_of(text)] or None


def turns_of(text: str) -> tuple[Turn, ...]:
    """The turns of a conversation's text; none where the text is no conversation."""
    lines = list(_LINE.finditer(text))
    if not lines or lines[0].start() > 0:
        return ()
    ends = [line.start() - 1 for line in lines[1:]] + [len(text)]
    return tuple(
        Turn(line[1], text[line.end() : max(line.end(), end)], line.end())
        for line, end in zip(lines, ends, strict=True)
    )


def said_turns(text: str) -> tuple[Turn, ...]:
    """The turns that a model reads; an empty system prompt or answer's beginning is left out."""
    turns = turns_of(text)
    if not turns:
        return ()
    if turns[0].role == SYSTEM and not turns[0].content.strip():
        turns = turns[1:]
    if turns and turns[-1].role == ASSISTANT and not turns[-1].content.strip():
        turns = turns[:-1]
    spoken = [turn for turn in turns if turn.role != SYSTEM]
    if not spoken:
        raise ConversationError("The conversation is empty; write at least one message of the user.")
    if any(turn.role == SYSTEM for turn in turns[1:]):
        raise ConversationError("A system prompt stands in the middle of the conversation; put it first, and once.")
    for number, turn in enumerate(spoken, start=1):
        expected = (USER, ASSISTANT)[(number - 1) % 2]
        if turn.role != expected:
            raise ConversationError(
                f"Turn {number} is the {turn.role}'s and should be the {expected}'s; user and assistant take turns, "
                "and the user begins."
            )
        if not turn.content.strip():
            raise ConversationError(f"Turn {number}, the {turn.role}'s, is empty; write it or remove it.")
    return turns


def lines_between(text: str) -> tuple[tuple[int, int], ...]:
    """Character ranges of a conversation's text that no model reads: the lines between the turns."""
    turns = turns_of(text)
    starts = [0, *(turn.end for turn in turns[:-1])]
    return tuple((start, turn.start) for start, turn in zip(starts, turns, strict=False))


def outside_lines(text: str, spans: Iterable[Span]) -> list[Span]:
    """The spans that touch no line between turns, and so lie within one turn."""
    lines = lines_between(text)
    return [span for span in spans if not any(span.start < end and start < span.end for start, end in lines)]


def frame_of(text: str, thinking: Thinking = "auto") -> Frame:
    """What a conversation's text says of its frame; that of no conversation where it is none."""
    turns = turns_of(text)
    spoken = [turn for turn in turns if turn.role != SYSTEM and turn.content.strip()]
    prefill = spoken[-1].content if spoken and spoken[-1].role == ASSISTANT else ""
    return Frame(
        system=turns[0].content if turns and turns[0].role == SYSTEM and turns[0].content.strip() else "",
        prefill=prefill,
        thinking=thinking,
        turns=SEVERAL if len(spoken) - bool(prefill) > 1 else "",
    )


def common_frame(texts: Iterable[str], thinking: Thinking = "auto") -> Frame:
    """The frame of all texts of a set; what they differ in is :data:`OWN`."""
    frames = {frame_of(text, thinking) for text in texts}
    if not frames:
        return Frame(thinking=thinking)

    def common(name: str) -> str:
        values = {getattr(frame, name) for frame in frames}
        return str(values.pop()) if len(values) == 1 else OWN

    return Frame(common("system"), common("prefill"), thinking, common("turns"))


def framed(
    text: str,
    spans: Sequence[Span] | None,
    frame: Frame,
    detect: Callable[[str], Sequence[Span]],
) -> tuple[str, tuple[Span, ...] | None]:
    """A prompt in a frame, and its spans there; what a conversation has of its own stays."""
    if not frame.adds or not text.strip():
        return text, None if spans is None else tuple(spans)
    turns = turns_of(text) or (Turn(USER, text),)
    before = len(turns)
    whole = list(turns)
    if frame.system and frame.system != OWN and turns[0].role != SYSTEM:
        whole.insert(0, Turn(SYSTEM, frame.system))
    if frame.prefill and frame.prefill != OWN and turns[-1].role != ASSISTANT:
        whole.append(Turn(ASSISTANT, frame.prefill))
    if len(whole) == before:
        return text, None if spans is None else tuple(spans)
    written = conversation_text(whole)
    if spans is None:
        return written, None
    placed = turns_of(written)
    first = int(whole[0] is not turns[0])
    moves = [new.start - old.start for old, new in zip(turns, placed[first:], strict=False)]
    moved = [
        _moved(span, move)
        for span in spans
        for turn, move in zip(turns, moves, strict=True)
        if turn.start <= span.start and span.end <= turn.end
    ]
    added = [*placed[:first], *placed[first + before :]]
    found = [_moved(span, turn.start) for turn in added for span in detect(turn.content)]
    return written, tuple(sorted((*moved, *found)))


def _moved(span: Span, by: int) -> Span:
    return replace(span, start=span.start + by, end=span.end + by)
