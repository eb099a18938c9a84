"""Chat templates: the reviewer's text inside the text that the model reads."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from coft_core.errors import InvalidInputError
from coft_core.masking.rendering import render

PROBE = "\u2042coft\u2042"
"""A text that no template contains, to find where a template puts the user's message."""


def apply_chat_template(tokenizer: Any, text: str, moment: datetime | None = None) -> tuple[str, int, int]:
    """Put a text into the tokenizer's chat template as the user's message.

    Args:
        tokenizer: A tokenizer with a chat template.
        text: The reviewer's text.
        moment: The local time that a template prints; None takes the present.

    Returns:
        (templated text, index at which the reviewer's text begins in it, characters of white space that the template
        stripped from the text's beginning).

    Raises:
        InvalidInputError: The template changes the text so that spans cannot be placed in it.
    """
    moment = moment or datetime.now()
    templated, probe = render(tokenizer, text, moment), render(tokenizer, PROBE, moment)
    start = probe.find(PROBE)
    stripped = len(text) - len(text.lstrip())
    for shift, message in ((0, text), (stripped, text.strip()), (stripped, text.lstrip())):
        if start >= 0 and templated.startswith(message, start):
            return templated, start, shift
    raise InvalidInputError(
        "This model's chat template rewrites the message, so sensitive spans cannot be placed in it; "
        "use the plain prompt format."
    )
