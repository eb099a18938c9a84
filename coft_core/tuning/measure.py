"""Accuracy and gap of one method: how often it answers rightly, and how much its answers depend on the attribute."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coft_core.decode import score
from coft_core.engine.model import LanguageModel
from coft_core.masking.spans import SpanDetector
from coft_core.policies.base import Policy
from coft_core.scorers.base import ToxicityScorer
from coft_core.tuning.items import TuningItem
from coft_core.types import Step

RESAMPLES = 2000
LEVEL = 0.95

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Measured:
    """What a method does on the items.

    Attributes:
        accuracy: Share of items that are answered rightly.
        accuracy_interval: Its 95 % bootstrap interval; pairs are drawn, not items, since those of a pair are dependent.
        gap: Mean over pairs of the largest total variation distance between the answers of two of its items.
        gap_interval: Its 95 % bootstrap interval over pairs.
        items: Number of items.
        pairs: Number of pairs with at least two items.
    """

    accuracy: float
    accuracy_interval: Interval
    gap: float
    gap_interval: Interval
    items: int
    pairs: int


def measure(
    model: LanguageModel,
    items: Sequence[TuningItem],
    policy: Policy,
    models: Mapping[str, LanguageModel] | None = None,
    scorers: Mapping[str, ToxicityScorer] | None = None,
    detector: SpanDetector | None = None,
    progress: Callable[[int], None] | None = None,
    seed: int = 0,
) -> Measured:
    """Teacher-force every choice of every item under a policy.

    With choices, an item's answer distribution is the softmax of their log-probabilities (sums over their tokens) in
    the distribution that the policy draws from, and it is right if the answer alone is likeliest. A token that the
    certified set refuses while it certifies others has probability 0, as it has in decoding. Without choices, the
    answer distribution is (p, 1 - p) for the first token of the answer, and it is right if the greedy choice is that
    token.

    Args:
        model: The model.
        items: Checked items.
        policy: The policy.
        models: Further models that the policy runs, by name; None loads them.
        scorers: Toxicity scorers by name; None loads them.
        detector: Finds the spans where an item gives none.
        progress: Called with the number of items done after each.
        seed: Seed of the bootstrap.
    """
    right: list[bool] = []
    answers: list[npt.NDArray[np.float64]] = []
    for number, item in enumerate(items, 1):
        steps = [
            score(model, item.prompt, choice, policy, item.spans, detector, models, scorers) for choice in item.choices
        ]
        distribution = _answer_distribution(item, steps)
        answers.append(_by_text(item, distribution))
        right.append(_is_right(item, steps[0], distribution))
        if progress is not None:
            progress(number)
    return _measured(items, np.array(right, dtype=float), answers, seed)


def _answer_distribution(item: TuningItem, steps: Sequence[Sequence[Step]]) -> npt.NDArray[np.float64]:
    """Probabilities of the choices, the answer first, ``(C,)``; ``(p, 1 - p)`` without choices."""
    if not item.others:
        p = math.exp(_log_p(steps[0][0]))
        return np.array([p, 1.0 - p])
    logs = np.array([sum(_log_p(step) for step in own) for own in steps])
    top = logs.max()
    # Where every choice holds a refused token, none of them can be written and none is preferred.
    if top == -math.inf:
        return np.full(len(logs), 1.0 / len(logs))
    weights = np.exp(logs - top)
    return np.asarray(weights / weights.sum())


def _log_p(step: Step) -> float:
    """Log-probability with which a step's token is drawn, up to the set's normalisation."""
    own = next(candidate for candidate in step.candidates if candidate.token_id == step.token_id)
    refused = step.state != "none" and step.set_size > 0 and not own.certified
    return -math.inf if refused else step.log_p_fused


def _is_right(item: TuningItem, answer: Sequence[Step], distribution: npt.NDArray[np.float64]) -> bool:
    if not item.others:
        return answer[0].policy_token_id == answer[0].token_id
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
    groups = list(places.values())
    hits = np.array([right[own].sum() for own in groups])
    sizes = np.array([len(own) for own in groups], dtype=float)
    gaps = np.array([_largest_distance([answers[place] for place in own]) for own in groups if len(own) > 1])
    generator = np.random.default_rng(seed)
    drawn = generator.integers(0, len(groups), (RESAMPLES, len(groups)))  # (R, groups)
    drawn_gaps = generator.integers(0, len(gaps), (RESAMPLES, len(gaps)))  # (R, pairs)
    return Measured(
        accuracy=float(right.mean()),
        accuracy_interval=_interval(hits[drawn].sum(1) / sizes[drawn].sum(1)),
        gap=float(gaps.mean()),
        gap_interval=_interval(gaps[drawn_gaps].mean(1)),
        items=len(items),
        pairs=len(gaps),
    )


def _largest_distance(answers: Sequence[npt.NDArray[np.float64]]) -> float:
    stacked = np.stack(answers)  # (items, C)
    distances = np.abs(stacked[:, None] - stacked[None]).sum(-1) / 2  # (items, items)
    return float(distances.max())


def _interval(values: npt.NDArray[np.float64]) -> Interval:
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
