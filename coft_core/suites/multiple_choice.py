"""Multiple choice by likelihood: right where the right answer is likelier after the question than every other one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

from coft_core.suites.base import Choices, Figure, Item, Outcome, Outside, Suite
from coft_core.suites.statistics import Sample


class MultipleChoice(Suite):
    """A suite of questions with given answers; its items are made by :func:`choice_item`."""

    kind = "utility"
    main = "accuracy"

    counted: ClassVar[str] = "questions"
    """What its figures count, in the plural."""

    def figures(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> Iterator[Figure]:
        """Accuracy, plain and by likelihood per character of the answer, as lm-evaluation-harness has them."""
        return accuracies(outcomes, outside, self.counted)


def choice_item(identity: str, prompt: str, answers: Sequence[str], right: int) -> Item:
    """A question with its answers, each after a space, as lm-evaluation-harness has them; a unit of its own."""
    facts = {"right": right, "lengths": [len(answer) for answer in answers]}
    return Item(identity, identity, (Choices(prompt, tuple(f" {answer}" for answer in answers)),), facts)


def accuracies(outcomes: Sequence[Outcome], outside: Outside, what: str) -> Iterator[Figure]:
    """Accuracy of multiple choice; items whose answers are all impossible are unscored.

    The harness takes the first of equally likely answers; here a tie is wrong, as no answer is preferred.
    """
    sample = Sample.of(outcomes, lambda outcome: outcome.scored().log_likelihoods(outside), what)
    yield sample.share("accuracy", "Accuracy", right_of, "higher")

    def by_length(outcome: Outcome, values: Sequence[float]) -> float | None:
        lengths = outcome.facts["lengths"]
        return right_of(outcome, [value / length for value, length in zip(values, lengths, strict=True)])

    yield sample.share("accuracy_by_length", "Accuracy, by likelihood per character", by_length, "higher")


def right_of(outcome: Outcome, values: Sequence[float]) -> float | None:
    """1 where the right answer has a higher value than every other one, else 0; None where all are impossible."""
    if not any(map(math.isfinite, values)):
        return None
    right = int(outcome.facts["right"])
    return float(values[right] > max(value for place, value in enumerate(values) if place != right))
