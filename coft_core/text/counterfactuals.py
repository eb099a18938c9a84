"""Substitutions of a prompt's attributes: the same text about another gender, another group, or someone else's age.

Exchanging the genders of a text, names included, is the counterfactual data substitution of Maudslay, Gonen, Cotterell
and Teufel, "It's All in the Name: Mitigating Gender Bias with Name-Based Counterfactual Data Substitution", EMNLP 2019.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, cycle, zip_longest

from coft_core.errors import InvalidInputError
from coft_core.text.agreement import (
    FORMS,
    PRONOUN_SETS,
    Pronoun,
    PronounSet,
    find_pronouns,
    is_compound_part,
    is_pronoun,
    is_surname,
    standing,
)
from coft_core.text.lexicon import Lexicons
from coft_core.text.rewording import reword
from coft_core.text.vocabulary import GroupRow, LexiconWords, Reading, lexicon_words, shipped_tables
from coft_core.types import KNOWN_FAMILIES, Span

AGES = (25, 45, 70)
"""Ages in years that stand for the young, the middle-aged and the old."""

GENDERED_FAMILIES = ("gender", "family", "name", "orientation", "other")
"""Families whose words can tell a gender."""

_EXCHANGED: dict[PronounSet, PronounSet] = {"she": "he", "he": "she"}
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Substitution:
    """A prompt with one of its attributes substituted, and what was substituted, e.g. ``"he → she"``."""

    label: str
    text: str


@dataclass(frozen=True, slots=True)
class Substitutions:
    """What a prompt's attributes can be substituted by."""

    found: tuple[Substitution, ...]
    left: tuple[str, ...]


def substitutions(text: str, spans: Sequence[Span]) -> Substitutions:
    """Every substitution of a prompt that the shipped tables know; each changes one attribute and all its words.

    The first substitution of each family comes first, then the second of each. What is distinct stays distinct: the
    words of a family are all moved on by as many places in their rows, so that two groups of a prompt never become one.
    Words that tell the gender of a substituted person follow where they are only suggested or not marked at all; what
    is kept visible never changes.
    """
    words = lexicon_words()
    gender = _Gender(text, spans, words)
    ways = {"gender": [gender.made(neutral) for neutral in (False, True)]}
    groups = _Groups(text, spans, words)
    for family in groups.families:
        ways.setdefault(family, []).extend(groups.made(family))
    ordered = [ways[family] for family in KNOWN_FAMILIES if family in ways]
    interleaved = [item for item in chain.from_iterable(zip_longest(*ordered)) if item is not None]
    distinct = {item.text: item for item in reversed(interleaved) if item.text != text}
    known = gender.known | groups.known
    left = dict.fromkeys(text[s.start : s.end] for s in sorted(spans) if s.masked and s not in known)
    return Substitutions(tuple(reversed(distinct.values())), tuple(left))


def _substitution(
    text: str, spans: Sequence[Span], words: Mapping[Span, str], pronouns: Mapping[Pronoun, PronounSet]
) -> Substitution:
    reworded = reword(text, spans, words, pronouns)
    told = (f"{one.before} → {one.after}" for one in reworded.replacements if one.kind in ("span", "pronoun"))
    return Substitution("; ".join(dict.fromkeys(told)), reworded.text)


