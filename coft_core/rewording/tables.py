"""The shipped tables of words that stand for each other: gendered pairs, groups of one kind, and neutral words."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from coft_core.assets import assets_path

Gender = Literal["female", "male"]
Reading = Literal["adjective", "noun"]


@dataclass(frozen=True, slots=True)
class GenderedWord:
    """A word for a woman or a girl beside the one for a man or a boy.

    Attributes:
        female: The one.
        male: The other.
        neutral: One that says neither; empty where there is none.
        neutral_plural: Its plural; empty where it is spelled regularly.
    """

    female: str
    male: str
    neutral: str
    neutral_plural: str


@dataclass(frozen=True, slots=True)
class GroupRow:
    """Words of one kind that can take each other's place, in a fixed order.

    Attributes:
        family: Their attribute family.
        reading: ``"adjective"``, ``"noun"`` or ``"any"``: as what they can stand.
        kinds: Kinds of the lexicons whose other words this row stands in for.
        words: The words; rows of one family list what belongs together at the same place, such as "Muslim" and
            "mosque".
    """

    family: str
    reading: str
    kinds: tuple[str, ...]
    words: tuple[str, ...]

    def place(self, word: str) -> int | None:
        """Where a word stands in the row, whatever its letter case and hyphens; None if it does not."""
        return next((place for place, own in enumerate(self.words) if _key(own) == _key(word)), None)

    def fits(self, reading: Reading) -> bool:
        """Whether its words can stand where an adjective or a noun stands."""
        return self.reading in ("any", reading)


@dataclass(frozen=True, slots=True)
class Hypernym:
    """What says as much as words of a kind, but for the attribute.

    Attributes:
        family: Attribute family.
        kind: Kind of the lexicons; empty for all others of the family.
        noun: Noun that takes a noun's place; empty where there is none.
        plural: Its plural.
        article: Whether an article must be put before the noun where the word had none ("in Mexico", "in a country").
        predicate: What takes the place of an adjective after a verb ("is Muslim", "is of a certain religion"); empty
            where the words are no adjectives.
    """

    family: str
    kind: str
    noun: str
    plural: str
    article: bool
    predicate: str


@dataclass(frozen=True, slots=True)
class RewordingTables:
    """All tables.

    Attributes:
        gendered: Gendered words; the first row of a word is the one that counts.
        groups: Groups; likewise.
        hypernyms: Neutral words.
    """

    gendered: tuple[GenderedWord, ...]
    groups: tuple[GroupRow, ...]
    hypernyms: tuple[Hypernym, ...]

    def gendered_word(self, word: str) -> tuple[GenderedWord, Gender] | None:
        """The row of a gendered word, and which of its two it is; None for other words."""
        for row in self.gendered:
            if _key(word) == _key(row.female):
                return row, "female"
            if _key(word) == _key(row.male):
                return row, "male"
        return None

    def group_row(self, word: str, family: str, reading: Reading, kind: str | None) -> GroupRow | None:
        """The row of a word: one that lists it, else one that stands in for its kind; one that fits its reading first.

        Args:
            word: The word, in the singular.
            family: Family of the span; ``"other"`` looks in all.
            reading: As what it stands.
            kind: Its kind in the lexicons.
        """
        rows = [row for row in self.groups if family in (row.family, "other")]
        rows.sort(key=lambda row: not row.fits(reading))
        listed = next((row for row in rows if row.place(word) is not None), None)
        return listed or next((row for row in rows if kind is not None and kind in row.kinds), None)

    def hypernym(self, family: str, kind: str | None) -> Hypernym | None:
        """The neutral word for a kind, else for its family; None where the family has none."""
        rows = [row for row in self.hypernyms if row.family == family]
        own = next((row for row in rows if kind and row.kind == kind), None)
        return own or next((row for row in rows if not row.kind), None)


@lru_cache(maxsize=1)
def shipped_tables() -> RewordingTables:
    """The tables that ship with the program, read once."""
    return RewordingTables(
        tuple(
            GenderedWord(row["female"], row["male"], row["neutral"], row["neutral_plural"])
            for row in _rows("gendered.csv")
        ),
        tuple(
            GroupRow(row["family"], row["reading"], _parts(row["kinds"]), _parts(row["words"]))
            for row in _rows("groups.csv")
        ),
        tuple(
            Hypernym(row["family"], row["kind"], row["noun"], row["plural"], row["article"] == "yes", row["predicate"])
            for row in _rows("hypernyms.csv")
        ),
    )


def _rows(name: str) -> Iterator[dict[str, str]]:
    with assets_path("rewording", name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file, strict=True)


def _parts(cell: str) -> tuple[str, ...]:
    return tuple(part for part in cell.split("|") if part)


def _key(word: str) -> str:
    return " ".join(word.lower().replace("-", " ").replace("’", "'").split())
