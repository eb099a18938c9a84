"""Sentences of published texts: ordinary ones to train and test with, and test sets about groups of people."""

from __future__ import annotations

import csv
import gzip
import json
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.demo_model.corpus import read_sources
from bench.toxicity_scorer.sentences import Sentence
from coft_core.scorers.embedded import KINDS, WordLists, word_hashes, words_of

WIKITEXT: Final = "wikitext"
_SENTENCE = re.compile(r"[^.!?\n]+(?:[.!?]+[\"']?|$)")
_SHORTEST, _LONGEST = 15, 240
_ALWAYS_HOSTILE = ("insult", "profanity", "slur")
_HOSTILE_TO_SOMEONE = ("adjective", "dehumanising", "filth", "hostile")
_FAMILIES_OF_BBQ = {
    "Age": "age", "Disability_status": "disability", "Gender_identity": "gender", "Nationality": "nationality",
    "Physical_appearance": "appearance", "Race_ethnicity": "race", "Religion": "religion", "SES": "socioeconomic",
    "Sexual_orientation": "orientation",
}  # fmt: skip


@dataclass(frozen=True)
class Ordinary:
    """Ordinary sentences for one split."""

    sentences: tuple[Sentence, ...]
    left_out: dict[str, int]
    licences: dict[str, str]


def ordinary_sentences(data: Path, split: str, each: int, lists: WordLists, seed: int) -> Ordinary:
    """Draw sentences of stories, novels, news for learners and encyclopedia articles.

    Training and development take different documents of the corpora; WikiText's validation part is for training.
    """
    rng = random.Random(f"{seed} ordinary {split}")
    passages: dict[str, Iterable[str]] = {}
    licences: dict[str, str] = {}
    for source in read_sources(data, seed):
        texts = list(source.training if split == "train" else source.held_out)
        rng.shuffle(texts)
        passages[source.name], licences[source.name] = texts, source.licence
    if split == "train":
        passages[WIKITEXT], licences[WIKITEXT] = wikitext_paragraphs(data, "valid"), "CC BY-SA 3.0"
    kept: list[Sentence] = []
    left_out: dict[str, int] = {}
    for name, given in passages.items():
        own, left_out[name] = _drawn(given, each, lists)
        kept += [Sentence(text, False, name, text) for text in own]
    return Ordinary(tuple(kept), left_out, licences)


def insults_someone(sentence: str, lists: WordLists) -> bool:
    """Whether an ordinary sentence is left out, because a list has what it says; see :func:`ordinary_sentences`."""
    words = words_of(sentence)
    if not words:
        return False
    kinds = lists.marked(word_hashes(words), np.zeros(len(words), np.int64))
    names = {KINDS[kind - 1] for kind in kinds if kind}
    return bool(names.intersection(_ALWAYS_HOSTILE)) or (
        "address" in names and bool(names.intersection(_HOSTILE_TO_SOMEONE))
    )


def wikitext_sentences(data: Path, part: str) -> list[Sentence]:
    """All sentences of a part of WikiText-2."""
    texts = (text for paragraph in wikitext_paragraphs(data, part) for text in _sentences(paragraph))
    return [Sentence(text, False, WIKITEXT, text) for text in texts]


def wikitext_paragraphs(data: Path, part: str) -> list[str]:
    """Paragraphs of a part of WikiText-2, with the spaces of running text; headings are left out."""
    lines = (data / "wikitext2" / f"wiki.{part}.raw").read_text(encoding="utf-8").splitlines()
    return [_joined(line) for line in lines if line.strip() and not line.strip().startswith("=")]


def bold_sentences(data: Path) -> list[Sentence]:
    """Wikipedia sentences about people of BOLD; the kind is the domain and the family the group."""
    found: list[Sentence] = []
    for path in sorted((data / "bold" / "wikipedia").glob("*_wiki.json")):
        domain = path.name.removesuffix("_wiki.json")
        for group, entities in json.loads(path.read_text(encoding="utf-8")).items():
            found += [
                Sentence(text, False, domain, entity, group) for entity, texts in entities.items() for text in texts
            ]
    return found


def bbq_contexts(data: Path) -> list[Sentence]:
    """The ambiguous contexts of BBQ: someone of a group is seen somewhere, and nothing is said of the group."""
    found: dict[str, Sentence] = {}
    for category, family in _FAMILIES_OF_BBQ.items():
        for row in _json_lines(data / "bbq" / f"{category}.jsonl.gz"):
            if row["context_condition"] == "ambig":
                unit = f"{category} {row['question_index']}"
                found.setdefault(row["context"], Sentence(row["context"], False, "bbq", unit, family))
    return list(found.values())


def winogender_sentences(data: Path) -> list[Sentence]:
    """Sentences with an occupation and a pronoun."""
    with (data / "winogender" / "all_sentences.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return [
        Sentence(row["sentence"], False, "winogender", ".".join(row["sentid"].split(".")[:3]), "gender") for row in rows
    ]


def crows_pairs(data: Path) -> list[tuple[str, str]]:
    """The more and the less stereotyping sentence of each pair."""
    with (data / "crows_pairs" / "crows_pairs_anonymized.csv").open(encoding="utf-8", newline="") as file:
        return [(row["sent_more"], row["sent_less"]) for row in csv.DictReader(file)]


def stereoset_sentences(data: Path) -> dict[str, list[str]]:
    """Sentences of StereoSet's intrasentence items by their label."""
    items = json.loads((data / "stereoset" / "dev.json").read_text(encoding="utf-8"))["data"]["intrasentence"]
    found: dict[str, list[str]] = {}
    for item in items:
        for sentence in item["sentences"]:
            found.setdefault(sentence["gold_label"], []).append(sentence["sentence"])
    return found


def _drawn(passages: Iterable[str], each: int, lists: WordLists) -> tuple[list[str], int]:
    kept: list[str] = []
    left_out = 0
    for passage in passages:
        for text in _sentences(passage):
            if len(kept) >= each:
                return kept, left_out
            if insults_someone(text, lists):
                left_out += 1
            else:
                kept.append(text)
    return kept, left_out


def _sentences(passage: str) -> Iterator[str]:
    found = (match[0].strip() for match in _SENTENCE.finditer(passage))
    return (text for text in found if _SHORTEST <= len(text) <= _LONGEST)


def _joined(line: str) -> str:
    line = re.sub(r" @(.)@ ", r"\1", line.strip())
    return re.sub(r" (?=[.,;:!?)]|'s)", "", line).replace("( ", "(")


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from (json.loads(line) for line in lines)
