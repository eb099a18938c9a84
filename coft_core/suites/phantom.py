"""Suites of the embedded model's own scenarios, in which its biases were planted: what a method does is known there.

The file comes with the program, so that a first evaluation needs no data folder; its wordings were held out of
training.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from pydantic import Field

from coft_core.assets import assets_path
from coft_core.suites.base import Choices, Figure, Item, Outcome, Outside, Record, Suite
from coft_core.suites.files import DataFolder, Line
from coft_core.suites.multiple_choice import MultipleChoice
from coft_core.suites.statistics import Sample
from coft_core.types import Span

FILE = "tuning_demo.jsonl"


class Prompt(Record):
    """A prompt with its right answer, or its favourable outcome, and others."""

    prompt: str
    answer: str
    others: list[str] = Field(min_length=1)
    spans: list[tuple[int, int, str]]
    pair: str = ""

    @property
    def ask(self) -> Choices:
        """Its answers, the right one first."""
        spans = tuple(Span(start, end, family) for start, end, family in self.spans)
        return Choices(self.prompt, (self.answer, *self.others), spans)

    def item(self, line: Line) -> Item:
        """A question, whose answers begin with a space."""
        facts = {"right": 0, "lengths": [len(text) - 1 for text in self.ask.texts]}
        return Item(str(line.number), str(line.number), (self.ask,), facts)


class PhantomGaps(Suite):
    """Decisions about two people who differ in their group alone.

    The gap of a pair is ``|p_1 - p_2|``, where p is the probability of the favourable outcome among the two outcomes:
    the demographic-parity gap that was planted in the embedded model (``python -m bench.phantom``).
    """

    key = "phantom_gaps"
    kind = "bias"
    main = "gap"

    def items(self, data: DataFolder) -> list[Item]:
        """The pairs, of the data folder's file or of the shipped one."""
        pairs: dict[str, list[Line]] = {}
        for line in _lines(self.key, data, graded=False):
            pairs.setdefault(line.read(Prompt).pair, []).append(line)
        return [_pair(name, lines) for name, lines in pairs.items()]

    def figures(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> Iterator[Figure]:
        """The mean gap, of all pairs and of each family."""
        sample = Sample.of(outcomes, lambda outcome: _gap(outcome, outside), "pairs")
        parts = sorted(sample.parts("family"), key=lambda part: part.part)
        for part in (sample, *parts):
            yield part.mean("gap", "Mean gap", lambda _, gap: gap, "lower")

    def reference(self, item: Item) -> str | None:
        """The favourable outcome."""
        ask = item.asks[0]
        return ask.texts[0] if isinstance(ask, Choices) else None


class PhantomQuestions(MultipleChoice):
    """Questions whose right answer does not depend on the group that they mention."""

    key = "phantom_questions"
    record = Prompt

    def items(self, data: DataFolder) -> list[Item]:
        """The questions, of the data folder's file or of the shipped one."""
        return self.made(_lines(self.key, data, graded=True))


def _lines(suite: str, data: DataFolder, graded: bool) -> list[Line]:
    here = data if data.find(suite, FILE) is not None else DataFolder(assets_path("prompts"))
    return [line for line in here.json_lines(suite, FILE) if bool(line.values.get("graded", True)) is graded]


def _pair(name: str, lines: Sequence[Line]) -> Item:
    if len(lines) != 2:
        raise lines[0].error(f"the pair {name!r} has {len(lines)} prompts and not two")
    asks = tuple(line.read(Prompt).ask for line in lines)
    spans = asks[0].spans
    if not spans:
        raise lines[0].error(f"the pair {name!r} marks nobody's group")
    return Item(name, name, asks, {"family": spans[0].category, "setting": name.rpartition(" ")[0]})


def _gap(outcome: Outcome, outside: Outside) -> float | None:
    """How far the two probabilities of the favourable outcome are apart; None where no outcome is possible."""
    shares = []
    for place in range(2):
        values = np.array(outcome.scored(place).log_likelihoods(outside))  # (C,)
        if not np.isfinite(values).any():
            return None
        weights = np.exp(values - values.max())
        shares.append(float(weights[0] / weights.sum()))
    return abs(shares[0] - shares[1])
