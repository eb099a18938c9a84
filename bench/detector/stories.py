"""Sentences of plain running text: stories, novels and news for learners."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bench.detector.families import FamilyLabeller, nouns_of_things
from bench.detector.labels import Labelled

_SENTENCE = re.compile(r"[^.!?\n]+(?:[.!?]+[\"']?|$)")
_SHORTEST, _LONGEST = 20, 240


def read_stories(folder: Path) -> Iterator[str]:
    """The texts of a corpus folder, in a fixed order."""
    with gzip.open(folder / "tinystories" / "tinystories_recased.txt.gz", "rt", encoding="utf-8") as file:
        yield from file.read().split("<|endoftext|>")
    for path in (folder / "storybooks" / "storybooks_en.jsonl.gz", folder / "onestopenglish" / "texts.jsonl.gz"):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            yield from (json.loads(line)["text"] for line in file)
    for path in sorted((folder / "books").glob("*.txt.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            yield " ".join(file.read().split("\n"))


def story_sentences(folder: Path, count: int, per_term: int, seed: int) -> tuple[list[Labelled], FamilyLabeller]:
    """Draw sentences, most of them with an ambiguous term, and label their families."""
    texts = list(read_stories(folder))
    labeller = FamilyLabeller(nouns_of_things(texts))
    rng = random.Random(f"{seed} stories")
    sentences = [m[0].strip() for text in texts for m in _SENTENCE.finditer(text)]
    sentences = [sentence for sentence in sentences if _SHORTEST <= len(sentence) <= _LONGEST]
    rng.shuffle(sentences)
    drawn, seen, plain = list[Labelled](), Counter[str](), 0
    for sentence in sentences:
        if len(drawn) >= count:
            break
        terms = set(labeller.ambiguous(sentence))
        if not terms:
            plain += 1
            if plain > count // 5:
                continue
        elif min(seen[term] for term in terms) >= per_term:
            continue
        seen.update(terms)
        unnamed = Labelled(sentence, (), ((0, len(sentence)),), "stories", "train")
        labelled = labeller.label(Labelled(sentence, (), (), "stories", "train"), named=False)
        drawn.append(Labelled(sentence, (), unnamed.unknown, "stories", "train", labelled.families, labelled.undecided))
    return drawn, labeller
