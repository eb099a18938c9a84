"""Lists of words, as they are written down in this package."""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    """The words of a text, separated by white space."""
    return frozenset(text.split())
