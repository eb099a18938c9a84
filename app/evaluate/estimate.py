"""How long an evaluation will take: items of medium length of each suite are read, and the rest follows from them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from app.evaluate.items import ask_seed, batches, size_of, thinned
from app.evaluate.prepared import LoadedGroup, MethodPreparer
from app.evaluate.runs import EvaluationEstimate, SuiteEstimate
from app.evaluate.sources import SuiteItems
from app.evaluate.work import EvaluationWork
from app.hosting.model_host import ModelHost
from coft_core.conformal.quantile import minimum_contexts
from coft_core.model.language_model import LanguageModel
from coft_core.suites.base import Ask, Choices, Item
from coft_core.suites.reading import Reader

TRIED_TOKENS = 8
"""Tokens that a trial writes at most."""

TRIED_ITEMS = 4
"""Items that a trial reads together: how much longer they take than one says what each item adds to a batch."""


@dataclass(frozen=True)
class Estimator:
    """Judges what evaluations take."""

    host: ModelHost
    preparer: MethodPreparer
    reader: Callable[..., Reader] = Reader

    def estimate(self, work: EvaluationWork, missing: Sequence[str] = ()) -> EvaluationEstimate:
        """What the suites of some work take; ``missing`` is what else prevents it."""
        groups = [self.preparer.load(group) for group in self.preparer.groups(work.request)]
        suites = tuple(self._suite(work, suite, groups) for suite in work.suites)
        return EvaluationEstimate(suites, tuple(missing))

    def _suite(self, work: EvaluationWork, suite: SuiteItems, groups: Sequence[LoadedGroup]) -> SuiteEstimate:
        evaluated = [work.splits[suite.suite.key, seed].evaluated for seed in work.request.seeds]
        items = [suite.items[place] for places in evaluated for place in places]
        model = self.host.get(work.request.model)
        return SuiteEstimate(
            suite=suite.suite.key,
            items=len(items),
            asks=sum(len(item.asks) for item in items),
            read=sum(_tokens_read(model, item) for item in items),
            written=sum(ask.most_tokens for item in items for ask in item.asks if not isinstance(ask, Choices)),
            seconds=sum(self._seconds(work, suite, loaded) for loaded in groups),
            too_small=_too_small(work, suite),
        )

    def _seconds(self, work: EvaluationWork, suite: SuiteItems, loaded: LoadedGroup) -> float:
        """Time that a group's methods take, by items of medium length; one that is read again is read once."""
        ordered = sorted(suite.items, key=lambda item: (size_of(item), item.id))
        first = max((len(ordered) - TRIED_ITEMS) // 2, 0)
        tried = ordered[first : first + TRIED_ITEMS]
        splits = [work.splits[suite.suite.key, seed].evaluated for seed in work.request.seeds]
        again = any(ready.method.calibrated for ready in loaded.group.methods) or _writes(tried[0])
        places = [place for each in splits for place in each] if again else set[int]().union(*splits)
        count = len(tried) * sum(size_of(suite.items[place]) for place in places) / max(sum(map(size_of, tried)), 1)
        items = [thinned(item, loaded.group.detector, loaded.group.dropped) for item in tried]
        alone = self._time(loaded, suite.suite.key, items[:1])
        if len(items) == 1:
            return alone * count
        each = max(self._time(loaded, suite.suite.key, items) - alone, 0.0) / (len(items) - 1)
        batch = len(suite.items) / len(batches(suite.items))
        return (each + max(alone - each, 0.0) / batch) * count

    def _time(self, loaded: LoadedGroup, suite: str, items: Sequence[Item]) -> float:
        """Seconds that a group takes for items that are read together."""
        asks = [ask for item in items for ask in item.asks]
        if not any(map(_writes, items)):
            return self._timed(loaded, suite, asks)
        # What reads the prompt comes once, what writes a token as often as there are tokens.
        once = self._timed(loaded, suite, [_shortened(ask, 1) for ask in asks])
        several = self._timed(loaded, suite, [_shortened(ask, TRIED_TOKENS) for ask in asks])
        longest = max(ask.most_tokens for ask in asks if not isinstance(ask, Choices))
        return once + max(several - once, 0.0) / (TRIED_TOKENS - 1) * (longest - 1)

    def _timed(self, loaded: LoadedGroup, suite: str, asks: Sequence[Ask]) -> float:
        group = loaded.group
        room = self.host.memory.room()
        reader = self.reader(group.model, loaded.models, loaded.scorers, group.detector, room)
        policies = [ready.policy for ready in group.methods]
        seeds = [ask_seed(0, suite, "trial", place) for place in range(len(asks))]
        with self.host.turn():
            # The first reading of a model is slow for reasons that do not come again.
            reader.read(asks, policies, seeds)
            began = time.perf_counter()
            reader.read(asks, policies, seeds)
            return time.perf_counter() - began


def _writes(item: Item) -> bool:
    return any(not isinstance(ask, Choices) for ask in item.asks)


def _shortened(ask: Ask, most: int) -> Ask:
    return ask if isinstance(ask, Choices) else replace(ask, most_tokens=min(ask.most_tokens, most))


def _tokens_read(model: LanguageModel, item: Item) -> int:
    texts = [text for ask in item.asks for text in (ask.prompt, *(ask.texts if isinstance(ask, Choices) else ()))]
    return sum(map(len, model.tokenizer(texts, add_special_tokens=False)["input_ids"]))


def _too_small(work: EvaluationWork, suite: SuiteItems) -> str:
    """The suite with the units of its calibration share and those that a level needs, if those are more."""
    levels = [method.settings.alpha for method in work.request.methods if method.calibrated]
    if not levels:
        return ""
    apart = [work.splits[suite.suite.key, seed].apart for seed in work.request.seeds]
    units = min(len({suite.items[place].unit for place in places}) for places in apart)
    needed = minimum_contexts(min(levels))
    return f"{suite.suite.title} ({units:,} of {needed:,})" if units < needed else ""