class _Gender:
    """The genders of a prompt exchanged, or left open."""

    def __init__(self, text: str, spans: Sequence[Span], words: LexiconWords) -> None:
        self._text, self._spans, self._words = text, spans, words
        self._tables = shipped_tables()
        self._pronouns = [p for p in find_pronouns(text) if not any(s.kept and p.meets(s) for s in spans)]
        self._marked = [s for s in spans if not s.kept and s.category in GENDERED_FAMILIES]
        self._exchanged = dict(self._words_of(neutral=False))
        self.known = {s for s in spans if s.masked and (s in self._exchanged or self._has_pronoun(s))}

    def made(self, neutral: bool) -> Substitution | None:
        """The prompt with she and he exchanged, or with they; None if no masked span tells a gender."""
        if not self.known:
            return None
        words = dict(self._words_of(neutral=True)) if neutral else self._exchanged
        return _substitution(self._text, self._spans, words, dict(self._sets_of(neutral)))

    def _has_pronoun(self, span: Span) -> bool:
        return is_pronoun(span, self._pronouns) and any(p.meets(span) and p.sets != {"they"} for p in self._pronouns)

    def _sets_of(self, neutral: bool) -> Iterator[tuple[Pronoun, PronounSet]]:
        for item in self._pronouns:
            if item.sets == {"they"}:
                continue
            if neutral:
                yield item, "they"
            elif len(item.sets) == 1:
                yield item, _EXCHANGED[next(iter(item.sets))]

    def _words_of(self, neutral: bool) -> Iterator[tuple[Span, str]]:
        chosen = {self._text[s.start : s.end]: "" for s in self._marked}
        taken = {name.lower() for name in chosen}
        for span in self._marked:
            old = self._text[span.start : span.end]
            plural = self._words.is_plural(old)
            row = self._tables.gendered_word(self._words.base(old))
            if row is not None:
                word, gender = row
                new = word.neutral if neutral else (word.male if gender == "female" else word.female)
                many = (neutral and word.neutral_plural) or self._words.plural(new)
                if new:
                    yield span, many if plural else new
            elif (
                not neutral
                and not is_surname(self._text, span)
                and (other := chosen[old] or self._words.other_name(old, taken))
            ):
                chosen[old] = other
                taken.add(other.lower())
                yield span, other


class _Groups:
    """The groups of a prompt, each with those that can take its place."""

    def __init__(self, text: str, spans: Sequence[Span], words: LexiconWords) -> None:
        self._text, self._spans, self._words = text, spans, words
        whole = [span for span in sorted(spans) if span.masked and not is_compound_part(text, span)]
        self._rows = {span: row for span in whole if (row := self._row(span)) is not None}
        self._ages = {s: int(n.group()) for s in spans if (n := self._age(s)) is not None}

    @property
    def known(self) -> set[Span]:
        """Spans that can be substituted."""
        return {*self._rows, *self._ages}

    @property
    def families(self) -> tuple[str, ...]:
        """Families that can be substituted, in reading order."""
        families = {span: row.family for span, row in self._rows.items()} | dict.fromkeys(self._ages, "age")
        return tuple(dict.fromkeys(families[span] for span in sorted(families)))

    def made(self, family: str) -> Iterator[Substitution]:
        """The prompt with a family's words moved on by one place, by two, and so on."""
        rows = {span: row for span, row in self._rows.items() if row.family == family}
        ages = self._ages if family == "age" else {}
        places = self._places(rows)
        longest = max((len(row.words) for row in rows.values()), default=0)
        for shift in range(1, max(longest, len(AGES) if ages else 0)):
            new = {span: self._moved(span, row, places[span] + shift) for span, row in rows.items()}
            new |= {span: self._aged(span, age, shift) for span, age in ages.items()}
            # Where a shorter row has come round, some of the family's words would stay.
            if all(word != self._text[span.start : span.end] for span, word in new.items()):
                yield _substitution(self._text, self._spans, new, {})

    def _row(self, span: Span) -> GroupRow | None:
        word = self._words.base(self._text[span.start : span.end].strip())
        reading: Reading = "noun" if standing(self._text, span, self._spans, self._words) == "noun" else "adjective"
        return shipped_tables().group_row(word, span.category, reading, self._words.kind(word))

    def _places(self, rows: dict[Span, GroupRow]) -> dict[Span, int]:
        """Each span's place in its row; a word that the row only stands in for gets the first place that is free."""
        texts = {span: self._words.base(self._text[span.start : span.end].strip()) for span in rows}
        listed = {span: place for span, row in rows.items() if (place := row.place(texts[span])) is not None}
        longest = max((len(row.words) for row in rows.values()), default=0)
        free = [place for place in range(longest) if place not in listed.values()] or [0]
        unlisted = dict.fromkeys(texts[span].lower() for span in rows if span not in listed)
        given = dict(zip(unlisted, cycle(free), strict=False))
        return {span: listed[span] if span in listed else given[texts[span].lower()] for span in rows}

    def _moved(self, span: Span, row: GroupRow, place: int) -> str:
        old, new = self._text[span.start : span.end], row.words[place % len(row.words)]
        if "-" in old and " " in new:
            new = new.replace(" ", "-")
        return self._words.inflected(new, like=old.strip()) + old[len(old.rstrip()) :]

    def _age(self, span: Span) -> re.Match[str] | None:
        words = self._text[span.start : span.end]
        number = _NUMBER.search(words)
        years = number is not None and 1 <= int(number.group()) <= 119
        return number if span.masked and span.category == "age" and years and span not in self._rows else None

    def _aged(self, span: Span, age: int, shift: int) -> str:
        nearest = min(range(len(AGES)), key=lambda place: abs(AGES[place] - age))
        return _NUMBER.sub(str(AGES[(nearest + shift) % len(AGES)]), self._text[span.start : span.end], count=1)


