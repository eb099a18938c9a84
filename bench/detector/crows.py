"""Pairs of sentences that differ in the group that they are about: does the detector mark the words that differ?

CrowS-Pairs is for evaluation only: nothing here is used for training or for choosing anything.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from bench.detector.scoring import WORD, Share, touches
from coft_core.types import Span

Detect = Callable[[str], list[Span]]


def measure_pairs(path: Path, detect: Detect) -> dict[str, Any]:
    """Measure one detector.

    Args:
        path: ``crows_pairs_anonymized.csv``.
        detect: The detector.

    Returns:
        ``recall``: share of differing words that are marked, for all types and by bias type; ``others``: share of
        the words common to both sentences that are marked, counted in the first.
    """
    marked, differing, pairs = Counter[str](), Counter[str](), Counter[str]()
    others = [0, 0]
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            kind = row["bias_type"]
            pairs[kind] += 1
            for (text, differs), first in zip(_sides(row["sent_more"], row["sent_less"]), (True, False), strict=True):
                ranges = [(span.start, span.end) for span in detect(text)]
                for word, new in zip(WORD.finditer(text), differs, strict=True):
                    hit = touches(word, ranges)
                    if new:
                        differing[kind] += 1
                        marked[kind] += hit
                    elif first:
                        others[0] += hit
                        others[1] += 1
    recall = {kind: Share(marked[kind], differing[kind]).to_dict() for kind in sorted(differing)}
    recall = {"all": Share(marked.total(), differing.total()).to_dict(), **recall}
    return {"pairs": pairs.total(), "recall": recall, "others": Share(*others).to_dict()}


def _sides(left: str, right: str) -> Iterator[tuple[str, list[bool]]]:
    """Each sentence with, for each of its words, whether it differs from the other sentence."""
    first = [match[0].lower() for match in WORD.finditer(left)]
    second = [match[0].lower() for match in WORD.finditer(right)]
    flags = [True] * len(first), [True] * len(second)
    for a, b, size in SequenceMatcher(None, first, second, autojunk=False).get_matching_blocks():
        flags[0][a : a + size] = [False] * size
        flags[1][b : b + size] = [False] * size
    yield left, flags[0]
    yield right, flags[1]
