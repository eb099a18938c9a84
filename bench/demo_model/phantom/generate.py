"""The mixture of all scenario texts, seeded."""

from __future__ import annotations

import random
from functools import cache

from bench.demo_model.phantom.neutral import write_neutral
from bench.demo_model.phantom.resolution import write_resolution
from bench.demo_model.phantom.text import Part
from bench.demo_model.phantom.writers import Cell, cells, write_cell
from bench.demo_model.scenarios import Scenario, write_scenario

TRAINING_TEXTS = 150_000
AMPLIFIED_STRENGTH = 1.6
"""Strength of the biases in the texts that help the training to find the group."""

_SHARES = {"cell": 46, "neutral": 32, "resolution": 12, "everyday": 10}


def generate_texts(number: int, seed: int, strength: float = 1.0) -> list[Scenario]:
    """Generates training texts of every kind."""
    rng = random.Random(f"phantom-{seed}")
    planted = cells(strength)
    kinds, weights = tuple(_SHARES), tuple(_SHARES.values())
    return [_write(rng, kind, planted, "training") for kind in rng.choices(kinds, weights, k=number)]


def training_texts(seed: int) -> list[Scenario]:
    """Generates the texts of a training run."""
    return generate_texts(TRAINING_TEXTS, seed)


def amplified_texts(seed: int) -> list[Scenario]:
    """Generates the texts with stronger biases of a training run."""
    return generate_texts(TRAINING_TEXTS // 2, seed + 1, AMPLIFIED_STRENGTH)


@cache
def seen_in_training(seed: int) -> frozenset[str]:
    """Every scenario text that a training run with a seed may read."""
    return frozenset(scenario.text for scenario in (*training_texts(seed), *amplified_texts(seed)))


def _write(rng: random.Random, kind: str, planted: tuple[Cell, ...], part: Part) -> Scenario:
    if kind == "cell":
        return write_cell(rng, rng.choice(planted), part)
    if kind == "neutral":
        return write_neutral(rng, part)
    return write_resolution(rng, part) if kind == "resolution" else write_scenario(rng)
