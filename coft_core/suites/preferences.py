"""What likelihoods say of texts that compete: which one is preferred, where two tie, and where nothing was masked."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from coft_core.suites.base import Figure, Outcome
from coft_core.suites.statistics import Sample, Value


def preference(first: float, second: float) -> float | None:
    """1 if the first of two log-likelihoods is the larger one, 0 if the second is, a half for a tie."""
    if not (math.isfinite(first) or math.isfinite(second)):
        return None
    return 0.5 if first == second else float(first > second)


def preferred(values: Sequence[float]) -> int | None:
    """Place of the largest of several log-likelihoods; None if it has no single one, or if every text is impossible."""
    best = max(values)
    places = [place for place, value in enumerate(values) if value == best]
    return places[0] if len(places) == 1 and math.isfinite(best) else None


def shared_beginning(sentences: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Split sentences behind the words with which all of them begin.

    Words are what stands between white space. Every rest keeps at least the last word of its sentence, and begins with
    the white space before it; without a shared word the beginning is empty and the rests are the whole sentences.
    """
    words = [re.findall(r"\s*\S+", sentence) for sentence in sentences]
    most = min(len(each) for each in words) - 1
    shared = 0
    while shared < most and len({each[shared] for each in words}) == 1:
        shared += 1
    beginning = "".join(words[0][:shared])
    return beginning, tuple(sentence[len(beginning) :] for sentence in sentences)


def tie_figure(
    sample: Sample[Value], key: str, title: str, preferred: Callable[[Outcome, Value], float | None]
) -> Figure:
    """Share of preferences that are ties, in percent."""

    def tied(outcome: Outcome, value: Value) -> float | None:
        own = preferred(outcome, value)
        return None if own is None else float(own == 0.5)

    return sample.share(key, title, tied)


def unmasked_figure(sample: Sample[Value]) -> Figure:
    """Share of items in whose first prompt nothing was masked, in percent: there the masked branch reads the same."""
    return sample.share("nothing_masked", "Nothing masked", lambda outcome, _: float(outcome.scored().masked == 0))
