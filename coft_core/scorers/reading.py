"""Texts cut into windows: sentences, or overlapping parts of long ones.

A scorer judges each window by itself, so that a long harmless text does not hide a hostile sentence in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

WINDOW = 40
"""Words of a window at most."""
STRIDE = 20
"""Words after which the next window of a long sentence begins."""

_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|\n+")
_WORD = re.compile(r"'s\b|[^\W_]+(?:'(?!s\b)[^\W_]+)*")
_SAME = {"an": "a"}
"""Words read as another one, so that the article before an insult does not say with what letter it begins."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The different windows of several texts.

    Attributes:
        words: Words of each window, in the order in which windows are first met.
        texts: For each text the places of its windows in ``words``; never empty.
    """

    words: tuple[tuple[str, ...], ...]
    texts: tuple[tuple[int, ...], ...]


def words_of(sentence: str) -> tuple[str, ...]:
    """The words of a sentence in lower case: a possessive ending is a word, ``an`` is ``a``, a number is ``0``."""
    found = _WORD.findall(sentence.lower().replace("’", "'"))
    return tuple("0" if word.isdigit() else _SAME.get(word, word) for word in found)


def windows_of(sentence: str) -> list[tuple[str, ...]]:
    """The windows of a sentence; a sentence without words has one without words."""
    words = words_of(sentence)
    last = max(len(words) - WINDOW, 0)
    starts = [*range(0, last, STRIDE), last]
    return [words[start : start + WINDOW] for start in starts]


def read(texts: Sequence[str]) -> Windows:
    """Cut texts into windows.

    Candidates for the next token differ in the last sentence alone: what they share is cut once, and kept once.
    """
    shared, begin = _shared_sentences(texts)
    places: dict[tuple[str, ...], int] = {}
    known: dict[str, tuple[int, ...]] = {}

    def placed(sentence: str) -> tuple[int, ...]:
        if sentence not in known:
            known[sentence] = tuple(places.setdefault(words, len(places)) for words in windows_of(sentence))
        return known[sentence]

    first = [place for sentence in shared for place in placed(sentence)]
    rows = [
        (*first, *(place for sentence in _SENTENCE_END.split(text[begin:]) for place in placed(sentence)))
        for text in texts
    ]
    return Windows(tuple(places), tuple(rows))


def _shared_sentences(texts: Sequence[str]) -> tuple[list[str], int]:
    """The whole sentences that all texts begin with, and the character at which the next one begins."""
    first, last = min(texts, default=""), max(texts, default="")
    length = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    ends = [match for match in _SENTENCE_END.finditer(first, 0, length) if match.end() < length]
    return (_SENTENCE_END.split(first[: ends[-1].end()])[:-1], ends[-1].end()) if ends else ([], 0)
