"""The indefinite article: whether "a" or "an" stands before a word, by how the word sounds."""

from __future__ import annotations

import re
import unicodedata

_SILENT_H = ("hour", "honest", "honor", "honour", "heir")
_YOU_OR_ONE = re.compile(
    r"eu|ew|one(?![a-mo-z])|once|oui|u(?:k|f|gand|yg|biq|ni(?![nm]|den)|s[aeiu]|t[aeio]|r[aiou]|vul)(?!ber)"
)
"""Words that are written with a vowel first and spoken with a consonant: European, one-armed, university, user."""
_VOWEL_LETTERS = frozenset("AEFHILMNORSX")
_SPOKEN_AS_WORDS = frozenset(("NASA", "NATO", "FIFA", "HUD", "LASER", "RADAR", "SARS", "SIM", "SWAT", "FEMA", "MENSA"))
_START = re.compile(r"[\W_]*([^\W_]+)")


def takes_an(phrase: str) -> bool | None:
    """Whether a phrase takes "an"; None where it begins with no letter or digit.

    Numbers and abbreviations go by how they are spoken: an 8-year-old, an HIV-positive man, a UN worker.
    """
    found = _START.match(phrase)
    if found is None:
        return None
    word = found.group(1)
    digits = re.match(r"\d+", word)
    if digits is not None:
        return _number_takes_an(digits.group())
    plain = "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))
    if len(plain) == 1 or (plain.isupper() and plain not in _SPOKEN_AS_WORDS and _is_spelled_out(plain)):
        return plain[0].upper() in _VOWEL_LETTERS
    lower = plain.lower()
    if lower.startswith(_SILENT_H):
        return True
    return lower[:1] in "aeiou" and _YOU_OR_ONE.match(lower) is None


def _number_takes_an(digits: str) -> bool:
    """Eight, eleven, eighteen and the eighties, as the number's first group of three digits is spoken."""
    leading = digits[: (len(digits) - 1) % 3 + 1]
    return leading.startswith("8") or leading in ("11", "18")


def _is_spelled_out(word: str) -> bool:
    """Whether capitals are read letter by letter: short ones are, longer ones only without a vowel to speak them by."""
    return len(word) <= 4 or not any(letter in "AEIOU" for letter in word[1:])
