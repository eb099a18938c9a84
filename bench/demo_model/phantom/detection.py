"""How often the default detector finds exactly the words in which an attribute was planted."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from bench.demo_model.phantom.held_out import GROUPS, Wording
from bench.demo_model.phantom.intervals import Figure, cluster_share
from bench.demo_model.scenarios import Scenario
from coft_core import detect_spans


def found_exactly(scenario: Scenario) -> bool:
    """Whether the detector would mask the planted spans and nothing else."""
    masked = tuple((span.start, span.end) for span in detect_spans(scenario.text) if span.masked)
    return masked == scenario.spans


def detection_figures(
    wordings: Sequence[Wording], others: dict[str, tuple[Sequence[Scenario], Sequence[str], str]], seed: int
) -> dict[str, Any]:
    """Share of prompts in which exactly the planted spans are found, clustered by setting and kind."""
    rng = random.Random(f"detection-{seed}")
    clusters = list(dict.fromkeys((wording.setting, wording.kind) for wording in wordings))
    hits, counts = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for wording in wordings:
        cluster = clusters.index((wording.setting, wording.kind))
        for family in dict.fromkeys(family for family, _ in GROUPS):
            place = rng.choice([i for i, (name, _) in enumerate(GROUPS) if name == family])
            counts[family, cluster] += 1
            hits[family, cluster] += found_exactly(wording.prompts[place])

    def found(families: Sequence[str]) -> Figure:
        right, of = (
            [sum(counter[family, place] for family in families) for place in range(len(clusters))]
            for counter in (hits, counts)
        )
        return cluster_share(right, of, f"settings and kinds of text ({sum(of):,} prompts)")

    names = tuple(dict.fromkeys(family for family, _ in counts))
    by_family = {family: found((family,)) for family in names}
    rest = {
        name: cluster_share(*_by_cluster([found_exactly(prompt) for prompt in part], name_of), unit)
        for name, (part, name_of, unit) in others.items()
    }
    return {"cells": found(names), "by_family": by_family} | rest


def _by_cluster(flags: Sequence[bool], names: Sequence[str]) -> tuple[list[int], list[int]]:
    """Hits and size of each cluster."""
    sizes = Counter(names)
    hits = Counter(name for name, flag in zip(names, flags, strict=True) if flag)
    return [hits[name] for name in sizes], list(sizes.values())
