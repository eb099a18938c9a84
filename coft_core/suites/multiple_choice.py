"""Multiple choice by likelihood: right where the right answer is likelier after the question than every other one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from coft_core.suites.base import Choices, Figure, Item, Outcome, Outside, Suite
from coft_core.suites.statistics import mean_figure


class MultipleChoice(Suite):
    """A suite of questions with given answers; its items are made by :func:`choice_item`."""

    kind = "utility"
    main = "accuracy"

    counted: ClassVar[str] = "questions"
    """What its figures count, in the plural."""

    def figures(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> list[Figure]:
        """Accuracy, plain and by likelihood per character of the answer, as lm-evaluation-harness has them."""
        return accuracies(outcomes, outside, self.counted)

    def main_figure(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> Figure:
        """Plain accuracy."""
        return plain_accuracy(outcomes, outside, self.counted)

    def reference(self, item: Item) -> str | None:
        """The right answer."""
        ask = item.asks[0]
        assert isinstance(ask, Choices)
        return ask.texts[int(item.facts["right"])]


def choice_item(identity: str, prompt: str, answers: Sequence[str], right: int) -> Item:
    """A question with its answers, each after a space, as lm-evaluation-harness has them; a unit of its own."""
    facts = {"right": right, "lengths": [len(answer) for answer in answers]}
    return Item(identity, identity, (Choices(prompt, tuple(f" {answer}" for answer in answers)),), facts)


def accuracies(outcomes: Sequence[Outcome], outside: Outside, what: str) -> list[Figure]:
    """Accuracy of multiple choice; items whose answers are all impossible are unscored.

    The harness takes the first of equally likely answers; here a tie is wrong, as no answer is preferred.
    """
    units = [outcome.unit for outcome in outcomes]
    by_length = [right_of(outcome, outside, by_length=True) for outcome in outcomes]
    return [
        plain_accuracy(outcomes, outside, what),
        mean_figure(
            "accuracy_by_length", "Accuracy, by likelihood per character", units, by_length, scale=100.0, what=what,
            better="higher",
        ),
    ]  # fmt: skip


def plain_accuracy(outcomes: Sequence[Outcome], outside: Outside, what: str) -> Figure:
    """The first of :func:`accuracies`."""
    units = [outcome.unit for outcome in outcomes]
    right = [right_of(outcome, outside) for outcome in outcomes]
    return mean_figure("accuracy", "Accuracy", units, right, scale=100.0, what=what, better="higher")


def right_of(outcome: Outcome, outside: Outside, by_length: bool = False) -> float | None:
    """1 where the right answer is likelier than every other one, else 0; None where all are impossible."""
    values = outcome.scored().log_likelihoods(outside)
    if by_length:
        values = [value / length for value, length in zip(values, outcome.facts["lengths"], strict=True)]
    if not any(map(math.isfinite, values)):
        return None
    right = values.pop(int(outcome.facts["right"]))
    return float(right > max(values))
