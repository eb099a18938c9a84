"""Cues that only hint at a protected attribute, and when they are masked although no reviewer said so.

"Muslim" says outright what a first name, a family role or an income only hints at. Beside an attribute that is said
outright, a hint is a suggestion for the reviewer. In a text without one it is all that tells the group: left visible,
both readings would be nearly the same text, and an audit of it would find nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from coft_core.masking.tokens import fold
from coft_core.types import PROXY_FAMILIES, Span

HINT_DETAILS: Final = frozenset(("skin and face", "hair", "religious adjectives", "states of mind"))
"""Kinds of term that only hint, although their family is a protected one ("freckled", "devout", "crazy")."""

_STRONGEST_FIRST: Final = ("socioeconomic", "name", "family", "")
_PRONOUNS: Final = "pronouns"


def only_hints(family: str, detail: str) -> bool:
    """Whether a term of a family and kind hints at an attribute and does not say it."""
    return family in PROXY_FAMILIES or detail in HINT_DETAILS


def settle_hints(spans: Sequence[Span], text: str) -> list[Span]:
    """Mask the hints of a text that says no attribute outright.

    Of several kinds of hint the strongest is masked: income before a first name, a name before a family role, a role
    before anything else. Pronouns say nothing outright here, since they agree with whoever is meant. Beside another
    word for gender ("woman") no hint is masked but a name, which would give back what the mask of that word hides.
    Names stay visible where more than one person is named beside words for gender, pronouns included, or more than two
    without any: nothing else would keep them apart.

    Args:
        spans: What a detector found, every hint suggested.
        text: The text.

    Returns:
        The spans in their order, those hints no longer suggested.
    """
    hints = [span for span in spans if span.suggested and only_hints(span.category, span.detail)]
    outright = {span.category for span in spans if span.masked and span.detail != _PRONOUNS}
    if not hints or outright - {"gender"}:
        return list(spans)
    kind = min(map(_kind, hints), key=_STRONGEST_FIRST.index)
    chosen = [span for span in hints if _kind(span) == kind]
    gendered = any(span.masked and span.category == "gender" for span in spans)
    if _people(chosen, text) > (1 if gendered else 2) if kind == "name" else outright:
        return list(spans)
    return [replace(span, suggested=False) if span in chosen else span for span in spans]


def _kind(span: Span) -> str:
    return span.category if span.category in PROXY_FAMILIES else ""


def _people(names: Sequence[Span], text: str) -> int:
    """Number of people that names tell apart: names that share a word are one person's."""
    people: list[set[str]] = []
    for span in names:
        words = {fold(word).lower() for word in text[span.start : span.end].replace("-", " ").split()}
        known = [person for person in people if person & words]
        people = [person for person in people if person not in known]
        people.append(words.union(*known))
    return len(people)
