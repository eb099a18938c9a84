"""Hand-written sentences with an ambiguous word: is it marked exactly where it says something of a person?

Two of four neighbours are for choosing (thresholds, the temperature), the other two for the measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bench.detector.scoring import Share
from coft_core.text.pipeline import EntityPipeline
from coft_core.types import Span

_BINS = 5


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence with one ambiguous word."""

    text: str
    start: int
    end: int
    sensitive: bool


def read_sentences(part: Literal["dev", "test"]) -> list[Sentence]:
    """Read one half of ``context_sentences.tsv``."""
    lines = Path(__file__).with_name("context_sentences.tsv").read_text(encoding="utf-8").splitlines()
    sentences = [_sentence(line) for line in lines if line and not line.startswith("#")]
    wanted = 0 if part == "dev" else 1
    return [sentence for index, sentence in enumerate(sentences) if index // 2 % 2 == wanted]


def measure_sentences(detect: Callable[[str], list[Span]], sentences: Sequence[Sentence]) -> dict[str, Any]:
    """Recall of sensitive words, share of the others that is marked, and accuracy."""
    found = [any(s.start < x.end and x.start < s.end for s in detect(x.text)) for x in sentences]
    pairs = [(x.sensitive, hit) for x, hit in zip(sentences, found, strict=True)]
    positive, negative = [hit for truth, hit in pairs if truth], [hit for truth, hit in pairs if not truth]
    return {
        "recall": Share(sum(positive), len(positive)).to_dict(),
        "false_alarms": Share(sum(negative), len(negative)).to_dict(),
        "accuracy": Share(sum(truth == hit for truth, hit in pairs), len(pairs)).to_dict(),
    }


def measure_scores(pipeline: EntityPipeline, sentences: Sequence[Sentence]) -> dict[str, float | int]:
    """Whether the probabilities of the pipeline are those of being right."""
    chances = np.array([pipeline.read(x.text).probability(x.start, x.end) for x in sentences])
    truths = np.array([x.sensitive for x in sentences], dtype=float)
    bins = np.minimum((chances * _BINS).astype(int), _BINS - 1)
    error = sum(abs(chances[bins == b].mean() - truths[bins == b].mean()) * (bins == b).mean() for b in np.unique(bins))
    return {
        "n": len(sentences),
        "brier": round(float(((chances - truths) ** 2).mean()), 4),
        "calibration_error": round(float(error), 4),
    }


def _sentence(line: str) -> Sentence:
    truth, marked = line.split("\t")
    start, end = marked.index("["), marked.index("]") - 1
    return Sentence(marked.replace("[", "").replace("]", ""), start, end, truth == "1")
