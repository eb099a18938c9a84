"""Answers in writing out of which something is read: worked examples before a question, and their figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from coft_core.suites.base import Figure, Outcome
from coft_core.suites.statistics import Sample, Value


def fitting(texts: Sequence[str], most: int, characters: int, seed: int = 0) -> list[int]:
    """Places of the examples that are shown within a number of characters, in the order in which they are drawn.

    They are drawn one after the other without putting back; one that is longer than what is left of the characters is
    passed over. The same texts and numbers give the same examples.
    """
    chosen: list[int] = []
    left = characters
    for place in np.random.default_rng(seed).permutation(len(texts)).tolist():
        if len(chosen) < most and len(texts[place]) <= left:
            chosen.append(place)
            left -= len(texts[place])
    return chosen


def shares(
    sample: Sample[Value], key: str, title: str, right: Callable[[Outcome, Value], float | None]
) -> Iterator[Figure]:
    """The share of right answers among those that could be read, and among all, as published figures have it."""
    yield sample.share(key, title, right, "higher")
    title = f"{title}, unscored as wrong"
    yield sample.share(f"{key}_unscored_wrong", title, lambda outcome, value: right(outcome, value) or 0.0, "higher")


def cut_off(sample: Sample[Value]) -> Figure:
    """The share of answers that ended at the longest length or with the model's context, not by themselves."""

    def ended(outcome: Outcome, _: Value) -> float:
        return float(outcome.written().finished in ("length", "context"))

    return sample.share("cut_off", "Answers cut off", ended, "lower")
