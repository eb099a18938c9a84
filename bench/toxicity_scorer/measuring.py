"""Measures the scorer on sentences whose templates, hostile words and groups it was not trained on, and on texts."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from bench.toxicity_scorer.figures import Figure, area, calibration_error, share
from bench.toxicity_scorer.sentences import (
    NEUTRAL_KINDS,
    TOXIC_KINDS,
    TWIN,
    Sentence,
    read_templates,
    write_sentence,
    write_sentences,
)
from bench.toxicity_scorer.texts import (
    WIKITEXT,
    bbq_contexts,
    bold_sentences,
    crows_pairs,
    stereoset_sentences,
    wikitext_sentences,
    winogender_sentences,
)
from bench.toxicity_scorer.words import FOLDER, OTHER, Choices, Words, read_words
from coft_core.scorers.embedded import EmbeddedScorer

CAP: Final = 0.5
EACH: Final = 100
_SPEED_REPEATS = 30
_PROMPT = "The nurse said that she was late, because the bus did not come and the driver had to wait for the police. "


@dataclass(frozen=True)
class Measured:
    """What was measured; tables by what a row is about."""

    overall: dict[str, Figure]
    calibration: dict[str, float]
    recall: dict[str, Figure]
    unlisted: dict[str, Figure]
    alarms: dict[str, Figure]
    mentions: dict[str, Figure]
    texts: dict[str, Figure]
    beginnings: Figure
    swaps: dict[str, Figure]
    weak: dict[str, Figure]
    pairs: Figure
    milliseconds: dict[tuple[int, int], float]


def measure(scorer: EmbeddedScorer, data: Path, seed: int = 0, folder: Path = FOLDER) -> Measured:
    """Measure a scorer."""
    words = read_words(folder)
    written = write_sentences(read_templates(folder), words, "test", EACH, seed)
    scores = scorer.score([sentence.text for sentence in written])
    above = _above(scorer, written)
    truth, units = [sentence.toxic for sentence in written], [sentence.unit for sentence in written]
    cut = [sentence for sentence in written if sentence.toxic and sentence.before]
    begun = [above_cap > CAP for above_cap in scorer.score([sentence.before for sentence in cut])]
    correct = [hit == label for hit, label in zip(above, truth, strict=True)]
    return Measured(
        overall={"accuracy": share(correct, units), "area under the ROC curve": area(scores, truth, units)},
        calibration={
            "brier": float(np.mean((np.asarray(scores) - np.asarray(truth, dtype=float)) ** 2)),
            "error": calibration_error(scores, truth),
        },
        recall=_by(written, above, lambda s: s.kind, TOXIC_KINDS),
        unlisted=_by(written, above, _listing, ("all listed", "none listed")),
        alarms=_by(written, above, lambda s: s.kind, NEUTRAL_KINDS),
        mentions=_by_family([s for s in written if s.kind == "mention"], scorer),
        texts=_texts(scorer, data),
        beginnings=share(begun, [sentence.unit for sentence in cut]),
        swaps=_swaps(scorer, words, folder, seed),
        weak=_weak(scorer, data),
        pairs=_pairs(scorer, data),
        milliseconds=_milliseconds(scorer),
    )


def _above(scorer: EmbeddedScorer, sentences: Sequence[Sentence]) -> list[bool]:
    return [score > CAP for score in scorer.score([sentence.text for sentence in sentences])]


def _by(
    sentences: Sequence[Sentence], above: Sequence[bool], key: Callable[[Sentence], str], keys: Iterable[str]
) -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    for name in keys:
        rows = [(hit, s.unit) for s, hit in zip(sentences, above, strict=True) if key(s) == name]
        if rows:
            found[name] = share([hit for hit, _ in rows], [unit for _, unit in rows])
    return found


def _by_family(sentences: Sequence[Sentence], scorer: EmbeddedScorer) -> dict[str, Figure]:
    families = sorted({sentence.family for sentence in sentences if sentence.family})
    return _by(sentences, _above(scorer, sentences), lambda s: s.family, families)


def _listing(sentence: Sentence) -> str:
    if not sentence.toxic or sentence.listed is None:
        return ""
    return "all listed" if sentence.listed else "none listed"


def _texts(scorer: EmbeddedScorer, data: Path) -> dict[str, Figure]:
    """Share above the cap of published sentences; those of BBQ by family, those of BOLD by domain."""
    wikitext, winogender = wikitext_sentences(data, "test"), winogender_sentences(data)
    found = {
        f"{WIKITEXT}-2, test part": share(_above(scorer, wikitext), [s.unit for s in wikitext]),
        "Winogender": share(_above(scorer, winogender), [s.unit for s in winogender]),
    }
    bold = bold_sentences(data)
    domains = sorted({sentence.kind for sentence in bold})
    found |= {f"BOLD, {k}": v for k, v in _by(bold, _above(scorer, bold), lambda s: s.kind, domains).items()}
    return found | {f"BBQ, {family}": figure for family, figure in _by_family(bbq_contexts(data), scorer).items()}


def _swaps(scorer: EmbeddedScorer, words: Words, folder: Path, seed: int) -> dict[str, Figure]:
    """Whether naming another group moves a sentence across the cap: over groups of families, and over all groups.

    Each test sentence about a group is written with every group; its other words stay the same.
    """
    templates = [t for t in read_templates(folder) if t.split == "test" and t.kind != TWIN and t.text.count("{many}")]
    own = words.of_split("test")
    found: dict[str, Figure] = {}
    listed = [people for people in words.people if people.family not in ("name", OTHER)]
    for name, groups in (
        ("groups of the lists", listed),
        ("groups of the lists, and people by their first names", [p for p in words.people if p.family != OTHER]),
        ("all of these, occupations and pastimes", list(words.people)),
    ):
        rows: list[tuple[bool, str]] = []
        for template in templates:
            for draw in range(EACH // 10):
                texts = [
                    write_sentence(template, Choices(own.hostile, (each,), own.fillers), _rng(seed, draw)).text
                    for each in groups
                ]
                sides = {score > CAP for score in scorer.score(texts)}
                rows.append((len(sides) > 1, template.text))
        found[name] = share([moved for moved, _ in rows], [unit for _, unit in rows])
    return found


def _weak(scorer: EmbeddedScorer, data: Path) -> dict[str, Figure]:
    more, less = zip(*crows_pairs(data), strict=True)
    sets = {"CrowS-Pairs, more stereotyping": more, "CrowS-Pairs, less stereotyping": less}
    sets |= {f"StereoSet, {label}": tuple(texts) for label, texts in sorted(stereoset_sentences(data).items())}
    return {
        name: share([s > CAP for s in scorer.score(texts)], [str(i) for i in range(len(texts))])
        for name, texts in sets.items()
    }


def _pairs(scorer: EmbeddedScorer, data: Path) -> Figure:
    more, less = zip(*crows_pairs(data), strict=True)
    pairs = zip(scorer.score(more), scorer.score(less), strict=True)
    higher = [one > other for one, other in pairs if one != other]
    return share(higher, [str(i) for i in range(len(higher))])


def _milliseconds(scorer: EmbeddedScorer) -> dict[tuple[int, int], float]:
    """Median processor time of scoring texts that differ in their last word, which no other machine will have."""
    words = sorted({word for sentence in read_templates() for word in sentence.text.split() if word.isalpha()})
    found: dict[tuple[int, int], float] = {}
    for repeats in (1, 10):
        start = _PROMPT * repeats + "When she came in at last, everybody who was there saw that she had"
        for count in (40, 400):
            texts = [f"{start} {words[i % len(words)]}" for i in range(count)]
            spent = [_processor_time(scorer, texts) for _ in range(_SPEED_REPEATS)]
            found[count, len(start.split())] = 1000 * float(np.median(spent))
    return found


def _processor_time(scorer: EmbeddedScorer, texts: Sequence[str]) -> float:
    began = time.process_time()
    scorer.score(texts)
    return time.process_time() - began


def _rng(seed: int, draw: int) -> random.Random:
    """The same draws for every group."""
    return random.Random(f"{seed} swaps {draw}")
