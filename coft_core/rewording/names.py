"""First names of the other gender, for prompts in which genders are exchanged."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from coft_core.rewording.vocabulary import LexiconWords
from coft_core.types import Span

NameGender = Literal["female", "male"]
KINDS: dict[NameGender, str] = {"female": "female first names", "male": "male first names"}


_BEFORE_SURNAME = re.compile(r"(?<!\w)(?:Mr|Mrs|Ms|Miss|Mx|Dr|Prof)\.?[^\S\n]+\Z")


def is_surname(text: str, span: Span) -> bool:
    """Whether a name follows a title that goes with surnames: "Mr Carter"."""
    return _BEFORE_SURNAME.search(text, 0, span.start) is not None


@dataclass(frozen=True)
class FirstNames:
    """The first names of the shipped lexicons.

    Attributes:
        words: The lexicons.
    """

    words: LexiconWords

    def gender(self, name: str) -> NameGender | None:
        """The gender that a name is given to; None for other words."""
        kind = self.words.kind(name)
        return next((gender for gender, own in KINDS.items() if own == kind), None)

    def other(self, name: str, taken: Collection[str] = ()) -> str | None:
        """The name of the other gender that comes next in the alphabet, and is not taken.

        Maudslay et al. (EMNLP 2019) pair names by how often and how exclusively they are given. The lexicons hold
        neither, so names are paired by spelling: which one is taken is arbitrary, and always the same.

        Args:
            name: The name.
            taken: Names that must not be chosen, in lower case.

        Returns:
            The name; None if the given one is no first name of one gender.
        """
        gender = self.gender(name)
        if gender is None:
            return None
        others = sorted(self.words.kinds("name")[KINDS["male" if gender == "female" else "female"]])
        at = bisect_left(others, name.capitalize())
        ordered = [*others[at:], *others[:at]]
        return next(item for item in ordered if item.lower() not in taken)
