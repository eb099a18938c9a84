"""What several records are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

JsonObject = dict[str, Any]
"""A JSON object with string keys; numbers in it must be finite."""


@dataclass(frozen=True, slots=True)
class SpanRecord:
    """A sensitive character span, offsets into the text as typed.

    Attributes:
        start: First character, 0-based.
        end: One past the last character.
        category: Attribute family.
        source: Who found it.
        detail: What exactly matched.
        kept: True for a whitelisted span, which is never masked.
        score: How sure its source is, 0 to 1; None where there is nothing to say.
        suggested: True for a span that is shown and not masked.
    """

    start: int
    end: int
    category: str = "other"
    source: str = "user"
    detail: str = ""
    kept: bool = False
    score: float | None = None
    suggested: bool = False
