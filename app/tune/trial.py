"""How long a tuning will take: a few of its prompts are read as the run reads them, and the rest follows from them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from coft_core.model.forced import Room
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import Policy
from coft_core.scorers.base import ToxicityScorer
from coft_core.text.detection import SpanDetector
from coft_core.tuning.measure import ItemReader, TuningItem

TRIED = (0.25, 0.5, 0.75)
"""Which prompts are tried, by their place when all are sorted by length."""


def seconds_an_item(
    model: LanguageModel,
    items: Sequence[TuningItem],
    policies: Sequence[Policy],
    models: Mapping[str, LanguageModel],
    scorers: Mapping[str, ToxicityScorer],
    detector: SpanDetector,
    room: Room,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Seconds that one prompt takes under all variants of a method, on average."""
    model = model.dated()

    def read(item: TuningItem) -> None:
        reader = ItemReader(model, item, models, scorers, detector, room)
        for policy in policies:
            reader.choices(policy)

    ordered = sorted(items, key=lambda item: len(item.prompt))
    tried = [ordered[int(share * len(ordered))] for share in TRIED]
    # The first reading of a model is slow for reasons that do not come again.
    read(tried[0])
    began = clock()
    for item in tried:
        read(item)
    return (clock() - began) / len(tried)
