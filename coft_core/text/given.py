"""Prompts that are given as tokens, or as text that went through a chat template elsewhere.

Other programs hand over what the model is to read. Its tokens stay exactly those; what is found here is only where each
of them stands in their text, so that the sensitive words of that text can be masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from coft_core.errors import InvalidInputError
from coft_core.text.placing import LOST, NOWHERE, Range, read_tokens
from coft_core.text.rendering import Rendering, Tokens


@dataclass(frozen=True, slots=True)
class GivenPrompt:
    """A text with the tokens that the model reads of it."""

    text: str
    ids: tuple[int, ...]
    offsets: tuple[Range, ...]

    @property
    def tokens(self) -> Tokens:
        """Ids and offsets, as a rendering keeps them."""
        return self.ids, self.offsets

    def part(self, start: int, stop: int) -> GivenPrompt:
        """The tokens from one position to before another, with their text."""
        ids, offsets = self.ids[start:stop], self.offsets[start:stop]
        placed = [place for place in offsets if place not in (NOWHERE, LOST)]
        if not placed:
            return GivenPrompt("", ids, tuple(offsets))
        first, last = placed[0][0], max(end for _, end in placed)
        moved = tuple(place if place in (NOWHERE, LOST) else (place[0] - first, place[1] - first) for place in offsets)
        return GivenPrompt(self.text[first:last], ids, moved)


def prompt_of_text(tokenizer: Any, text: str, special: bool) -> GivenPrompt:
    """A text as it stands, with or without the special tokens that the tokenizer puts around a text by itself."""
    return GivenPrompt(text, *read_tokens(tokenizer, text, Rendering(as_it_stands=not special)))


def prompt_of_ids(tokenizer: Any, ids: Sequence[int]) -> GivenPrompt:
    """The text of tokens, and where they stand in it."""
    given = tuple(int(token) for token in ids)
    written = {False: tuple(given), True: _without_added(tokenizer, given)}
    for special, inner in written.items():
        text = str(tokenizer.decode(list(inner), skip_special_tokens=False, clean_up_tokenization_spaces=False))
        prompt = prompt_of_text(tokenizer, text, special)
        if prompt.ids == given:
            return prompt
    raise InvalidInputError(
        "The prompt's tokens are not those that the tokenizer gives to their text, so that sensitive words cannot be "
        "placed among them; give the tokens of a text that was tokenized whole."
    )


def _without_added(tokenizer: Any, ids: tuple[int, ...]) -> tuple[int, ...]:
    """Tokens without those that the tokenizer puts before and behind every text."""
    framed, plain = (tokenizer(ANCHOR, add_special_tokens=special)["input_ids"] for special in (True, False))
    starts = (start for start in range(len(framed)) if framed[start : start + len(plain)] == plain)
    before = next(starts, 0)
    return ids[before : len(ids) - (len(framed) - len(plain) - before)]


ANCHOR = "a"
"""A text of which it is seen what a tokenizer puts around one."""
