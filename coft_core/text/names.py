"""Names of people taken out of a text: "the person", or "person A" and "person B" where there are several."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Literal

from coft_core.text.agreement import has_owner
from coft_core.text.vocabulary import LexiconWords
from coft_core.types import Span

NameGender = Literal["female", "male"]
KINDS: dict[NameGender, str] = {"female": "female first names", "male": "male first names"}


_BEFORE_SURNAME = re.compile(r"(?<!\w)(?:Mr|Mrs|Ms|Miss|Mx|Dr|Prof)\.?[^\S\n]+\Z")


def is_surname(text: str, span: Span) -> bool:
    """Whether a name follows a title that goes with surnames: "Mr Carter"."""
    return _BEFORE_SURNAME.search(text, 0, span.start) is not None


@dataclass(frozen=True)
class FirstNames:
    """The first names of the lexicons."""

    words: LexiconWords

    def gender(self, name: str) -> NameGender | None:
        """The gender that a name is given to; None for other words."""
        kind = self.words.kind(name)
        return next((gender for gender, listed in KINDS.items() if listed == kind), None)

    def other(self, name: str, taken: Collection[str] = ()) -> str | None:
        """The name of the other gender that comes next in the alphabet, and is not taken.

        Maudslay et al. (EMNLP 2019) pair names by how often and how exclusively they are given. The lexicons hold
        neither, so names are paired by spelling: which one is taken is arbitrary, and always the same. None is returned
        for what is no first name of one gender; taken names are in lower case.
        """
        gender = self.gender(name)
        if gender is None:
            return None
        others = sorted(self.words.kinds("name")[KINDS["male" if gender == "female" else "female"]])
        at = bisect_left(others, name.capitalize())
        ordered = [*others[at:], *others[:at]]
        return next(item for item in ordered if item.lower() not in taken)


_SURNAMES = re.compile(r"(?:[^\S\n]+[A-Z][\w’-]+)*")
_GAP = re.compile(r"[^\S\n]+")


def person_words(text: str, names: Sequence[Span], spans: Sequence[Span]) -> dict[Span, str]:
    """What takes the place of a text's names, by the characters that go; ``spans`` has the titles beside them.

    A name goes with the title before it and the capitalised words after it. Two names that share a word are one person.
    """
    runs: list[Span] = []
    for span in sorted(names):
        if not runs or span.start >= runs[-1].end:
            runs.append(_run(text, span, spans))
    parts = {run: _GAP.split(text[run.start : run.end]) for run in runs}
    people: dict[str, int] = {}
    for named in parts.values():
        person = next((people[part] for part in named if part in people), len(set(people.values())))
        people.update(dict.fromkeys(named, person))
    if len(set(people.values())) == 1:
        return {run: "person" if has_owner(text, run.start) else "the person" for run in runs}
    letters = dict(enumerate(ascii_uppercase))
    return {run: f"person {letters.get(people[named[0]], people[named[0]] + 1)}" for run, named in parts.items()}


def _run(text: str, span: Span, spans: Sequence[Span]) -> Span:
    surnames = _SURNAMES.match(text, span.end)
    start = span.start
    for other in spans:
        title = other.detail == "titles" or text[other.start : other.end].rstrip(".") in ("Mr", "Mrs", "Ms", "Miss")
        if title and _GAP.fullmatch(text, other.end, span.start):
            start = other.start
    return Span(start, surnames.end() if surnames else span.end, span.category)
