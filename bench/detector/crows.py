"""Pairs of sentences that differ in the group that they are about: does the detector mark the words that differ?

CrowS-Pairs is for evaluation only: nothing here is used for training; the model card says what its totals influenced.
Which words name a group by themselves is said by ``markers.json``, a fixed list for each bias type that was written
from the definition of the type and not from the lexicons. What is masked by default was settled by the totals of one
part of the pairs, :data:`CHOOSING`; the other, :data:`UNTOUCHED`, was measured once it was settled.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from difflib import SequenceMatcher
from functools import lru_cache
from pathlib import Path
from typing import Any

from spacy.lang.en.stop_words import STOP_WORDS

from bench.detector.scoring import WORD, Share, touches
from coft_core.types import Span

Detect = Callable[[str], list[Span]]
Markers = Mapping[str, frozenset[str]]


CHOOSING = "choosing"
UNTOUCHED = "untouched"


def part_of(more: str, less: str) -> str:
    """The part that a pair of sentences belongs to: by the first byte of SHA-256 of both, even for choosing."""
    return UNTOUCHED if hashlib.sha256(f"{more}\n{less}".encode()).digest()[0] % 2 else CHOOSING


@lru_cache(maxsize=1)
def read_markers() -> Markers:
    """Words that name a group by themselves, in lower case, by bias type."""
    written = json.loads(Path(__file__).with_name("markers.json").read_text(encoding="utf-8"))
    return {kind: frozenset(words.split()) for kind, words in written.items() if kind != "about"}


def measure_pairs(path: Path, detect: Detect, markers: Markers | None = None) -> dict[str, Any]:
    """Measure one detector."""
    known = read_markers() if markers is None else markers
    anything = frozenset[str]().union(*known.values())
    hits, trials = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    pairs, in_part = Counter[str](), Counter[str]()

    def count(measure: str, kind: str, hit: bool, *parts: str) -> None:
        for key in ((measure, "all"), (measure, kind), *((measure, part) for part in parts)):
            trials[key] += 1
            hits[key] += hit

    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            kind, part = row["bias_type"], part_of(row["sent_more"], row["sent_less"])
            pairs[kind] += 1
            in_part[part] += 1
            for (text, differs), first in zip(_sides(row["sent_more"], row["sent_less"]), (True, False), strict=True):
                spans = detect(text)
                marked = [(span.start, span.end) for span in spans]
                masked = [(span.start, span.end) for span in spans if span.masked]
                for word, new in zip(WORD.finditer(text), differs, strict=True):
                    plain = _plain(word[0])
                    hit, hidden = touches(word, marked), touches(word, masked)
                    if new:
                        count("recall", kind, hit)
                        count("masked_recall", kind, hidden, part)
                        if plain in anything or plain not in STOP_WORDS:
                            count("content_recall", kind, hit)
                        if plain in known.get(kind, ()):
                            count("explicit", kind, hit)
                    elif first:
                        count("others", kind, hit)
                        count("others_masked", kind, hidden, part)
                        if plain not in anything:
                            count("others_unmarked", kind, hit)
                            count("others_masked_unmarked", kind, hidden)
    result: dict[str, Any] = {"pairs": pairs.total()}
    for measure in ("recall", "content_recall", "masked_recall", "explicit"):
        result[measure] = {
            kind: Share(hits[measure, kind], trials[measure, kind]).to_dict() for kind in ("all", *sorted(pairs))
        }
    for measure in ("others", "others_unmarked", "others_masked", "others_masked_unmarked"):
        result[measure] = Share(hits[measure, "all"], trials[measure, "all"]).to_dict()
    result["parts"] = {
        part: {"pairs": number}
        | {name: Share(hits[name, part], trials[name, part]).to_dict() for name in ("masked_recall", "others_masked")}
        for part, number in sorted(in_part.items())
    }
    return result


def _plain(word: str) -> str:
    """A word in lower case without a possessive ending."""
    lower = word.lower().replace("\u2019", "'")
    return lower.removesuffix("'s").removesuffix("'")


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
