"""Accuracy and gap of one method: how often it answers rightly, and how much its answers depend on the attribute."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from coft_core.errors import InvalidInputError
from coft_core.model.forced import OwnRoom, Room, run_each
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import Policy
from coft_core.scorers.base import ToxicityScorer
from coft_core.suites.base import Choices, Likelihood, Scored
from coft_core.suites.reading import Reader
from coft_core.text.detection import SpanDetector
from coft_core.text.masking import continuation_ids, mask_prompt
from coft_core.text.turns import framed
from coft_core.types import Span

FEWEST_ITEMS = 20
"""With fewer items a fall of accuracy by 5 % is less than one item."""


@dataclass(frozen=True, slots=True)
class TuningItem:
    """One prompt with its right answer."""

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
    """Refuse items that nothing can be tuned on."""
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
            "No two prompts share a pair, so that no gap between groups can be measured; give one pair to prompts that "
            "differ only in the attribute."
        )
    for pair in pairs:
        if len({frozenset(item.choices) for item in items if item.pair == pair}) > 1:
            raise InvalidInputError(f"The prompts of the pair {pair!r} have different answers; give them the same.")


RESAMPLES = 2000
LEVEL = 0.95

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Measured:
    """What a method does on the items."""

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
        """
        if len(self.gaps) != len(other.gaps) or not self.gaps:
            raise InvalidInputError("The two gaps were not measured on the same pairs; measure both on one set.")
        differences = np.subtract(self.gaps, other.gaps)  # (pairs,)
        drawn = np.random.default_rng(0).integers(0, len(differences), (RESAMPLES, len(differences)))
        share = (differences[drawn].mean(1) >= 0).mean()
        return bool(share <= (1 - LEVEL) / 2 / max(tried, 1))


def measure_many(
    model: LanguageModel,
    items: Sequence[TuningItem],
    policies: Sequence[Policy],
    models: Mapping[str, LanguageModel] | None = None,
    scorers: Mapping[str, ToxicityScorer] | None = None,
    detector: SpanDetector | None = None,
    progress: Callable[[int], None] | None = None,
    room: Room | None = None,
) -> list[Measured]:
    """Teacher-force every choice of every item under several policies; readings that they share are run once.

    With choices, an item's answer distribution is the softmax of their log-probabilities (sums over their tokens) in
    the distribution that the policy draws from, and it is right if only the answer is likeliest. A token that the
    certified set refuses while it certifies others has probability 0, as it has in decoding. Without choices, the
    answer distribution is (p, 1 - p) for the first token of the answer, and it is right if the greedy choice is that
    token.
    """
    model, room = model.dated(), room or OwnRoom()
    reader = Reader(model, models, scorers, detector, room, encoding="apart")
    right: list[list[bool]] = [[] for _ in policies]
    answers: list[list[npt.NDArray[np.float64]]] = [[] for _ in policies]
    works = ((None, partial(reader.read, [ask_of(model, item)], policies, [0])) for item in items)
    for number, (item, read) in enumerate(zip(items, run_each(room, works), strict=True), 1):
        for place, (answer,) in enumerate(read):
            if not isinstance(answer, Scored):
                raise InvalidInputError(f"Prompt {number} cannot be read: {getattr(answer, 'reason', '')}")
            distribution = _answer_distribution(item, answer.likelihoods)
            answers[place].append(_by_text(item, distribution))
            right[place].append(_is_right(item, answer.likelihoods[0], distribution))
        if progress is not None:
            progress(number)
    return [_measured(items, np.array(own, dtype=float), said) for own, said in zip(right, answers, strict=True)]


def ask_of(model: LanguageModel, item: TuningItem) -> Choices:
    """What is asked of a model: how likely each choice is, or the answer's first token where there are no others."""
    if item.others:
        return Choices(item.prompt, item.choices, item.spans)
    text, _ = framed(item.prompt, (), model.prompting.frame, lambda _: ())
    prompt = mask_prompt(model.tokenizer, text, (), chat=model.prompting)
    return Choices(item.prompt, item.choices, item.spans, tokens=(continuation_ids(model, prompt, item.answer)[:1],))


def _answer_distribution(item: TuningItem, choices: Sequence[Likelihood]) -> npt.NDArray[np.float64]:
    """Probabilities of the choices, the answer first, ``(C,)``; ``(p, 1 - p)`` without choices."""
    logs = np.array([-math.inf if choice.refused else choice.log_p for choice in choices])
    if not item.others:
        p = math.exp(logs[0])
        return np.array([p, 1.0 - p])
    top = logs.max()
    # Where every choice holds a refused token, none of them can be written and none is preferred.
    if top == -math.inf:
        return np.full(len(logs), 1.0 / len(logs))
    weights = np.exp(logs - top)
    return np.asarray(weights / weights.sum())


def _is_right(item: TuningItem, answer: Likelihood, distribution: npt.NDArray[np.float64]) -> bool:
    if not item.others:
        return answer.greedy
    return bool(distribution[0] > distribution[1:].max())


def _by_text(item: TuningItem, distribution: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The distribution with its choices in alphabetical order, so that items of a pair can be compared."""
    return distribution[np.argsort(np.array(item.choices))] if item.others else distribution


def _measured(
    items: Sequence[TuningItem], right: npt.NDArray[np.float64], answers: Sequence[npt.NDArray[np.float64]]
) -> Measured:
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, item in enumerate(items):
        places[f"pair {item.pair}" if item.pair is not None else f"item {place}"].append(place)
    pairs = list(places.values())
    gaps = np.array([_largest_distance([answers[place] for place in members]) for members in pairs if len(members) > 1])
    groups = [graded for members in pairs if (graded := [place for place in members if items[place].graded])]
    hits = np.array([right[members].sum() for members in groups])
    sizes = np.array([len(members) for members in groups], dtype=float)
    generator = np.random.default_rng(0)
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