Pairs = tuple[tuple[str, str], ...]
"""Words with what takes their place."""


def parse_pairs(written: str) -> Pairs:
    """The pairs of one substitution: ``old = new``, several with a semicolon between them."""
    pairs = []
    for pair in written.split(";"):
        old, sign, new = (part.strip() for part in pair.partition("="))
        if not (old and sign and new):
            raise InvalidInputError(
                f"The substitution {written.strip()!r} cannot be read; write it as “old = new”, and several with “;” "
                "between them."
            )
        pairs.append((old, new))
    return tuple(pairs)


def substituted(text: str, spans: Sequence[Span], pairs: Pairs) -> Substitution | None:
    """A prompt with pairs of words substituted, wherever they stand outside spans that are kept visible.

    A pronoun stands for its whole set where both sides are pronouns: ``he = she`` also changes "his". The plural of a
    word that the lexicons know is substituted by a plural. Of several pairs that fit a place the first one counts. None
    is returned if nothing in the prompt fits.
    """
    kept = [span for span in spans if span.kept]
    words: dict[Span, str] = {}
    sets: dict[Pronoun, PronounSet] = {}
    for old, new in pairs:
        source, wanted = _pronouns(old), _pronouns(new)
        if source is not None and wanted is not None:
            pronouns = (p for p in find_pronouns(text) if source in p.sets and not any(p.meets(s) for s in kept))
            sets = {**dict.fromkeys(pronouns, wanted), **sets}
            continue
        for span, word in _occurrences(text, old, new):
            if all(span.end <= other.start or other.end <= span.start for other in (*kept, *words)):
                words[span] = word
    substitution = _substitution(text, spans, words, sets)
    return None if substitution.text == text else substitution


def _pronouns(word: str) -> PronounSet | None:
    """The set that a pronoun belongs to; "her" is one of she, "his" one of he."""
    return next((name for name in PRONOUN_SETS if word.lower() in FORMS[name].values()), None)


def _occurrences(text: str, old: str, new: str) -> list[tuple[Span, str]]:
    """Where a word or its plural stands, with what takes its place."""
    words = lexicon_words()
    forms = {old.lower(): new}
    if words.kind(old) is not None:
        forms.setdefault(words.plural(old).lower(), words.plural(new))
    pattern = "|".join(sorted(map(re.escape, forms), key=len, reverse=True))
    places = re.finditer(rf"(?<!\w)(?:{pattern})(?!\w)", text, re.IGNORECASE)
    return [(Span(place.start(), place.end(), "other"), forms[place.group().lower()]) for place in places]


@lru_cache(maxsize=1)
def rewording_version() -> str:
    """Digest of the shipped tables and lexicons, 64 hexadecimal digits."""
    content = repr((shipped_tables(), AGES, Lexicons.load().digest))
    return hashlib.sha256(content.encode("utf-8")).hexdigest()
