"""Chat templates: the reviewer's text inside the text that the model reads."""

from __future__ import annotations

from typing import Any

from coft_core.errors import InvalidInputError

PROBE = "\u2042coft\u2042"
"""A text that no template contains, to find where a template puts the user's message."""


def apply_chat_template(tokenizer: Any, text: str) -> tuple[str, int, int]:
    """Put a text into the tokenizer's chat template as the user's message.

    Args:
        tokenizer: A tokenizer with a chat template.
        text: The reviewer's text.

    Returns:
        (templated text, index at which the reviewer's text begins in it, characters of white space that the template
        stripped from the text's beginning).

    Raises:
        InvalidInputError: The template changes the text so that spans cannot be placed in it.
    """
    templated, probe = _render(tokenizer, text), _render(tokenizer, PROBE)
    start = probe.find(PROBE)
    stripped = len(text) - len(text.lstrip())
    for shift, message in ((0, text), (stripped, text.strip()), (stripped, text.lstrip())):
        if start >= 0 and templated.startswith(message, start):
            return templated, start, shift
    raise InvalidInputError(
        "This model's chat template rewrites the message, so sensitive spans cannot be placed in it; "
        "load the model without its template."
    )


def _render(tokenizer: Any, content: str) -> str:
    messages = [{"role": "user", "content": content}]
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
