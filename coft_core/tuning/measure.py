"""Accuracy and gap of one method: how often it answers rightly, and how much its answers depend on the attribute."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from coft_core.decode.plan import Plan, plan
from coft_core.errors import InvalidInputError
from coft_core.model.branches import BranchSpec
from coft_core.model.forced import OwnRoom, Room, run_each
from coft_core.model.group import score_branches
from coft_core.model.language_model import LanguageModel
from coft_core.model.slots import rows_size
from coft_core.policies.base import Past, Policy
from coft_core.scorers.base import ToxicityScorer
from coft_core.text.detection import SpanDetector, default_detector
from coft_core.text.masking import continuation_ids
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


class GivenToken(NamedTuple):
    """What a policy says of one token of a given continuation."""

    log_p: float
    greedy: bool


class ItemReader:
    """Reads one item's choices under policies, and keeps the logits of every reading until the item is done."""

    def __init__(
        self,
        model: LanguageModel,
        item: TuningItem,
        models: Mapping[str, LanguageModel] | None,
        scorers: Mapping[str, ToxicityScorer] | None,
        detector: SpanDetector,
        room: Room,
    ) -> None:
        """Find the item's spans; nothing runs yet. The arguments are those of :func:`measure_many`."""
        self._model, self._item, self._room = model, item, room
        self._models, self._scorers, self._detector = models, scorers, detector
        self._spans = detector.detect(item.prompt) if item.spans is None else item.spans
        self._logits: dict[Any, Tensor] = {}

    def choices(self, policy: Policy) -> list[list[GivenToken]]:
        """Every choice, token by token, the answer first."""
        make = partial(
            plan,
            self._model,
            self._item.prompt,
            policy,
            self._spans,
            detector=self._detector,
            models=self._models,
            scorers=self._scorers,
        )
        size = policy.writing_size(self._model, self._models or {}, self._item.prompt)
        prepared = self._room.run(size, make) if size else make()
        return [self._written(prepared, text) for text in self._item.choices]

    def _written(self, prepared: Plan, text: str) -> list[GivenToken]:
        tokens = tuple(continuation_ids(self._model, prepared.prompt, text))
        branches = prepared.policy.branches(prepared.prompt)
        names = tuple(branch.name for branch in branches)
        logits = self._of(prepared, branches, tokens)  # (C, B, V)
        tokens_written, memory = [], None
        for index, token in enumerate(tokens):
            past = Past(self._model, prepared.prompt, tokens[:index], memory)
            with torch.inference_mode():
                views = prepared.policy.views(logits[index : index + 1], index, names, (past,))
                memory = prepared.policy.remember(memory, logits[index], token, names)
            tokens_written.append(
                _one(views.log_p_fused[0], None if views.certified is None else views.certified[0], token)
            )
        return tokens_written

    def _of(self, prepared: Plan, branches: Sequence[BranchSpec], tokens: tuple[int, ...]) -> Tensor:
        models = prepared.all_models
        keys = [(id(models[branch.model].module), branch.hooks, branch.input_ids, tokens) for branch in branches]
        missing = [branch for branch, key in zip(branches, keys, strict=True) if key not in self._logits]
        if missing:
            length = max(len(branch.input_ids) for branch in missing) + len(tokens)
            size = sum(rows_size(models[branch.model], 1, length) for branch in missing)
            scored = self._room.run(size, partial(score_branches, models, missing, tokens))  # (C, M, V)
            new = [key for key in keys if key not in self._logits]
            self._logits.update(zip(new, scored.unbind(1), strict=True))
        rows = [self._logits[key] for key in keys]
        width = min(row.shape[-1] for row in rows)
        same = all(row.dtype == rows[0].dtype for row in rows)
        dtype = rows[0].dtype if same else torch.float32
        return torch.stack([row[:, :width].to(rows[0].device, dtype) for row in rows], dim=1)  # (C, B, V)


def _one(log_p: Tensor, certified: Tensor | None, token: int) -> GivenToken:
    """One token; an empty certified set falls back to all tokens, as it does in decoding. Both tensors are ``(V,)``."""
    if certified is not None and bool(certified.any()):
        log_p = torch.where(certified, log_p, -torch.inf)
    return GivenToken(float(log_p[token]), int(log_p.argmax()) == token)


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
    model, detector, room = model.dated(), detector or default_detector(), room or OwnRoom()
    right: list[list[bool]] = [[] for _ in policies]
    answers: list[list[npt.NDArray[np.float64]]] = [[] for _ in policies]
    works = (
        (None, partial(_read, ItemReader(model, item, models, scorers, detector, room), policies)) for item in items
    )
    for number, (item, read) in enumerate(zip(items, run_each(room, works), strict=True), 1):
        for place, choices in enumerate(read):
            distribution = _answer_distribution(item, choices)
            answers[place].append(_by_text(item, distribution))
            right[place].append(_is_right(item, choices[0], distribution))
        if progress is not None:
            progress(number)
    return [_measured(items, np.array(own, dtype=float), said) for own, said in zip(right, answers, strict=True)]


def _read(reader: ItemReader, policies: Sequence[Policy]) -> list[list[list[GivenToken]]]:
    """One item's choices under every policy."""
    return [reader.choices(policy) for policy in policies]


def _answer_distribution(item: TuningItem, choices: Sequence[Sequence[GivenToken]]) -> npt.NDArray[np.float64]:
    """Probabilities of the choices, the answer first, ``(C,)``; ``(p, 1 - p)`` without choices."""
    if not item.others:
        p = math.exp(choices[0][0].log_p)
        return np.array([p, 1.0 - p])
    logs = np.array([sum(written.log_p for written in tokens) for tokens in choices])
    top = logs.max()
    # Where every choice holds a refused token, none of them can be written and none is preferred.
    if top == -math.inf:
        return np.full(len(logs), 1.0 / len(logs))
    weights = np.exp(logs - top)
    return np.asarray(weights / weights.sum())


def _is_right(item: TuningItem, answer: Sequence[GivenToken], distribution: npt.NDArray[np.float64]) -> bool:
    if not item.others:
        return answer[0].greedy
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
