"""Lone surrogates: halves of a character that JSON and broken copies can hold, and that no tokenizer can read."""

from __future__ import annotations

import re

from coft_core.errors import InvalidInputError

_SURROGATES = re.compile("[\ud800-\udfff]")


def encodable(text: str) -> str:
    """The text with lone surrogates replaced one for one, for readers that cannot encode them; offsets stay."""
    return _SURROGATES.sub("\ufffd", text)


def surrogate_problem(text: str) -> str:
    """What is wrong with a text that holds a lone surrogate, as the rest of a sentence about it; empty if none does."""
    found = _SURROGATES.search(text)
    if found is None:
        return ""
    code = f"U+{ord(found.group()):04X}"
    return (
        f"holds half of a character ({code}, a lone surrogate) at character {found.start() + 1}, which no model can "
        "read; delete it or type it again"
    )


def require_encodable(text: str, what: str = "A text that the model is to read") -> None:
    """Refuse a text with a lone surrogate.

    Args:
        text: The text.
        what: What it is, as the beginning of the sentence.

    Raises:
        InvalidInputError: It holds one; the sentence says which and where.
    """
    if problem := surrogate_problem(text):
        raise InvalidInputError(f"{what} {problem}.")
