"""Chat templates: the reviewer's text inside the text that the model reads."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from coft_core.errors import InvalidInputError
from coft_core.masking.rendering import render

PROBE = "\u2042coft\u2042"
"""A text that no template contains, to find where a template puts the user's message."""

MARK = "\uf8f0"
"""One character, which no template can cut, to find the message in one rendering."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One place at which a template prints the reviewer's text.

    Attributes:
        start: Where it begins in the templated text.
        end: One past its last character there.
        shift: Characters of white space that the template stripped from the text's beginning.
    """

    start: int
    end: int
    shift: int = 0

    def meets(self, start: int, end: int) -> bool:
        """Whether a range of the templated text has a character of this copy."""
        return start < self.end and self.start < end


def apply_chat_template(tokenizer: Any, text: str, moment: datetime | None = None) -> tuple[str, tuple[Copy, ...]]:
    """Put a text into the tokenizer's chat template as the user's message.

    Args:
        tokenizer: A tokenizer with a chat template.
        text: The reviewer's text.
        moment: The local time that a template prints; None takes the present.

    Returns:
        The templated text and all places at which it holds the reviewer's text, at least one.

    Raises:
        InvalidInputError: The template does anything else with the text than to print it, with or without the white
            space around it, so that spans cannot be placed in all that comes of it.
    """
    moment = moment or datetime.now()
    templated, probe = render(tokenizer, text, moment), render(tokenizer, PROBE, moment)
    found = _copies(templated, probe, text)
    if not found and probe != render(tokenizer, PROBE, moment):
        templated, found = _marked(tokenizer, text, moment)
    if not found:
        raise InvalidInputError(
            "This model's chat template does more with the message than print it as typed, so sensitive spans cannot "
            "be placed in all that the model reads; use the plain prompt format."
        )
    return templated, found


def _copies(templated: str, probe: str, text: str) -> tuple[Copy, ...]:
    """The places of a text where another one would stand; none if its template differs in more than that."""
    if PROBE not in probe:
        return ()
    forms = "|".join(map(re.escape, dict.fromkeys((text, text.rstrip(), text.lstrip(), text.strip()))))
    found = re.fullmatch(f"({forms})".join(map(re.escape, probe.split(PROBE))), templated, re.DOTALL)
    stripped = len(text) - len(text.lstrip())
    return tuple(
        Copy(start, end, 0 if templated[start:end] in (text, text.rstrip()) else stripped)
        for start, end in (found.regs[1:] if found else ())
    )


def _marked(tokenizer: Any, text: str, moment: datetime) -> tuple[str, tuple[Copy, ...]]:
    """The templated text and its copies by a template that renders each time in another way: one rendering, marked."""
    core, stripped = text.strip(), len(text) - len(text.lstrip())
    message = f"{text[:stripped]}{MARK}{core}{MARK}{text[stripped + len(core) :]}"
    parts = render(tokenizer, message, moment).split(MARK)
    if len(parts) < 3 or len(parts) % 2 == 0 or set(parts[1::2]) != {core}:
        return "", ()
    ends = list(itertools.accumulate(map(len, parts)))
    return "".join(parts), tuple(Copy(end - len(core), end, stripped) for end in ends[1::2])
