"""Sentences in which an ambiguous word names an attribute of a person, and sentences in which it does not."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.detector.families import NONE, FamilyLabeller
from bench.detector.generated import Fillers
from bench.detector.labels import GROUP, PERSON, Labelled, Labeller
from coft_core.text.lexicon import Lexicons
from coft_core.text.tokens import regular_plural

_SLOT = re.compile(r"\{(\w+)\}")
_RULES = frozenset(("person", "group", "predicative"))
_NOUNS = frozenset(("alcoholic", "addict", "invalid", "diabetic", "minor", "hunk", "chick", "babe", "twin", "miss"))
_CAPITALISED = frozenset(("black", "white", "brown", "indigenous", "native"))


@dataclass(frozen=True, slots=True)
class Contexts:
    """What ``contexts.json`` holds, with the ambiguous words of the lexicons."""

    families: Mapping[str, str]
    groups: frozenset[str]
    words: Mapping[str, tuple[str, ...]]
    positive: tuple[str, ...]
    group: tuple[str, ...]
    negative: tuple[str, ...]
    own: Mapping[str, Mapping[str, tuple[str, ...]]]


def read_contexts() -> Contexts:
    """Read the frames and the shipped lexicons' ambiguous words."""
    written = json.loads(Path(__file__).with_name("contexts.json").read_text(encoding="utf-8"))
    lexicons = Lexicons.load()
    families, groups = dict[str, str](), set[str]()
    for entry in lexicons.entries:
        if _RULES.intersection(entry.context) or entry.term.lower() in written["own"]:
            for term in (entry.term, *(entry.forms if entry.match == "exact" else ())):
                families.setdefault(term.lower(), entry.family.upper())
            if "group" in entry.context:
                groups.add(entry.term.lower())
    persons = sorted(lexicons.rules.word_lists["person"])
    single = [word for word in persons if regular_plural(word) in lexicons.rules.word_lists["person"]]
    words = {name: tuple(values) for name, values in written["words"].items()}
    words |= {"person": tuple(single), "people": tuple(map(regular_plural, single)) + ("people",) * 40}
    words["objects"] = tuple(map(regular_plural, words["object"]))
    words |= {"pron": ("he", "she", "He", "She"), "pron2": ("him", "her"), "poss": ("his", "her")}
    return Contexts(
        families=families,
        groups=frozenset(groups),
        words=words,
        positive=tuple(written["positive"]),
        group=tuple(written["group"]),
        negative=tuple(written["negative"]),
        own={word: {k: tuple(v) for k, v in sides.items()} for word, sides in written["own"].items()},
    )


def contextual_sentences(
    fillers: Fillers, labeller: FamilyLabeller, count: int, seed: int, split: str = "train"
) -> list[Labelled]:
    """Write sentences, as many with an attribute of a person as without."""
    contexts, rng = read_contexts(), random.Random(f"{seed} contexts {split}")
    groups = Labeller()
    written = (_written(contexts, fillers, rng) for _ in range(count))
    return [_labelled(text, known, names, labeller, groups, split) for text, known, names in written]


_Known = list[tuple[int, int, str]]


def _written(contexts: Contexts, fillers: Fillers, rng: random.Random) -> tuple[str, _Known, _Known]:
    positive = rng.random() < 0.5
    side = "positive" if positive else "negative"
    word = rng.choice(sorted(contexts.own) if rng.random() < 0.55 else sorted(contexts.families))
    own = contexts.own.get(word, {}).get(side, ())
    if word in _NOUNS or (own and rng.random() < 0.5):
        if not own:
            return _written(contexts, fillers, rng)
        frame = rng.choice(own)
    elif positive:
        frame = rng.choice(contexts.group if word in contexts.groups and rng.random() < 0.15 else contexts.positive)
    else:
        frame = rng.choice(contexts.negative)
    text, known, names = _filled(frame, word, positive, contexts, fillers, rng)
    if not names and rng.random() < 0.1:
        text = text.lower()
    elif text[:1].islower():
        text = text[:1].upper() + text[1:]
    return text, known, names


def _filled(
    frame: str, word: str, positive: bool, contexts: Contexts, fillers: Fillers, rng: random.Random
) -> tuple[str, _Known, _Known]:
    pieces, position = list[tuple[str, str]](), 0
    for match in _SLOT.finditer(frame):
        pieces += [(frame[position : match.start()], ""), _value(match[1], word, positive, contexts, fillers, rng)]
        position = match.end()
    pieces.append((frame[position:], ""))
    text, known, names = "", _Known(), _Known()
    for index, (piece, label) in enumerate(pieces):
        following = pieces[index + 1][0] if index + 1 < len(pieces) else ""
        value = _with_article(piece, following) if not label else piece
        if label == PERSON:
            names.append((len(text), len(text) + len(value), PERSON))
        elif label:
            known.append((len(text), len(text) + len(value), label))
        text += value
    return text, known, names


def _value(
    slot: str, word: str, positive: bool, contexts: Contexts, fillers: Fillers, rng: random.Random
) -> tuple[str, str]:
    if slot == "A":
        shown = word.title() if word == "miss" or (positive and word in _CAPITALISED and rng.random() < 0.3) else word
        return shown, contexts.families[word] if positive else NONE
    if slot == "B":
        other = rng.choice(sorted(contexts.families))
        return other, contexts.families[other]
    if slot == "first":
        return rng.choice(fillers.common), PERSON
    if slot == "last":
        return rng.choice(fillers.surnames), PERSON
    values = contexts.words.get(slot) or fillers.words[slot]
    return rng.choice(values), ""


def _with_article(piece: str, following: str) -> str:
    """The piece with its last article as the following word wants it."""
    vowel = following[:1].lower() in "aeio" and bool(following)
    if re.search(r"(?:^|\W)[Aa] $", piece) and vowel:
        return piece[:-1] + "n "
    return piece[:-2] + " " if re.search(r"(?:^|\W)[Aa]n $", piece) and following and not vowel else piece


def _labelled(
    text: str, known: _Known, names: _Known, labeller: FamilyLabeller, groups: Labeller, split: str
) -> Labelled:
    taken = [(start, end) for start, end, _ in names]
    found: Iterator[tuple[int, int]] = groups.groups(text)
    entities = [(a, b, GROUP) for a, b in found if text[a].isupper() and not any(a < d and c < b for c, d in taken)]
    return labeller.label(Labelled(text, tuple(sorted([*names, *entities])), (), "contexts", split), known)
