"""Prompts that other programs hand over: as tokens, as text that went through a chat template, or as a conversation.

Their tokens stay exactly those that the model is to read; what is found here is only where each of them stands in their
text, so that the sensitive words of that text can be masked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from coft_core.errors import InvalidInputError
from coft_core.text.placing import LOST, NOWHERE, Range, read_tokens
from coft_core.text.rendering import Rendering, Tokens, render, template_settings, thinking_switch
from coft_core.text.turns import BETWEEN_TURNS, Frame, Thinking, Turn


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


WITHOUT_TEMPLATE = (
    "This model's tokenizer has no chat template; the turns are read as plain text, one paragraph each, without the "
    "names of who says them."
)


class TemplateSettingError(InvalidInputError):
    """What a chat template is to be told and cannot be."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation as one prompt."""

    prompt: GivenPrompt
    rendering: Rendering
    note: str = ""


def conversation(
    tokenizer: Any, turns: Sequence[Turn], moment: datetime | None = None, told: Mapping[str, Any] | None = None
) -> Conversation:
    """Put turns through the tokenizer's chat template, or one behind the other where it has none.

    The model goes on with what the assistant says next; where the last turn is the assistant's, with that turn.
    """
    given = dict(told or {})
    if not any(turn.content.strip() for turn in turns):
        raise InvalidInputError("The conversation is empty; write at least one message.")
    if not tokenizer.chat_template:
        if given:
            raise TemplateSettingError(
                "This model's tokenizer has no chat template that could be told it; leave it out."
            )
        text = BETWEEN_TURNS.join(turn.content for turn in turns)
        plain = prompt_of_text(tokenizer, text, special=True)
        return Conversation(plain, Rendering(kept={text: plain.tokens}), WITHOUT_TEMPLATE)
    frame = Frame(thinking=_told(str(tokenizer.get_chat_template()), given))
    moment = moment or datetime.now()
    text = render(tokenizer, turns, moment, told=given)
    prompt = prompt_of_text(tokenizer, text, special=False)
    return Conversation(prompt, Rendering(True, moment, {text: prompt.tokens}, as_it_stands=True, frame=frame))


def _told(source: str, given: Mapping[str, Any]) -> Thinking:
    """What a template is told of thinking, as fingerprints hold it."""
    asked = template_settings(source)
    for name in given:
        if name not in asked:
            names = f"asks for {', '.join(sorted(asked))}" if asked else "asks for nothing"
            raise TemplateSettingError(
                f"This model's chat template does not ask for {name!r} (it {names}); leave it out."
            )
    if (switch := thinking_switch(source)) not in given:
        return "auto"
    if not isinstance(given[switch], bool):
        raise TemplateSettingError(f"{switch!r} is {given[switch]!r}; give true or false.")
    return "on" if given[switch] else "off"
