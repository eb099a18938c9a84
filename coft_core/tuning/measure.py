"""Accuracy and gap of one method: how often it answers rightly, and how much its answers depend on the attribute."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from coft_core.engine.model import LanguageModel
from coft_core.engine.room import Room
from coft_core.errors import InvalidInputError
from coft_core.masking.spans import SpanDetector
from coft_core.policies.base import Policy
from coft_core.scorers.base import ToxicityScorer
from coft_core.tuning.items import TuningItem
from coft_core.tuning.reading import ItemReader, Written

RESAMPLES = 2000
LEVEL = 0.95

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Measured:
    """What a method does on the items.

    Attributes:
        accuracy: Share of graded items that are answered rightly.
        accuracy_interval: Its 95 % bootstrap interval; pairs are drawn, not items, since those of a pair are dependent.
        gap: Mean over pairs of the largest total variation distance between the answers of two of its items.
        gap_interval: Its 95 % bootstrap interval over pairs.
        items: Number of graded items.
        pairs: Number of pairs with at least two items.
        gaps: The largest distance of each such pair, in the order of the items.
    """

    accuracy: float
    accuracy_interval: Interval
    gap: float
    gap_interval: Interval
    items: int
    pairs: int
    gaps: tuple[float, ...] = ()

    def gains_on(self, other: Measured, tried: int = 1) -> bool:
        """Whether the gap is smaller than another's on the same pairs, beyond what the choice of pairs explains.

        Pairs are drawn again, the same ones for both: the mean difference must be below 0 in all but a share of the
        draws that is 0.025 for one comparison and is divided by the number of points that were tried.

        Args:
            other: What is compared with, measured on the same pairs.
            tried: Points among which this one could have been chosen.

        Raises:
            InvalidInputError: The pairs are not the same.
        """
        if len(self.gaps) != len(other.gaps) or not self.gaps:
            raise InvalidInputError("The two gaps were not measured on the same pairs; measure both on one set.")
        differences = np.subtract(self.gaps, other.gaps)  # (pairs,)
        drawn = np.random.default_rng(0).integers(0, len(differences), (RESAMPLES, len(differences)))
        share = (differences[drawn].mean(1) >= 0).mean()
        return bool(share <= (1 - LEVEL) / 2 / max(tried, 1))


def measure(model: LanguageModel, items: Sequence[TuningItem], policy: Policy, **given: Any) -> Measured:
    """Measure one policy; see :func:`measure_many`."""
    return measure_many(model, items, [policy], **given)[0]


def measure_many(
    model: LanguageModel,
    items: Sequence[TuningItem],
    policies: Sequence[Policy],
    models: Mapping[str, LanguageModel] | None = None,
    scorers: Mapping[str, ToxicityScorer] | None = None,
    detector: SpanDetector | None = None,
    progress: Callable[[int], None] | None = None,
    seed: int = 0,
    room: Room | None = None,
) -> list[Measured]:
    """Teacher-force every choice of every item under several policies; readings that they share are run once.

    With choices, an item's answer distribution is the softmax of their log-probabilities (sums over their tokens) in
    the distribution that the policy draws from, and it is right if the answer alone is likeliest. A token that the
    certified set refuses while it certifies others has probability 0, as it has in decoding. Without choices, the
    answer distribution is (p, 1 - p) for the first token of the answer, and it is right if the greedy choice is that
    token.

    Args:
        model: The model.
        items: Checked items.
        policies: The policies, for instance one method at several strengths.
        models: Further models that the policies run, by name; None loads them.
        scorers: Toxicity scorers by name; None loads them.
        detector: Finds the spans where an item gives none.
        progress: Called with the number of items done after each.
        seed: Seed of the bootstrap.
        room: Where the memory of readings is taken from, if the device is shared; None takes it without asking.
    """
    model = model.dated()
    right: list[list[bool]] = [[] for _ in policies]
    answers: list[list[npt.NDArray[np.float64]]] = [[] for _ in policies]
    for number, item in enumerate(items, 1):
        read = ItemReader(model, item, models, scorers, detector, room)
        for place, policy in enumerate(policies):
            choices = read.choices(policy)
            distribution = _answer_distribution(item, choices)
            answers[place].append(_by_text(item, distribution))
            right[place].append(_is_right(item, choices[0], distribution))
        if progress is not None:
            progress(number)
    return [
        _measured(items, np.array(own, dtype=float), found, seed) for own, found in zip(right, answers, strict=True)
    ]


def _answer_distribution(item: TuningItem, choices: Sequence[Sequence[Written]]) -> npt.NDArray[np.float64]:
    """Probabilities of the choices, the answer first, ``(C,)``; ``(p, 1 - p)`` without choices."""
    if not item.others:
        p = math.exp(choices[0][0].log_p)
        return np.array([p, 1.0 - p])
    logs = np.array([sum(written.log_p for written in own) for own in choices])
    top = logs.max()
    # Where every choice holds a refused token, none of them can be written and none is preferred.
    if top == -math.inf:
        return np.full(len(logs), 1.0 / len(logs))
    weights = np.exp(logs - top)
    return np.asarray(weights / weights.sum())


def _is_right(item: TuningItem, answer: Sequence[Written], distribution: npt.NDArray[np.float64]) -> bool:
    if not item.others:
        return answer[0].greedy
    return bool(distribution[0] > distribution[1:].max())


def _by_text(item: TuningItem, distribution: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The distribution with its choices in alphabetical order, so that items of a pair can be compared."""
    return distribution[np.argsort(np.array(item.choices))] if item.others else distribution


def _measured(
    items: Sequence[TuningItem], right: npt.NDArray[np.float64], answers: Sequence[npt.NDArray[np.float64]], seed: int
) -> Measured:
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, item in enumerate(items):
        places[f"pair {item.pair}" if item.pair is not None else f"item {place}"].append(place)
    pairs = list(places.values())
    gaps = np.array([_largest_distance([answers[place] for place in own]) for own in pairs if len(own) > 1])
    groups = [graded for own in pairs if (graded := [place for place in own if items[place].graded])]
    hits = np.array([right[own].sum() for own in groups])
    sizes = np.array([len(own) for own in groups], dtype=float)
    generator = np.random.default_rng(seed)
    drawn = generator.integers(0, len(groups), (RESAMPLES, len(groups)))  # (R, groups)
    drawn_gaps = generator.integers(0, len(gaps), (RESAMPLES, len(gaps)))  # (R, pairs)
    return Measured(
        accuracy=float(hits.sum() / sizes.sum()),
        accuracy_interval=_interval(hits[drawn].sum(1) / sizes[drawn].sum(1)),
        gap=float(gaps.mean()),
        gap_interval=_interval(gaps[drawn_gaps].mean(1)),
        items=int(sizes.sum()),
        pairs=len(gaps),
        gaps=tuple(gaps.tolist()),
    )


def _largest_distance(answers: Sequence[npt.NDArray[np.float64]]) -> float:
    stacked = np.stack(answers)  # (items, C)
    distances = np.abs(stacked[:, None] - stacked[None]).sum(-1) / 2  # (items, items)
    return float(distances.max())


def _interval(values: npt.NDArray[np.float64]) -> Interval:
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
