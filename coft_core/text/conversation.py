"""A conversation as a model reads it: several turns through its chat template, with every word of them maskable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jinja2 import TemplateError

from coft_core.errors import InvalidInputError
from coft_core.text.given import GivenPrompt, prompt_of_text
from coft_core.text.rendering import Rendering, template_settings, thinking_switch
from coft_core.text.turns import BETWEEN_TURNS, Frame, Thinking, Turn

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
    goes_on = turns[-1].role == "assistant"
    frame = Frame(thinking=_told(str(tokenizer.get_chat_template()), given))
    try:
        text = str(
            tokenizer.apply_chat_template(
                [{"role": turn.role, "content": turn.content} for turn in turns],
                tokenize=False,
                add_generation_prompt=not goes_on,
                continue_final_message=goes_on,
                **given,
            )
        )
    except (TemplateError, TypeError, ValueError) as error:
        raise InvalidInputError(f"The model's chat template does not take this conversation ({error}).") from error
    prompt = prompt_of_text(tokenizer, text, special=False)
    moment = moment or datetime.now()
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
