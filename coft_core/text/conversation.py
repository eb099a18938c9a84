"""A conversation as a model reads it: several turns through its chat template, with every word of them maskable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jinja2 import TemplateError

from coft_core.errors import InvalidInputError
from coft_core.text.given import GivenPrompt, prompt_of_text
from coft_core.text.rendering import Rendering
from coft_core.text.turns import BETWEEN_TURNS, Turn

WITHOUT_TEMPLATE = (
    "This model's tokenizer has no chat template; the turns are read as plain text, one paragraph each, without the "
    "names of who says them."
)


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation as one prompt.

    Attributes:
        prompt: What the model reads.
        rendering: How it is read, for :meth:`coft_core.model.language_model.LanguageModel.rendered_as`.
        note: A sentence to be shown with it; empty where a template rendered it.
    """

    prompt: GivenPrompt
    rendering: Rendering
    note: str = ""


def conversation(tokenizer: Any, turns: Sequence[Turn], moment: datetime | None = None) -> Conversation:
    """Put turns through the tokenizer's chat template, or one behind the other where it has none.

    The model goes on with what the assistant says next; where the last turn is the assistant's, with that turn.

    Args:
        tokenizer: A fast tokenizer.
        turns: At least one.
        moment: The moment that fingerprints name for a template that prints the date; None is the present.

    Raises:
        InvalidInputError: There is no turn, nothing is said, or the template takes no such conversation.
    """
    if not any(turn.content.strip() for turn in turns):
        raise InvalidInputError("The conversation is empty; write at least one message.")
    if not tokenizer.chat_template:
        text = BETWEEN_TURNS.join(turn.content for turn in turns)
        plain = prompt_of_text(tokenizer, text, special=True)
        return Conversation(plain, Rendering(kept={text: plain.tokens}), WITHOUT_TEMPLATE)
    goes_on = turns[-1].role == "assistant"
    try:
        text = str(
            tokenizer.apply_chat_template(
                [{"role": turn.role, "content": turn.content} for turn in turns],
                tokenize=False,
                add_generation_prompt=not goes_on,
                continue_final_message=goes_on,
            )
        )
    except (TemplateError, TypeError, ValueError) as error:
        raise InvalidInputError(f"The model's chat template does not take this conversation ({error}).") from error
    prompt = prompt_of_text(tokenizer, text, special=False)
    moment = moment or datetime.now()
    return Conversation(prompt, Rendering(True, moment, {text: prompt.tokens}, as_it_stands=True))
