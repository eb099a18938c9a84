"""Comparable words: neutral ones that fit where a marked word is, and names of the same group."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal, get_args

from coft_core.assets import assets_path
from coft_core.errors import InvalidInputError
from coft_core.text.agreement import find_pronouns, is_compound_part, is_pronoun, is_surname, standing
from coft_core.text.vocabulary import FIRST_NAMES, lexicon_words
from coft_core.types import Span

Reading = Literal["attributive", "predicative", "person", "thing", "place"]
NeutralWords = Mapping[Reading, tuple[str, ...]]
"""Neutral words by how they can be used."""

_DETAILS: Mapping[str, Reading] = {
    "places of worship": "place",
    "religious objects and practices": "thing",
    "aids and adaptations": "thing",
}
"""Nouns of the lexicons that name no person and have neutral words."""


@lru_cache(maxsize=1)
def shipped_words() -> NeutralWords:
    """The neutral words that ship with the program, read once."""
    return read_words(assets_path("controls", "neutral.csv"))


def read_words(file: Path) -> NeutralWords:
    """Neutral words from a CSV file with the columns ``reading`` and ``words``, words separated by ``|``.

    Raises:
        InvalidInputError: The file cannot be read, a reading is unknown, or a word names or hints at an attribute.
    """
    try:
        rows = list(csv.DictReader(io.StringIO(file.read_text(encoding="utf-8-sig")), strict=True))
        listed = {row["reading"]: tuple(dict.fromkeys(filter(None, map(str.strip, row["words"].split("|")))))
                  for row in rows}  # fmt: skip
    except (OSError, ValueError, KeyError, AttributeError, csv.Error) as error:
        raise InvalidInputError(
            f"The neutral words in {file.name} cannot be read ({error}); give a CSV file with the columns reading and "
            "words."
        ) from error
    if unknown := sorted(set(listed) - set(get_args(Reading))):
        raise InvalidInputError(
            f"{file.name} has the reading {unknown[0]!r}; the readings are {', '.join(get_args(Reading))}."
        )
    for word in (word for words in listed.values() for word in words):
        if (kind := lexicon_words().kind(word)) is not None:
            raise InvalidInputError(
                f"{word!r} in {file.name} is not neutral: the word lists have it under {kind}; take it out."
            )
    return {reading: listed.get(reading, ()) for reading in get_args(Reading)}


def comparable(text: str, span: Span, spans: Sequence[Span], neutral: NeutralWords) -> tuple[str, tuple[str, ...]]:
    """Words that can take a marked one's place, with what they are: ``"neutral"`` or ``"names"``; none if none fit.

    A pronoun has none: any other pronoun tells a gender or a number. Nor has a title, which says little but a gender.
    """
    words, marked = lexicon_words(), text[span.start : span.end]
    alone = is_pronoun(span, find_pronouns(text)) or is_compound_part(text, span)
    if alone or words.kind(marked.rstrip(".")) == "titles":
        return "neutral", ()
    # "the king" is no name, though some are called so.
    if (gender := words.name_gender(marked.strip())) is not None and marked.strip()[:1].isupper():
        same = words.kinds("name")[FIRST_NAMES[gender]] if not is_surname(text, span) else ()
        return "names", tuple(name for name in same if name.lower() != marked.strip().lower())
    use = standing(text, span, spans, words)
    if use != "noun":
        return "neutral", neutral[use]
    if words.is_person(marked):
        people = neutral["person"]
        return "neutral", tuple(map(words.plural, people)) if words.is_plural(marked) else people
    kind = words.kind(marked)
    return "neutral", neutral[_DETAILS[kind]] if kind in _DETAILS else ()


def shuffled(words: Sequence[str], key: str) -> list[str]:
    """The words in an order that depends on the key only."""
    return random.Random(key).sample(list(words), len(words))
