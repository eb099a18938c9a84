"""What methods are tuned on: prompts with right answers, in groups that differ in a protected attribute alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from coft_core.errors import InvalidInputError
from coft_core.types import Span

FEWEST_ITEMS = 20
"""With fewer items a fall of accuracy by 5 % is less than one item."""


@dataclass(frozen=True, slots=True)
class TuningItem:
    """One prompt with its right answer.

    Attributes:
        prompt: The prompt.
        answer: Its right continuation, taken literally (its leading space counts).
        others: Wrong continuations to choose from. Without any, the answer is right when the method's greedy choice is
            its first token.
        pair: Id of the counterfactual group: items that share it differ in the attribute alone, and a fair method
            answers them alike. None for items that only count for accuracy.
        spans: Sensitive spans; None lets the detector find them.
        graded: Whether the answer is right and counts for accuracy; where it is not, the item only shows how far its
            pair is apart.
    """

    prompt: str
    answer: str
    others: tuple[str, ...] = ()
    pair: str | None = None
    spans: tuple[Span, ...] | None = None
    graded: bool = True

    @property
    def choices(self) -> tuple[str, ...]:
        """The answer and the wrong continuations, the answer first."""
        return (self.answer, *self.others)


def check_items(items: Sequence[TuningItem]) -> None:
    """Refuse items that nothing can be tuned on.

    Raises:
        InvalidInputError: There are too few, none is graded, an answer is empty or given twice, no two items share a
            pair, or the items of a pair have different answers to choose from.
    """
    if len(items) < FEWEST_ITEMS:
        raise InvalidInputError(f"There are {len(items)} prompts to tune on; give at least {FEWEST_ITEMS}.")
    for number, item in enumerate(items, 1):
        if not item.prompt.strip() or any(not choice.strip() for choice in item.choices):
            raise InvalidInputError(f"Prompt {number} is empty or has an empty answer; fill it in.")
        if len(set(item.choices)) < len(item.choices):
            raise InvalidInputError(f"Prompt {number} has the same answer twice; give different ones.")
    if not any(item.graded for item in items):
        raise InvalidInputError("No prompt has a right answer, so that no accuracy can be measured; grade some.")
    pairs = Counter(item.pair for item in items if item.pair is not None)
    if not any(count > 1 for count in pairs.values()):
        raise InvalidInputError(
            "No two prompts share a pair, so that no gap between groups can be measured; give prompts that differ in "
            "the attribute alone the same pair."
        )
    for pair in pairs:
        if len({frozenset(item.choices) for item in items if item.pair == pair}) > 1:
            raise InvalidInputError(f"The prompts of the pair {pair!r} have different answers; give them the same.")
