"""What rewording knows of words: tables of what takes their place, and their kind and forms in the lexicons."""

from __future__ import annotations

import csv
import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

from coft_core.assets import assets_path
from coft_core.text.lexicon import FALSE_FRIEND, LexiconEntry, Lexicons
from coft_core.text.tokens import regular_plural


def grammar_lists() -> dict[str, frozenset[str]]:
    """The lists of small words by which sentences are read, by name."""
    lists = json.loads(assets_path("rewording", "grammar.json").read_text(encoding="utf-8"))
    return {name: frozenset(" ".join(lines).split()) for name, lines in lists.items()}


Gender = Literal["female", "male"]
Reading = Literal["adjective", "noun"]


@dataclass(frozen=True, slots=True)
class GenderedWord:
    """A word for a woman or a girl, the one for a man or a boy, and one that says neither, if there is one."""

    female: str
    male: str
    neutral: str
    neutral_plural: str


@dataclass(frozen=True, slots=True)
class GroupRow:
    """Words of one kind that can take each other's place, in a fixed order."""

    family: str
    reading: str
    kinds: tuple[str, ...]
    words: tuple[str, ...]

    def place(self, word: str) -> int | None:
        """Where a word stands in the row, whatever its letter case and hyphens; None if it does not."""
        return next((place for place, word_at in enumerate(self.words) if _key(word_at) == _key(word)), None)

    def fits(self, reading: Reading) -> bool:
        """Whether its words can stand where an adjective or a noun stands."""
        return self.reading in ("any", reading)


@dataclass(frozen=True, slots=True)
class Hypernym:
    """What says as much as words of a kind, but for the attribute."""

    family: str
    kind: str
    noun: str
    plural: str
    article: bool
    predicate: str


