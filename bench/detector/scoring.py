"""Precision, recall and F1 with intervals."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest

from bench.detector.labels import Labelled

WORD: Final = re.compile(r"\w+(?:[-'\u2019]\w+)*")
"""A word, compounds whole."""

Entities = Sequence[tuple[int, int, str]]


@dataclass(frozen=True, slots=True)
class Share:
    """A proportion with its exact (Clopper-Pearson) 95 % interval."""

    hits: int
    n: int

    def to_dict(self) -> dict[str, float | int | list[float] | None]:
        """Value, ``n`` and interval; without trials there is no value and the interval is everything."""
        if self.n == 0:
            return {"value": None, "n": 0, "interval": [0.0, 1.0]}
        interval = binomtest(self.hits, self.n).proportion_ci(0.95, method="exact")
        low, high = float(interval.low), float(interval.high)
        return {"value": round(self.hits / self.n, 4), "n": self.n, "interval": [round(low, 4), round(high, 4)]}


def counts(gold: Labelled, found: Entities, label: str) -> tuple[int, int, int]:
    """Spans of one label in one text: found and right, found in all, there in all.

    Found spans that touch characters without a label are left out.
    """
    wanted = {(start, end) for start, end, name in gold.entities if name == label}
    spans = {
        (start, end)
        for start, end, name in found
        if name == label and not any(start < b and a < end for a, b in gold.unknown)
    }
    return len(spans & wanted), len(spans), len(wanted)


def word_counts(gold: Labelled, found: Entities, label: str) -> tuple[int, int, int]:
    """As :func:`counts`, for the words that spans touch: what masking sees."""
    wanted, flagged, unknown = set[int](), set[int](), set[int]()
    for word in WORD.finditer(gold.text):
        if touches(word, gold.unknown):
            unknown.add(word.start())
        if touches(word, [(start, end) for start, end, name in gold.entities if name == label]):
            wanted.add(word.start())
        if touches(word, [(start, end) for start, end, name in found if name == label]):
            flagged.add(word.start())
    flagged -= unknown
    return len(flagged & wanted), len(flagged), len(wanted - unknown)


def touches(word: re.Match[str], ranges: Iterable[tuple[int, int]]) -> bool:
    """Whether a word shares a character with any of the ranges."""
    return any(start < word.end() and word.start() < end for start, end in ranges)


def summary(rows: Sequence[tuple[int, int, int]], seed: int = 0, resamples: int = 1000) -> dict[str, Any]:
    """Precision and recall with exact intervals, and F1 with a bootstrap over texts."""
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)  # (N, 3)
    right, found, wanted = (int(value) for value in table.sum(axis=0))
    weights = _resampled(len(table), resamples, seed)  # (resamples, N)
    sums = weights @ table  # (resamples, 3)
    scores = 2 * sums[:, 0] / np.maximum(sums[:, 1] + sums[:, 2], 1)
    low, high = np.quantile(scores, [0.025, 0.975])
    f1 = 2 * right / max(found + wanted, 1)
    return {
        "precision": Share(right, found).to_dict(),
        "recall": Share(right, wanted).to_dict(),
        "f1": {"value": round(f1, 4), "n": wanted, "interval": [round(float(low), 4), round(float(high), 4)]},
    }


@lru_cache(maxsize=1)
def _resampled(texts: int, resamples: int, seed: int) -> npt.NDArray[np.int64]:
    """How often each text is drawn; kept for the labels and systems that are measured on the same texts."""
    return np.random.default_rng(seed).multinomial(texts, np.full(texts, 1 / texts), size=resamples)
