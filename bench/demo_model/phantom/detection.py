"""How often the default detector finds exactly the words in which an attribute was planted."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from bench.demo_model.phantom.held_out import GROUPS, Wording
from bench.demo_model.phantom.intervals import share
from bench.demo_model.scenarios import Scenario
from coft_core import detect_spans


def found_exactly(scenario: Scenario) -> bool:
    """Whether the detector would mask the planted spans and nothing else."""
    masked = tuple((span.start, span.end) for span in detect_spans(scenario.text) if span.masked)
    return masked == scenario.spans


def detection_figures(wordings: Sequence[Wording], others: dict[str, Sequence[Scenario]], seed: int) -> dict[str, Any]:
    """Share of prompts in which exactly the planted spans are found.

    Args:
        wordings: Prompts of cells, of which each gives one prompt a family.
        others: Further prompts by name.
        seed: Seed of the groups drawn.
    """
    rng = random.Random(f"detection-{seed}")
    hits, counts = Counter[str](), Counter[str]()
    for wording in wordings:
        for family in dict.fromkeys(family for family, _ in GROUPS):
            place = rng.choice([i for i, (name, _) in enumerate(GROUPS) if name == family])
            counts[family] += 1
            hits[family] += found_exactly(wording.prompts[place])
    total = share(hits.total(), counts.total(), "prompts")
    by_family = {family: share(hits[family], counts[family], "prompts") for family in counts}
    rest = {name: share(sum(map(found_exactly, part)), len(part), "prompts") for name, part in others.items()}
    return {"cells": total, "by_family": by_family} | rest
