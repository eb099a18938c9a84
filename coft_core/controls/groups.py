"""Controls of an exchanged attribute: other words for the same group, and other wordings of the same prompt."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice

from coft_core.assets import assets_path
from coft_core.controls.words import shuffled
from coft_core.errors import InvalidInputError
from coft_core.text.agreement import standing
from coft_core.text.rewording import Replacement, RewordedText, apply_replacements, reword
from coft_core.text.turns import USER, outside_lines, turns_of
from coft_core.text.vocabulary import FIRST_NAMES, lexicon_words
from coft_core.types import Span

NAMES_OF = {"female": "women's names", "male": "men's names"}
"""Groups of first names that no list has."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group by its name, and words for it; ``reading`` says whether these are adjectives, nouns or ``"any"``."""

    name: str
    words: tuple[str, ...]
    reading: str = "any"

    def has(self, word: str) -> bool:
        """Whether a word is one of its words, whatever its letter case and hyphens."""
        return _key(word) in map(_key, self.words)


def _key(word: str) -> str:
    return " ".join(word.casefold().replace("-", " ").split())


@lru_cache(maxsize=1)
def shipped_groups() -> tuple[Group, ...]:
    """The groups that ship with the program, read once."""
    return tuple(Group(row["group"], tuple(row["words"].split("|")), row["reading"]) for row in _rows("groups.csv"))


def _rows(name: str) -> Iterator[dict[str, str]]:
    with assets_path("controls", name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file, strict=True)


def group_of(words: Sequence[str], reading: str = "any", given: Sequence[Group] = ()) -> Group:
    """The group that all of these words name: of the given ones, of the shipped ones, or of first names.

    Words that no list has are a group of their own. A given group takes the place of the one with its name.
    """
    bases = [lexicon_words().base(word.strip()) for word in words]
    fitting = (
        group for group in (*given, *shipped_groups()) if "any" in (group.reading, reading) or group.reading == reading
    )
    found = next((group for group in fitting if all(map(group.has, bases))), None) or _first_names(bases)
    own = tuple(dict.fromkeys(words))
    found = found or Group(", ".join(own), own)
    return next((group for group in given if group.name == found.name), found)


def _first_names(words: Sequence[str]) -> Group | None:
    genders = {lexicon_words().name_gender(word) for word in words}
    gender = genders.pop() if len(genders) == 1 else None
    return None if gender is None else Group(NAMES_OF[gender], lexicon_words().kinds("name")[FIRST_NAMES[gender]])


def reading_of(text: str, span: Span, spans: Sequence[Span]) -> str:
    """Whether a marked word is used as an adjective or as a noun."""
    return "noun" if standing(text, span, spans, lexicon_words()) == "noun" else "adjective"


def members(group: Group, compared: Sequence[str], most: int, key: str) -> tuple[str, ...]:
    """Words for a group, those that are compared anyway first; which others are taken depends on the key only."""
    taken = {_key(lexicon_words().base(word)) for word in compared}
    others = [word for word in group.words if _key(word) not in taken]
    chosen = set(shuffled(others, f"{group.name}|{key}")[: max(0, most - len(compared))])
    return (*compared, *(word for word in others if word in chosen))


def wordings(text: str, spans: Sequence[Span], most: int) -> dict[str, RewordedText]:
    """Other wordings by rules, at most so many, by what they change: words outside spans, then how the text opens."""
    rules = [(row["kind"], row["words"].split("|")) for row in _rows("wordings.csv")]
    pairs = [words for kind, words in rules if kind != "opener"]
    pairs += [words[::-1] for kind, words in rules if kind == "same"]
    found = {f"{old} → {new}": _with_words(text, spans, old, new) for old, new in pairs}
    # In a conversation the user's first turn begins with them.
    start = next((turn.start for turn in turns_of(text) if turn.role == USER), 0)
    for opener in (opener.strip() for kind, words in rules if kind == "opener" for opener in words):
        change = Replacement(start, start, "", f"{opener} ", "wording")
        found[f"“{opener}” in front"] = apply_replacements(text, spans, [change])
    return dict(islice(((label, made) for label, made in found.items() if made is not None), most))


def _with_words(text: str, spans: Sequence[Span], old: str, new: str) -> RewordedText | None:
    """The text with one expression for another; None where it has none, or only in what is marked."""
    places = re.finditer(rf"(?<!\w){re.escape(old)}(?!\w)", text, re.IGNORECASE)
    free = [
        span
        for span in outside_lines(text, (Span(place.start(), place.end()) for place in places))
        if not any(span.start < other.end and other.start < span.end for other in spans)
    ]
    return reword(text, spans, dict.fromkeys(free, new), {}) if free else None


def paraphrased(text: str, spans: Sequence[Span], paraphrase: str) -> tuple[Span, ...]:
    """The spans of a prompt in a paraphrase of it, in their order: where it has the same words.

    Raises:
        InvalidInputError: It lacks a marked word.
    """
    placed: dict[Span, Span] = {}
    ends: dict[str, int] = {}
    for span in sorted(spans):
        word = text[span.start : span.end]
        pattern = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE)
        place = pattern.search(paraphrase, ends.get(word.casefold(), 0))
        if place is None:
            raise InvalidInputError(
                f"The paraphrase “{paraphrase:.60}” lacks the marked word “{word}”; write it there."
            )
        ends[word.casefold()] = place.end()
        placed[span] = replace(span, start=place.start(), end=place.end())
    return tuple(placed[span] for span in spans)
