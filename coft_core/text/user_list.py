"""A reviewer's own word list: terms that are always sensitive, and terms that always stay visible.

Terms match whole words, whatever their letter case, and the longest first. Text and terms are compared by Unicode's
canonical decomposition and case folding, so that composed and decomposed accents are equal and accented letters
differ from plain ones; any run of white space is one space, typographic apostrophes and hyphens are the plain ones,
and invisible characters inside words do not count. Offsets are those of the text as typed.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from coft_core.errors import InvalidInputError
from coft_core.text.merging import disjoint
from coft_core.types import KNOWN_FAMILIES, Span, UserTerm

LONGEST_NAME = 80
LONGEST_TERM = 200

_PLAIN = str.maketrans(
    {**dict.fromkeys("\u2018\u2019\u02bc\u0060\u00b4\uff07", "'"), **dict.fromkeys("\u2010\u2011\u2212", "-")}
)
_ZERO_WIDTH_SPACE = "\u200b"


@dataclass(frozen=True, slots=True)
class UserList:
    """A named list of terms, in any order, that win over what a detector finds."""

    name: str
    terms: tuple[UserTerm, ...] = ()
    _by_text: Mapping[str, UserTerm] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Validate the name and every term, and fold the terms once."""
        if not self.name.strip() or len(self.name) > LONGEST_NAME:
            raise InvalidInputError(f"A word list needs a name of 1 to {LONGEST_NAME} characters.")
        seen: dict[str, UserTerm] = {}
        for number, term in enumerate(self.terms, start=1):
            problem = term_problem(term)
            if problem:
                raise InvalidInputError(f"Term {number} of the word list {self.name!r} {problem}.")
            if seen.setdefault(folded(term.term), term) is not term:
                raise InvalidInputError(
                    f"The word list {self.name!r} has {term.term!r} twice; keep one of the two terms."
                )
        object.__setattr__(self, "_by_text", seen)

    @property
    def digest(self) -> str:
        """SHA-256 (hexadecimal) of the terms, whatever their order and letter case."""
        content = sorted((text, term.family, term.keep) for text, term in self._by_text.items())
        return hashlib.sha256(json.dumps(content, ensure_ascii=True).encode("ascii")).hexdigest()

    @property
    def label(self) -> str:
        """Name and digest, as in the version of a detector that uses the list."""
        return f"list {self.name!r}+{self.digest}"

    def find(self, text: str) -> tuple[Span, ...]:
        """The list's terms in a text as typed, in order; of overlapping ones the longest, then the first."""
        places = _fold(text)
        return tuple(
            Span(places.starts[start], places.ends[end - 1], term.family, "list", self.name, kept=term.keep)
            for start, end, term in disjoint(_matches(places, self._by_text), lambda match: match[:2])
        )


def term_problem(term: UserTerm) -> str:
    """What is wrong with a term, as the end of a sentence that begins with it; empty if nothing is."""
    if len(term.term) > LONGEST_TERM:
        return f"has {len(term.term):,} characters; at most {LONGEST_TERM} are allowed"
    if not folded(term.term):
        return "is empty; give it a word"
    if term.family not in KNOWN_FAMILIES:
        return f"has the unknown family {term.family!r}; use one of {', '.join(KNOWN_FAMILIES)}"
    return ""


def folded(term: str) -> str:
    """A term in the form in which terms and texts are compared; equal forms are the same term."""
    return _fold(term).text.strip()


@dataclass(frozen=True, slots=True)
class _Folded:
    """A folded text: the place in the original text of each character, and the cluster to which it belongs."""

    text: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    def whole(self, start: int, end: int) -> bool:
        """Whether a range cuts no character of the original text and no word at its ends."""
        return self._border(start) and self._border(end)

    def _border(self, at: int) -> bool:
        if at in (0, len(self.text)):
            return True
        if self.starts[at - 1] == self.starts[at]:
            return False
        return not (_in_word(self.text[at - 1]) and _in_word(self.text[at]))


def _matches(places: _Folded, terms: Mapping[str, UserTerm]) -> Iterator[tuple[int, int, UserTerm]]:
    lengths = sorted({len(term) for term in terms})
    for start in range(len(places.text)):
        for length in lengths:
            term = terms.get(places.text[start : start + length])
            if term is not None and start + length <= len(places.text) and places.whole(start, start + length):
                yield start, start + length, term


def _fold(text: str) -> _Folded:
    pieces: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for start, end in _clusters(text):
        piece = _fold_cluster(text[start:end])
        if piece == " " and pieces and pieces[-1] == " ":
            ends[-1] = end
            continue
        pieces.extend(piece)
        starts.extend([start] * len(piece))
        ends.extend([end] * len(piece))
    return _Folded("".join(pieces), tuple(starts), tuple(ends))


def _clusters(text: str) -> Iterator[tuple[int, int]]:
    """Ranges of characters with the combining marks that follow them."""
    start = 0
    for index in range(1, len(text) + 1):
        if index == len(text) or not unicodedata.combining(text[index]):
            yield start, index
            start = index


def _fold_cluster(cluster: str) -> str:
    if cluster.isspace() or cluster == _ZERO_WIDTH_SPACE:
        return " "
    visible = "".join(char for char in cluster if unicodedata.category(char) != "Cf")
    decomposed = unicodedata.normalize("NFD", visible.translate(_PLAIN))
    return unicodedata.normalize("NFD", decomposed.casefold())


def _in_word(char: str) -> bool:
    """Whether a word goes on through this character; scripts that write no spaces have a border at every one."""
    return (char.isalnum() or char == "_" or unicodedata.combining(char) > 0) and (
        unicodedata.east_asian_width(char) != "W"
    )
