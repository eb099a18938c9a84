"""Regular English plurals; irregular forms are data, in the lexicons' ``forms`` column."""

from __future__ import annotations

_SIBILANT_ENDINGS = ("s", "x", "z", "ch", "sh")
_VOWELS = "aeiou"


def regular_plural(term: str) -> str:
    """Pluralise the last word of a term by the regular spelling rules.

    Args:
        term: A singular noun or noun phrase, e.g. ``"single mother"``.

    Returns:
        The plural, e.g. ``"single mothers"``; the letter case of the term is kept.
    """
    lower = term.lower()
    if lower.endswith("y") and len(term) > 1 and lower[-2] not in _VOWELS:
        return term[:-1] + "ies"
    if lower.endswith(_SIBILANT_ENDINGS):
        return term + "es"
    return term + "s"
