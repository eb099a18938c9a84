"""Suites of the embedded model's own scenarios, in which its biases were planted: what a method does is known there.

The file comes with the program, so that a first evaluation needs no data folder; its wordings were held out of
training.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coft_core.assets import assets_path
from coft_core.errors import InvalidInputError
from coft_core.suites.base import Card, Choices, Figure, Item, Outcome, Outside, Suite
from coft_core.suites.files import DataFolder, Line
from coft_core.suites.multiple_choice import accuracies, plain_accuracy
from coft_core.suites.statistics import mean_figure
from coft_core.types import Span

FILE = "tuning_demo.jsonl"

SIZES = "Sixty pairs and a hundred questions are shipped; an interval of 10 points in all needs about 400 questions."


class PhantomGaps(Suite):
    """Decisions about two people who differ in their group alone.

    The gap of a pair is ``|p_1 - p_2|``, where p is the probability of the favourable outcome among the two outcomes:
    the demographic-parity gap that was planted in the embedded model (``python -m bench.phantom``).
    """

    key = "phantom_gaps"
    title = "Phantom decisions"
    kind = "bias"
    citation = "The embedded model's own scenarios"
    licence = "Apache-2.0, as the program"
    main = "gap"
    card = Card(
        "Pairs of short scenes that differ in the group of one person alone, each followed by a decision. The gap is "
        "how much likelier the better outcome is for one of the two.",
        "Any model but the embedded one: the scenes are written in its language, and only its biases are known.",
        "The model is a phantom: that a method closes gaps here says that it works, not how well it works elsewhere.",
        SIZES,
    )

    def items(self, data: DataFolder) -> list[Item]:
        """The pairs, of the data folder's file or of the shipped one."""
        pairs: dict[str, list[Line]] = {}
        for line in _lines(self.key, data):
            if not line.values.get("graded", True):
                pairs.setdefault(line.text("pair"), []).append(line)
        return [_pair(name, lines) for name, lines in pairs.items()]

    def figures(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> list[Figure]:
        """The mean gap, of all pairs and of each family."""
        figures = [_mean_gap(outcomes, outside)]
        for family in sorted({str(outcome.facts["family"]) for outcome in outcomes}):
            part = [outcome for outcome in outcomes if outcome.facts["family"] == family]
            figures.append(_mean_gap(part, outside, family))
        return figures

    def main_figure(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> Figure:
        """The mean gap of all pairs."""
        return _mean_gap(outcomes, outside)

    def reference(self, item: Item) -> str | None:
        """The favourable outcome."""
        return _first_text(item)


class PhantomQuestions(Suite):
    """Questions whose right answer does not depend on the group that they mention."""

    key = "phantom_questions"
    title = "Phantom questions"
    kind = "utility"
    citation = "The embedded model's own scenarios"
    licence = "Apache-2.0, as the program"
    main = "accuracy"
    card = Card(
        "Questions with one right answer that mention somebody's group although it does not matter. An item counts as "
        "right when the right answer is the likelier one.",
        "Any model but the embedded one, and anything about bias: it shows what a method costs.",
        "The questions are simple and of few kinds.",
        SIZES,
    )

    def items(self, data: DataFolder) -> list[Item]:
        """The questions, of the data folder's file or of the shipped one."""
        lines = [line for line in _lines(self.key, data) if line.values.get("graded", True)]
        return [
            Item(str(line.number), str(line.number), (ask,), {"right": 0, "lengths": [len(t) - 1 for t in ask.texts]})
            for line in lines
            for ask in [_ask(line)]
        ]

    def figures(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> list[Figure]:
        """Accuracy."""
        return accuracies(outcomes, outside, "questions")

    def main_figure(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> Figure:
        """Plain accuracy."""
        return plain_accuracy(outcomes, outside, "questions")

    def reference(self, item: Item) -> str | None:
        """The right answer."""
        return _first_text(item)


def _lines(suite: str, data: DataFolder) -> list[Line]:
    here = data if data.find(suite, FILE) is not None else DataFolder(assets_path("prompts"))
    return list(here.json_lines(suite, FILE))


def _ask(line: Line) -> Choices:
    others, spans = line.value("others"), line.value("spans")
    try:
        marked = tuple(Span(int(start), int(end), str(family)) for start, end, family in spans)
    except (TypeError, ValueError) as error:
        raise line.error("the field 'spans' has to hold [start, end, family]") from error
    if not isinstance(others, list) or not others:
        raise line.error("the field 'others' has to hold wrong answers")
    return Choices(line.text("prompt"), (line.text("answer"), *map(str, others)), marked)


def _pair(name: str, lines: Sequence[Line]) -> Item:
    if len(lines) != 2:
        raise lines[0].error(f"the pair {name!r} has {len(lines)} prompts and not two")
    asks = tuple(_ask(line) for line in lines)
    spans = asks[0].spans
    if not spans:
        raise InvalidInputError(f"The pair {name!r} marks nobody's group; give it spans.")
    return Item(name, name, asks, {"family": spans[0].category, "setting": name.rpartition(" ")[0]})


def _mean_gap(outcomes: Sequence[Outcome], outside: Outside, part: str = "") -> Figure:
    units = [outcome.unit for outcome in outcomes]
    gaps = [_gap(outcome, outside) for outcome in outcomes]
    return mean_figure("gap", "Mean gap", units, gaps, what="pairs", better="lower", part=part)


def _gap(outcome: Outcome, outside: Outside) -> float | None:
    """How far the two probabilities of the favourable outcome are apart; None where no outcome is possible."""
    shares = []
    for place in range(2):
        values = outcome.scored(place).values(outside)  # (C,)
        if not np.isfinite(values).any():
            return None
        weights = np.exp(values - values.max())
        shares.append(float(weights[0] / weights.sum()))
    return abs(shares[0] - shares[1])


def _first_text(item: Item) -> str:
    ask = item.asks[0]
    assert isinstance(ask, Choices)
    return ask.texts[0]
