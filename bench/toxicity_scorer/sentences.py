"""Sentences written from the templates: toxic and neutral ones, whole and cut as a decoder sees them."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bench.toxicity_scorer.words import FOLDER, Choices, Words, read_table

TOXIC_KINDS: Final = ("insult", "third", "hostile", "dehumanising", "threat", "slur", "profanity")
TWIN: Final = "twin"
NEUTRAL_KINDS: Final = ("mention", "praise", "negation", "counter", "criticism", "literal", TWIN)

_SLOT = re.compile(r"\{(\w+)\}")
_HOSTILE_SLOTS = {
    "insult": ("insult", False), "insults": ("insult", True), "adj": ("adjective", False),
    "dehum": ("dehumanising", False), "dehums": ("dehumanising", True), "filth": ("filth", False),
    "hostile": ("hostile", False), "harm": ("harm", False), "harmed": ("harm", True),
    "slur": ("slur", False), "slurs": ("slur", True),
}  # fmt: skip
_TWINS = 2
_NEEDS_ITS_BEGINNING = ("negation", "counter")
_LOWER, _CUT_AFTER, _SUFFIX, _PREFIX = 0.15, 0.2, 0.3, 0.5


@dataclass(frozen=True, slots=True)
class Template:
    """A sentence with slots; ``[`` and ``]`` in it mark what makes it toxic."""

    split: str
    kind: str
    text: str
    twin: bool = False

    @property
    def toxic(self) -> bool:
        """Whether its sentences are toxic."""
        return self.kind in TOXIC_KINDS


@dataclass(frozen=True, slots=True)
class Sentence:
    """A labelled sentence."""

    text: str
    toxic: bool
    kind: str
    unit: str
    family: str = ""
    listed: bool | None = None
    before: str = ""


def read_templates(folder: Path = FOLDER) -> list[Template]:
    """Read ``templates.tsv``; a template with a harmless twin is followed, at the end, by the twin."""
    rows = read_table(folder / "templates.tsv")
    own = [Template(row["split"], row["kind"], row["text"], row["twin"] == "yes") for row in rows]
    return own + [Template(each.split, TWIN, each.text) for each in own if each.twin]


def write_sentences(templates: list[Template], words: Words, split: str, each: int, seed: int) -> list[Sentence]:
    """Whole sentences of one split, written with the words of that split alone."""
    rng, choices = random.Random(f"{seed} sentences {split}"), words.of_split(split)
    own = [template for template in templates if template.split == split]
    drawn = [
        write_sentence(template, choices, rng)
        for template in own
        for _ in range(each * (_TWINS if template.kind == TWIN else 1))
    ]
    return list({sentence.text: sentence for sentence in drawn}.values())


def write_sentence(template: Template, choices: Choices, rng: random.Random) -> Sentence:
    """One sentence of a template."""
    listed: list[bool] = []
    families: list[str] = []

    def value(match: re.Match[str]) -> str:
        slot = match[1]
        if slot in _HOSTILE_SLOTS and template.kind == TWIN:
            return rng.choice(choices.fillers[f"twin_{slot}"])
        if slot in _HOSTILE_SLOTS:
            kind, form = _HOSTILE_SLOTS[slot]
            word = choices.draw_hostile(kind, form, rng)
            listed.append(word.listed)
            return word.form if form else word.term
        if slot in ("one", "many"):
            people = choices.draw_people(rng)
            families.append(people.family)
            return people.one if slot == "one" else people.many
        return rng.choice(choices.fillers[slot])

    marked = _with_articles(_SLOT.sub(value, template.text))
    marked = marked.lower() if rng.random() < _LOWER else _capitalised(marked)
    text = marked.replace("[", "").replace("]", "")
    before = marked.split("[")[0].strip() if template.toxic else ""
    known = listed[0] if listed and len(set(listed)) == 1 else None
    return Sentence(text, template.toxic, template.kind, template.text, families[0] if families else "", known, before)


def with_parts(sentences: list[Sentence], seed: int) -> Iterator[Sentence]:
    """The sentences and parts of some: without their first words, without their last ones, cut off before the insult.

    A decoder scores a text that is still being written, and one that goes on from a prompt which is not scored.
    """
    rng = random.Random(f"{seed} parts")
    for sentence in sentences:
        yield sentence
        end = _end_of_toxic(sentence)
        if sentence.toxic and sentence.before and rng.random() < _PREFIX:
            yield replace(sentence, text=sentence.before, toxic=False, kind="beginning")
        if not sentence.toxic and rng.random() < _PREFIX:
            yield replace(sentence, text=_first_words(sentence.text, rng))
        if sentence.toxic and end and rng.random() < _CUT_AFTER:
            yield replace(sentence, text=sentence.text.rstrip(".!?"))
        if sentence.kind not in _NEEDS_ITS_BEGINNING and rng.random() < _SUFFIX:
            limit = sentence.before if sentence.toxic else sentence.text
            dropped = rng.randint(0, max(len(limit.split()) - (not sentence.toxic), 0))
            if dropped:
                yield replace(sentence, text=" ".join(sentence.text.split()[dropped:]))


def _end_of_toxic(sentence: Sentence) -> bool:
    return sentence.unit.rstrip(".!?").endswith("]")


def _first_words(text: str, rng: random.Random) -> str:
    words = text.split()
    return " ".join(words[: rng.randint(1, len(words))])


def _capitalised(text: str) -> str:
    place = 1 if text.startswith("[") else 0
    return text[:place] + text[place : place + 1].upper() + text[place + 1 :]


def _with_articles(text: str) -> str:
    """The text with each article as the word behind it wants it, by its first letter."""
    text = re.sub(r"\b([Aa])n(?= \[?[^aeiouAEIOU\W])", r"\1", text)
    return re.sub(r"\b([Aa])(?= \[?[aeioAEIO])", r"\1n", text)
