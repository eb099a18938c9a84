"""Sentences written for what the corpora lack: names after titles, names that are also words, and false friends."""

from __future__ import annotations

import csv
import gzip
import json
import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.detector.labels import GROUP, GROUP_DETAILS, PERSON, PLACE, Labelled, read_places
from coft_core.text.lexicon import Lexicons

_SLOT = re.compile(r"\{(\w+)\}")
_SLOT_LABELS = {
    **dict.fromkeys(("first", "last", "full", "odd", "oddfull"), PERSON),
    "group": GROUP,
    "place": PLACE,
}
_COMMON = 2000


@dataclass(frozen=True, slots=True)
class Fillers:
    """What the slots of a template are filled with."""

    common: tuple[str, ...]
    rare: tuple[str, ...]
    surnames: tuple[str, ...]
    groups: tuple[str, ...]
    places: tuple[str, ...]
    words: dict[str, tuple[str, ...]]
    templates: tuple[str, ...]
    plain: tuple[str, ...]


def read_fillers(names: Path) -> Fillers:
    """Read the names of a data folder, the shipped lexicons and this project's templates."""
    written = json.loads(Path(__file__).with_name("templates.json").read_text(encoding="utf-8"))
    words = {slot: tuple(values) for slot, values in written["words"].items()}
    with gzip.open(names / "ssa_first_names.csv.gz", "rt", encoding="utf-8") as file:
        counted = [(int(row["count_1880_2020"]), row["name"]) for row in csv.DictReader(file)]
    ranked = [name for _, name in sorted(counted, reverse=True)]
    with (names / "us_census_2010_surnames_top1000.csv").open(encoding="utf-8") as file:
        surnames = [row["surname"].title() for row in csv.DictReader(file)]
    return Fillers(
        common=tuple(ranked[:_COMMON]),
        rare=tuple(ranked[_COMMON : 20 * _COMMON]),
        surnames=tuple(name for name in surnames if name.isalpha()) + words["surname"],
        groups=tuple(e.term for e in Lexicons.load().entries if e.detail in GROUP_DETAILS and e.term[0].isupper()),
        places=tuple(sorted(_cased(place) for place in read_places() if len(place) > 3)),
        words=words,
        templates=tuple(written["templates"]),
        plain=tuple(written["plain"]),
    )


def generate(count: int, fillers: Fillers, seed: int, split: str = "train") -> list[Labelled]:
    """Write sentences."""
    rng = random.Random(f"{seed} {split}")
    sentences = []
    for index in range(count):
        template = rng.choice(fillers.plain if index % 3 == 0 else fillers.templates)
        sentences.append(_filled(template, fillers, rng, split))
    rng.shuffle(sentences)
    return sentences


def with_other_names(texts: Iterable[Labelled], fillers: Fillers, seed: int) -> list[Labelled]:
    """Copies of the texts with other people in them, so that contexts are learnt and not names."""
    rng = random.Random(f"{seed} names")
    return [_renamed(text, fillers, rng) for text in texts if any(label == PERSON for _, _, label in text.entities)]


def _renamed(text: Labelled, fillers: Fillers, rng: random.Random) -> Labelled:
    ranges = sorted([*text.entities, *((start, end, "") for start, end in text.unknown)])
    written, position = "", 0
    entities, unknown = list[tuple[int, int, str]](), list[tuple[int, int]]()
    for start, end, label in ranges:
        written += text.text[position:start]
        old = text.text[start:end]
        slot = "full" if " " in old else rng.choice(("first", "last"))
        new = _value(slot, fillers, rng) if label == PERSON and old[:1].isupper() else old
        place = (len(written), len(written) + len(new))
        written += new
        position = end
        if label:
            entities.append((*place, label))
        else:
            unknown.append(place)
    return Labelled(written + text.text[position:], tuple(entities), tuple(unknown), text.source, text.split)


def _filled(template: str, fillers: Fillers, rng: random.Random, split: str) -> Labelled:
    text, entities, position = "", list[tuple[int, int, str]](), 0
    for match in _SLOT.finditer(template):
        text += template[position : match.start()]
        slot = match[1]
        value = _value(slot, fillers, rng)
        if text == "" and slot not in _SLOT_LABELS:
            value = value[:1].upper() + value[1:]
        if slot in _SLOT_LABELS:
            entities.append((len(text), len(text) + len(value), _SLOT_LABELS[slot]))
        text += value
        position = match.end()
    return Labelled(text + template[position:], tuple(entities), (), "generated", split)


def _value(slot: str, fillers: Fillers, rng: random.Random) -> str:
    first = rng.choice(fillers.common if rng.random() < 0.6 else fillers.rare)
    last = rng.choice(fillers.words["surname"] if rng.random() < 0.4 else fillers.surnames)
    match slot:
        case "first":
            return first
        case "last":
            return f"{last}-{rng.choice(fillers.surnames)}" if rng.random() < 0.03 else last
        case "full":
            middle = f"{rng.choice('ABCDEFGHJKLMNPRSTW')}. " if rng.random() < 0.1 else ""
            return f"{first} {middle}{last}"
        case "oddfull":
            return f"{rng.choice(fillers.words['odd'])} {last}"
        case "group":
            return rng.choice(fillers.groups)
        case "place":
            return rng.choice(fillers.places)
    return rng.choice(fillers.words[slot])


def _cased(place: str) -> str:
    return " ".join(
        word if word in ("of", "and", "the", "de") else word[:1].upper() + word[1:] for word in place.split()
    )
