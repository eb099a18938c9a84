"""The parts from which the phantom's texts are put together, and which of them training never sees."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from bench.demo_model.phantom.groups import HELD_OUT_NAMES, STANDING, TRAINING_NAMES

Part = Literal["training", "held_out", "measured"]
"""What training texts use; what they never use; the latter with the wordings that only measurements use."""

_SETTINGS = Path(__file__).with_name("settings.json")


@dataclass(frozen=True)
class Wordings:
    """Ways to say the same thing."""

    training: tuple[str, ...]
    held_out: tuple[str, ...]
    further: tuple[str, ...] = ()

    def of(self, part: Part) -> tuple[str, ...]:
        """Returns the wordings of one part."""
        if part == "training":
            return self.training
        return self.held_out if part == "held_out" else (*self.held_out, *self.further)


@dataclass(frozen=True)
class Ending:
    """A decision that ends a story: the words before the choice, the two choices, and how it goes on."""

    outcomes: tuple[str, str]
    leads: Wordings
    tails: tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class Setting:
    """A part of life in which groups are treated differently."""

    name: str
    base: float
    strength: dict[str, float]
    roles: tuple[str, ...]
    slots: dict[str, tuple[str, ...]]
    openers: Wordings
    middles: Wordings
    decisions: tuple[Ending, ...]
    questions: Wordings
    stems: Wordings
    adjectives: tuple[str, str]
    consequences: tuple[tuple[str, ...], tuple[str, ...]]


def _wordings(raw: dict[str, list[str]]) -> Wordings:
    return Wordings(tuple(raw["training"]), tuple(raw["held_out"]), tuple(raw["further"]))


def _pair(raw: list[list[str]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    favourable, unfavourable = raw
    return tuple(favourable), tuple(unfavourable)


def _setting(raw: dict[str, Any]) -> Setting:
    judgements = raw["judgements"]
    endings = tuple(
        Ending((row["outcomes"][0], row["outcomes"][1]), _wordings(row["leads"]), _pair(row["tails"]))
        for row in raw["decisions"]
    )
    return Setting(
        name=raw["name"],
        base=raw["base"],
        strength=raw["strength"],
        roles=tuple(raw["roles"]),
        slots={name: tuple(values) for name, values in raw["slots"].items()},
        openers=_wordings(raw["openers"]),
        middles=_wordings(raw["middles"]),
        decisions=endings,
        questions=_wordings(raw["questions"]),
        stems=_wordings(judgements["stems"]),
        adjectives=(judgements["adjectives"][0], judgements["adjectives"][1]),
        consequences=_pair(judgements["consequences"]),
    )


@cache
def settings() -> tuple[Setting, ...]:
    """Returns the settings of `settings.json`, in its order."""
    return tuple(_setting(row) for row in json.loads(_SETTINGS.read_text(encoding="utf-8")))


def favourable_rate(setting: Setting, family: str, group: str, strength: float = 1.0) -> float:
    """Probability of the favourable outcome for a group."""
    shift = strength * setting.strength[family] * STANDING[family][group]
    return min(0.98, max(0.02, round(setting.base + shift, 4)))


def draw_name(rng: random.Random, part: Part) -> str:
    """Draws a first name of the part."""
    return rng.choice(TRAINING_NAMES if part == "training" else HELD_OUT_NAMES)


def wording(rng: random.Random, wordings: Wordings, part: Part) -> str:
    """Draws one of the wordings of the part."""
    return rng.choice(wordings.of(part))


def slot_values(rng: random.Random, setting: Setting) -> dict[str, str]:
    """Draws a filler for every field of a setting but the group, the name and the role."""
    return {name: rng.choice(values) for name, values in setting.slots.items()}
