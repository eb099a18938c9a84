"""Training texts with their sensitive spans, and the same texts about somebody else."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.demo_model.phantom.generate import generate_texts
from bench.demo_model.phantom.groups import STANDING
from coft_core import Span
from coft_core.errors import InvalidInputError
from coft_core.text.counterfactuals import substitutions
from coft_core.text.rewording import reword

_FAMILY_OF = {group: family for family, groups in STANDING.items() for group in groups}


@dataclass(frozen=True)
class MarkedText:
    """A text with its sensitive spans."""

    text: str
    spans: tuple[Span, ...]

    @property
    def masked(self) -> tuple[Span, ...]:
        """The spans that count, in reading order; suggestions do not."""
        return tuple(sorted(span for span in self.spans if span.masked))


@dataclass(frozen=True)
class Augmented:
    """Texts with their counterparts."""

    texts: tuple[str, ...]
    swapped: int
    unmarked: int
    unknown: int


def read_texts(paths: Iterable[Path]) -> list[str]:
    """Reads texts: one a line of a `.txt` file, or the field `text` of each line of a `.jsonl` file."""
    texts = [text for path in paths for text in _lines(path)]
    if not texts:
        raise InvalidInputError("The files hold no text; give one text a line.")
    return texts


def planted_texts(number: int, seed: int) -> list[MarkedText]:
    """Generates texts of the embedded model's scenarios, whose spans are known."""
    return [
        MarkedText(text.text, tuple(Span(start, end) for start, end in text.spans))
        for text in generate_texts(number, seed)
    ]


def marked(texts: Iterable[str], detect: Callable[[str], Sequence[Span]]) -> list[MarkedText]:
    """Finds the spans of texts."""
    return [MarkedText(text, tuple(detect(text))) for text in texts]


def augment(texts: Sequence[MarkedText], seed: int) -> Augmented:
    """Adds to every text its counterpart: the same words about another group or gender."""
    rng = random.Random(f"counterparts-{seed}")
    found: list[str] = []
    swapped = unmarked = 0
    for item in texts:
        found.append(item.text)
        unmarked += not item.masked
        other = counterpart(item, rng)
        if other is not None:
            found.append(other)
            swapped += 1
    return Augmented(tuple(found), swapped, unmarked, len(texts) - swapped - unmarked)


def counterpart(item: MarkedText, rng: random.Random) -> str | None:
    """A text with its attributes swapped, drawn among those that are known; None if there is none.

    A group of the embedded model's scenarios becomes another one of its family, since what was planted is defined for
    these alone; all other words are swapped as the shipped tables say (:mod:`coft_core.text.counterfactuals`).
    """
    if not item.masked:
        return None
    named = {item.text[span.start : span.end] for span in item.masked}
    (own, *others) = sorted(named)
    if not others and own in _FAMILY_OF:
        new = rng.choice([group for group in STANDING[_FAMILY_OF[own]] if group != own])
        return reword(item.text, item.spans, dict.fromkeys(item.masked, new), {}).text
    known = substitutions(item.text, item.spans).found
    return rng.choice(known).text if known else None


def _lines(path: Path) -> Iterator[str]:
    if path.suffix not in (".txt", ".jsonl"):
        raise InvalidInputError(f"{path} is neither a .txt nor a .jsonl file; write the texts as one of these.")
    if not path.is_file():
        raise InvalidInputError(f"There is no file {path}; give one with the texts.")
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        text = _field(line) if path.suffix == ".jsonl" else line
        if not text or not text.strip():
            raise InvalidInputError(f"Line {number} of {path} is no JSON object with a text as 'text'; write it so.")
        yield text


def _field(line: str) -> str | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    text = row.get("text") if isinstance(row, dict) else None
    return text if isinstance(text, str) else None
