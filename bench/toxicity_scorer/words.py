"""The words that training sentences are written with: hostile words, groups, fillers; and the scorer's lists."""

from __future__ import annotations

import csv
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from coft_core.scorers.embedded import (
    ADDRESS,
    FUNCTION,
    GROUP,
    HOSTILE_KINDS,
    NEGATION,
    PHRASE_WORDS,
    PRONOUN,
    WordLists,
    words_of,
)
from coft_core.text.lexicon import Lexicons
from coft_core.text.tokens import regular_plural

FOLDER: Final = Path(__file__).parent
SPLITS: Final = ("train", "dev", "test")
SLUR, SLUR_DETAIL = "slur", "slur"
OTHER: Final = "other"
"""Family of the groups that belong to none: occupations and pastimes."""

_CYCLE = ("train", "train", "test", "train", "dev", "train", "test")
_NOUNS = frozenset(("insult", "dehumanising", "slur"))
_NO_COUNT_NOUNS = frozenset(("retarded", "spastic", "white trash", "trailer trash"))
_ADDRESSES = "you your yours yourself yourselves you're you've you'll you'd u ya y'all"
_FUNCTION_WORDS = (
    "a the this that these those such so too very as like than then there here i me my we us our they them their "
    "it its who what which how when where why be am is are was were been being do does did have has had will "
    "would shall should can could may might must to of in on at by for from with about into out up down off over "
    "and or but if because all any every each some more most only just also even again ever i'm he's she's it's "
    "they're we're that's i'll he'll she'll they'll we'll i've they've we've i'd 's let's one someone somebody "
    "everyone everybody people 0"
)
_NEGATIONS = (
    "not no never nobody none neither nor without cannot isn't aren't wasn't weren't don't doesn't didn't won't "
    "wouldn't shouldn't mustn't can't couldn't hasn't haven't hadn't ain't"
)


@dataclass(frozen=True, slots=True)
class Hostile:
    """A hostile word."""

    kind: str
    term: str
    form: str
    listed: bool
    split: str


@dataclass(frozen=True, slots=True)
class People:
    """A group of people."""

    family: str
    one: str
    many: str
    split: str


@dataclass(frozen=True)
class Words:
    """All words of the sentences."""

    hostile: tuple[Hostile, ...]
    people: tuple[People, ...]
    fillers: dict[str, tuple[str, ...]]
    lexicons: Lexicons

    @cached_property
    def lists(self) -> WordLists:
        """The scorer's lists: hostile words that are listed, and the lexicons' groups and pronouns."""
        terms: dict[str, list[tuple[str, ...]]] = {
            FUNCTION: [(word,) for word in _FUNCTION_WORDS.split()],
            ADDRESS: [(word,) for word in _ADDRESSES.split()],
            NEGATION: [(word,) for word in _NEGATIONS.split()],
            GROUP: list(_read_terms([*self._unconditional("group"), *self._named_adjectives(), *self._named_groups()])),
            PRONOUN: list(_read_terms(self._unconditional("pronoun"))),
        }
        for kind in HOSTILE_KINDS:
            own = [word for word in self.hostile if word.kind == kind and word.listed]
            terms[kind] = list(_read_terms([form for word in own for form in (word.term, word.form) if form]))
        return WordLists.of(terms)

    def _unconditional(self, wanted: str) -> Iterator[str]:
        """Terms that the lexicons list whatever stands beside them, first names left out."""
        for entry in self.lexicons.entries:
            kind = "pronoun" if entry.detail in ("pronouns", "titles") else "group"
            if entry.family not in ("none", "name") and entry.detail != SLUR_DETAIL and not entry.context:
                yield from (entry.term, *entry.inflections) if kind == wanted else ()

    def _named_adjectives(self) -> Iterator[str]:
        """Terms with a condition that the groups of ``groups.tsv`` are named with, such as "old" and "Black"."""
        used = {word for people in self.people for word in words_of(f"{people.one} {people.many}")}
        for entry in self.lexicons.entries:
            if entry.context and entry.family not in ("none", "name") and words_of(entry.term)[-1] in used:
                yield from (entry.term, *entry.inflections)

    def _named_groups(self) -> Iterator[str]:
        """The groups of ``groups.tsv``, without their articles; first names and groups of no family left out."""
        for people in self.people:
            if people.family not in ("name", OTHER):
                yield from (people.many, people.one.split(" ", 1)[1])

    def of_split(self, split: str) -> Choices:
        """The words that sentences of a split are written with."""
        return Choices(
            tuple(word for word in self.hostile if word.split == split),
            tuple(people for people in self.people if people.split == split),
            {
                slot: tuple(v for place, v in enumerate(values) if _CYCLE[place % len(_CYCLE)] == split)
                for slot, values in self.fillers.items()
            },
        )


@dataclass(frozen=True)
class Choices:
    """Words of one split, to draw from."""

    hostile: tuple[Hostile, ...]
    people: tuple[People, ...]
    fillers: dict[str, tuple[str, ...]]

    def draw_hostile(self, kind: str, form: bool, rng: random.Random) -> Hostile:
        """A hostile word of a kind that has the asked form."""
        return rng.choice([word for word in self.hostile if word.kind == kind and (word.form or not form)])

    def draw_people(self, rng: random.Random) -> People:
        """A group: first one of the families, each equally likely, then one of its groups."""
        family = rng.choice(sorted({people.family for people in self.people}))
        return rng.choice([people for people in self.people if people.family == family])


def read_words(folder: Path = FOLDER) -> Words:
    """Read the word files of a folder."""
    lexicons = Lexicons.load()
    seen: Counter[str] = Counter()
    hostile = [
        Hostile(row["category"], row["term"], _form(row), row["listed"] == "yes", _next_split(seen, _part(row)))
        for row in read_table(folder / "lexicon.tsv")
    ]
    slurs = sorted({entry.term for entry in lexicons.entries if entry.detail == SLUR_DETAIL})
    hostile += [
        Hostile(SLUR, term, "" if term in _NO_COUNT_NOUNS else regular_plural(term), True, _next_split(seen, SLUR))
        for term in slurs
        if not (term.endswith("s") and term[:-1] in slurs)
    ]
    people = [
        People(row["family"], row["one"], row["many"], _next_split(seen, row["family"]))
        for row in read_table(folder / "groups.tsv")
    ]
    fillers = json.loads((folder / "fillers.json").read_text(encoding="utf-8"))
    return Words(tuple(hostile), tuple(people), {slot: tuple(values) for slot, values in fillers.items()}, lexicons)


def read_table(path: Path) -> list[dict[str, str]]:
    """Rows of a tab-separated file whose first lines, beginning with ``#``, say what it is for."""
    with path.open(encoding="utf-8", newline="") as file:
        lines = [line for line in file if line.strip() and not line.startswith("#")]
    return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def _part(row: dict[str, str]) -> str:
    return f"{row['category']}, listed: {row['listed']}"


def _next_split(seen: Counter[str], part: str) -> str:
    """Splits in turn, so that each category has words in each; the files' order decides."""
    split = _CYCLE[seen[part] % len(_CYCLE)]
    seen[part] += 1
    return split


def _form(row: dict[str, str]) -> str:
    return row["form"] or (regular_plural(row["term"]) if row["category"] in _NOUNS else "")


def _read_terms(terms: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Terms as the words that the scorer reads; longer ones than it looks for are left out."""
    found = (words_of(term) for term in terms)
    return (words for words in found if 0 < len(words) <= PHRASE_WORDS)
