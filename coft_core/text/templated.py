"""A prompt in a chat template, or in none, and where each part of the reviewer's text stands in what comes of it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from coft_core.errors import InvalidInputError
from coft_core.text.rendering import Rendering, present, render
from coft_core.text.turns import BETWEEN_TURNS, USER, Thinking, Turn, said_turns

MARK = "\uf8f0"
"""One character, which no template can cut, to find the messages in one rendering."""

_REWRITES = (
    "This model's chat template does more with the message than print it as typed, so sensitive spans cannot be placed "
    "in all that the model reads; use the plain prompt format."
)
_REWRITES_TURNS = (
    "This model's chat template does more with the turns than print them as typed, in their order (templates leave the "
    "thinking of earlier answers out, for example), so sensitive spans cannot be placed in all that the model reads; "
    "give earlier answers without their thinking, or use the plain prompt format."
)


@dataclass(frozen=True, slots=True)
class Copy:
    """One place of the templated text at which a template prints the reviewer's text, or a turn of it."""

    start: int
    end: int
    shift: int = 0

    def meets(self, start: int, end: int) -> bool:
        """Whether a range of the templated text has a character of this copy."""
        return start < self.end and self.start < end


def read_text(tokenizer: Any, text: str, rendering: Rendering) -> tuple[str, tuple[Copy, ...]]:
    """What a model reads of a text under a rendering, and all places at which it holds the reviewer's text."""
    if rendering.as_it_stands:
        return text, (Copy(0, len(text)),)
    turns = said_turns(text)
    if rendering.chat:
        thinking = rendering.frame.thinking
        return apply_chat_template(tokenizer, turns or (Turn(USER, text),), rendering.moment, thinking)
    return _paragraphs(turns) if turns else (text, (Copy(0, len(text)),))


def apply_chat_template(
    tokenizer: Any, turns: Sequence[Turn], moment: datetime | None = None, thinking: Thinking = "auto"
) -> tuple[str, tuple[Copy, ...]]:
    """Put turns into the tokenizer's chat template, as of a moment; None takes the present."""
    moment = moment or present()
    probes = [replace(turn, content=f"\u2042coft{number}\u2042") for number, turn in enumerate(turns)]
    templated, probe = (render(tokenizer, said, moment, thinking) for said in (turns, probes))
    copies = _copies(templated, probe, turns, probes)
    if not copies and probe != render(tokenizer, probes, moment, thinking):
        templated, copies = _marked(tokenizer, turns, moment, thinking)
    if not copies:
        raise InvalidInputError(_REWRITES if len(turns) == 1 else _REWRITES_TURNS)
    return templated, copies


def _paragraphs(turns: Sequence[Turn]) -> tuple[str, tuple[Copy, ...]]:
    ends = list(itertools.accumulate(len(turn.content) + len(BETWEEN_TURNS) for turn in turns))
    places = [end - len(BETWEEN_TURNS) for end in ends]
    copies = tuple(Copy(end - len(turn.content), end, turn.start) for turn, end in zip(turns, places, strict=True))
    return BETWEEN_TURNS.join(turn.content for turn in turns), copies


def _copies(templated: str, probe: str, turns: Sequence[Turn], probes: Sequence[Turn]) -> tuple[Copy, ...]:
    """The places of turns where others would stand; none if their template differs in more than that."""
    pieces = re.split(f"({'|'.join(re.escape(turn.content) for turn in probes)})", probe)
    printed = [int(piece[5:-1]) for piece in pieces[1::2]]
    if set(printed) != set(range(len(turns))):
        return ()
    pattern = re.escape(pieces[0]) + "".join(
        f"({_forms(turns[number].content)}){re.escape(piece)}"
        for number, piece in zip(printed, pieces[2::2], strict=True)
    )
    match = re.fullmatch(pattern, templated, re.DOTALL)
    return tuple(
        _copy(turns[number], templated, start, end)
        for number, (start, end) in zip(printed, match.regs[1:] if match else (), strict=False)
    )


def _forms(text: str) -> str:
    return "|".join(map(re.escape, dict.fromkeys((text, text.rstrip(), text.lstrip(), text.strip()))))


def _copy(turn: Turn, templated: str, start: int, end: int) -> Copy:
    text = turn.content
    kept = templated[start:end] in (text, text.rstrip())
    return Copy(start, end, turn.start + (0 if kept else len(text) - len(text.lstrip())))


def _marked(
    tokenizer: Any, turns: Sequence[Turn], moment: datetime, thinking: Thinking
) -> tuple[str, tuple[Copy, ...]]:
    """The templated text and its copies by a template that renders each time in another way: one rendering, marked."""
    cores = [turn.content.strip() for turn in turns]
    leads = [len(turn.content) - len(turn.content.lstrip()) for turn in turns]
    marked = [
        replace(turn, content=turn.content.replace(core, f"{MARK}{core}{MARK}", 1))
        for turn, core in zip(turns, cores, strict=True)
    ]
    parts = render(tokenizer, marked, moment, thinking).split(MARK)
    printed = parts[1::2]
    alike = set(printed) == {cores[0]} if len(turns) == 1 else printed == cores
    if len(parts) < 3 or len(parts) % 2 == 0 or not alike:
        return "", ()
    ends = list(itertools.accumulate(map(len, parts)))[1::2]
    places = [number % len(turns) for number in range(len(ends))]
    return "".join(parts), tuple(
        Copy(end - len(cores[place]), end, turns[place].start + leads[place])
        for place, end in zip(places, ends, strict=True)
    )