@dataclass(frozen=True, slots=True)
class RewordingTables:
    """All tables."""

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

        The word is in the singular; the family ``"other"`` looks in all.
        """
        rows = [row for row in self.groups if family in (row.family, "other")]
        rows.sort(key=lambda row: not row.fits(reading))
        listed = next((row for row in rows if row.place(word) is not None), None)
        return listed or next((row for row in rows if kind is not None and kind in row.kinds), None)

    def hypernym(self, family: str, kind: str | None) -> Hypernym | None:
        """The neutral word for a kind, else for its family; None where the family has none."""
        rows = [row for row in self.hypernyms if row.family == family]
        of_kind = next((row for row in rows if kind and row.kind == kind), None)
        return of_kind or next((row for row in rows if not row.kind), None)


@lru_cache(maxsize=1)
def shipped_tables() -> RewordingTables:
    """The tables that ship with the program, read once."""
    return RewordingTables(
        tuple(GenderedWord(**row) for row in _rows("gendered.csv")),
        tuple(
            GroupRow(row["family"], row["reading"], _parts(row["kinds"]), _parts(row["words"]))
            for row in _rows("groups.csv")
        ),
        tuple(Hypernym(**{**row, "article": row["article"] == "yes"}) for row in _rows("hypernyms.csv")),
    )


def _rows(name: str) -> Iterator[dict[str, Any]]:
    with assets_path("rewording", name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file, strict=True)


def _parts(cell: str) -> tuple[str, ...]:
    return tuple(filter(None, cell.split("|")))


def _key(word: str) -> str:
    return " ".join(word.lower().replace("-", " ").replace("’", "'").split())


FIRST_NAMES: dict[Gender, str] = {"female": "female first names", "male": "male first names"}
"""Kinds of first names."""

NOT_GROUPS = ("slur", "pronouns", "neopronouns")
"""Kinds of words that are marked in prompts and are no groups to compare."""


class LexiconWords:
    """The words of the shipped lexicons, read once, when first needed; letter case and hyphens do not count."""

    def kinds(self, family: str) -> dict[str, tuple[str, ...]]:
        """Terms of a family by kind, in the order of the lexicon; without kinds that are no groups."""
        return {detail: tuple(terms) for detail, terms in self._terms[family].items()}

    def kind(self, text: str) -> str | None:
        """The kind of a term or of one of its forms; None for other words."""
        entry = self._entry(text)
        return None if entry is None else entry.detail

    def base(self, text: str) -> str:
        """The term that words are the plural, the comparative or the superlative of; other words stay as they are."""
        key = _lexicon_key(text)
        return self._plurals.get(key) or (text if key in self._entries else self._compared.get(key, (text, 0))[0])

    def is_plural(self, text: str) -> bool:
        """Whether words are the plural of a term."""
        return _lexicon_key(text) in self._plurals

    def plural(self, text: str) -> str:
        """The plural of words: as the lexicons have it, else by the regular spelling.

        Plurals stay as they are, and so do terms that have none there, such as "elderly".
        """
        if self.is_plural(text):
            return text
        entry = self._entries.get(_lexicon_key(text))
        if entry is None:
            return regular_plural(text)
        plurals = [form for form in entry.inflections if _is_plural(form)]
        if not plurals and _lexicon_key(f"{text}s") in self._plurals:
            plurals = [f"{text}s"]
        return plurals[0] if plurals else text

    def inflected(self, text: str, like: str) -> str:
        """A term in the form that other words have: the plural of a plural, the superlative of a superlative.

        A term that lacks the form stays as it is.
        """
        if self.is_plural(like):
            return self.plural(text)
        key, entry = _lexicon_key(like), self._entries.get(_lexicon_key(text))
        if entry is None or key in self._entries or key not in self._compared:
            return text
        place = self._compared[key][1]
        return entry.inflections[place] if place < len(entry.inflections) else text

    def is_person(self, text: str) -> bool:
        """Whether a single word names a person or several: "woman", "teenagers", "Americans"."""
        kind, rules = self.kind(text), self._lexicons.rules
        return kind in rules.people_details or (self.is_plural(text) and kind in rules.plural_people_details)

    def name_gender(self, name: str) -> Gender | None:
        """The gender that a first name is given to; None for other words."""
        kind = self.kind(name)
        return next((gender for gender, listed in FIRST_NAMES.items() if listed == kind), None)

    def other_name(self, name: str, taken: Collection[str] = ()) -> str | None:
        """The first name of the other gender that comes next in the alphabet, and is not taken.

        Maudslay et al. (EMNLP 2019) pair names by how often and how exclusively they are given. The lexicons hold
        neither, so names are paired by spelling: which one is taken is arbitrary, and always the same. None is returned
        for what is no first name of one gender; taken names are in lower case.
        """
        gender = self.name_gender(name)
        if gender is None:
            return None
        others = sorted(self.kinds("name")[FIRST_NAMES["male" if gender == "female" else "female"]])
        at = bisect_left(others, name.capitalize())
        ordered = [*others[at:], *others[:at]]
        return next(item for item in ordered if item.lower() not in taken)

    def names_group(self, text: str) -> bool:
        """Whether "the" makes an adjective the name of a group: "the blind"."""
        entry = self._entry(text)
        return entry is not None and "group" in entry.context

    def _entry(self, text: str) -> LexiconEntry | None:
        return self._entries.get(_lexicon_key(self.base(text)))

    @cached_property
    def _lexicons(self) -> Lexicons:
        return Lexicons.load()

    @cached_property
    def _own(self) -> tuple[LexiconEntry, ...]:
        return tuple(entry for entry in self._lexicons.entries if entry.family != FALSE_FRIEND)

    @cached_property
    def _terms(self) -> defaultdict[str, dict[str, list[str]]]:
        terms: defaultdict[str, dict[str, list[str]]] = defaultdict(dict)
        for entry in self._own:
            if entry.detail not in NOT_GROUPS:
                terms[entry.family].setdefault(entry.detail, []).append(entry.term)
        return terms

    @cached_property
    def _entries(self) -> dict[str, LexiconEntry]:
        """Entry by term; the last one of a term that is listed twice."""
        return {_lexicon_key(entry.term): entry for entry in self._own}

    @cached_property
    def _plurals(self) -> dict[str, str]:
        """Term by plural, also of terms whose plural is listed as a term of its own: "black", "blacks"."""
        forms = {
            key: entry.term
            for entry in self._own
            for form in entry.inflections
            if _is_plural(form) and (key := _lexicon_key(form)) not in self._entries
        }
        listed = {
            key: singular.term
            for entry in self._own
            if entry.term.endswith("s")
            and (singular := self._entries.get((key := _lexicon_key(entry.term))[:-1])) is not None
            and singular.family == entry.family
        }
        return {**forms, **listed}

    @cached_property
    def _compared(self) -> dict[str, tuple[str, int]]:
        """Term by comparative or superlative, with the form's place among the term's forms."""
        return {
            _lexicon_key(form): (entry.term, place)
            for entry in self._own
            for place, form in enumerate(entry.inflections)
            if not _is_plural(form)
        }


@lru_cache(maxsize=1)
def lexicon_words() -> LexiconWords:
    """The words of the shipped lexicons, read once."""
    return LexiconWords()


def _is_plural(form: str) -> bool:
    return not form.endswith(("er", "est"))


def _lexicon_key(text: str) -> str:
    return text.lower().replace("-", " ")
