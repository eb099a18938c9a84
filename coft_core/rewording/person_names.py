"""Names of people taken out of a text: "the person", or "person A" and "person B" where there are several."""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import ascii_uppercase

from coft_core.rewording.standing import has_owner
from coft_core.types import Span

_SURNAMES = re.compile(r"(?:[^\S\n]+[A-Z][\w’-]+)*")
_GAP = re.compile(r"[^\S\n]+")


class PersonNames:
    """What takes the place of the names of a text.

    A name goes with the title before it and the capitalised words after it. Two names that share a word are one person.

    Attributes:
        words: New words by the characters that they replace.
    """

    def __init__(self, text: str, names: Sequence[Span], spans: Sequence[Span]) -> None:
        """Find the people.

        Args:
            text: The text.
            names: Spans that are names.
            spans: All spans, for the titles among them.
        """
        runs: list[Span] = []
        for span in sorted(names):
            if not runs or span.start >= runs[-1].end:
                runs.append(_run(text, span, spans))
        people: dict[str, int] = {}
        for run in runs:
            parts = _GAP.split(text[run.start : run.end])
            known = next((people[part] for part in parts if part in people), len(set(people.values())))
            people.update(dict.fromkeys(parts, known))
        single = len(set(people.values())) == 1
        self.words = {run: _named(text, run, None if single else people[_first(text, run)]) for run in runs}


def _run(text: str, span: Span, spans: Sequence[Span]) -> Span:
    end = _SURNAMES.match(text, span.end)
    start = span.start
    for other in spans:
        title = other.detail == "titles" or text[other.start : other.end].rstrip(".") in ("Mr", "Mrs", "Ms", "Miss")
        if title and _GAP.fullmatch(text, other.end, span.start):
            start = other.start
    return Span(start, span.end if end is None else end.end(), span.category)


def _first(text: str, run: Span) -> str:
    return _GAP.split(text[run.start : run.end])[0]


def _named(text: str, run: Span, person: int | None) -> str:
    if person is not None:
        return f"person {ascii_uppercase[person] if person < len(ascii_uppercase) else person + 1}"
    return "person" if has_owner(text, run.start) else "the person"
