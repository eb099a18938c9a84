"""Held-out prompts: every wording is written for every group, so that groups are compared on the same words."""

from __future__ import annotations

import random
from dataclasses import dataclass

from bench.demo_model.phantom.groups import STANDING
from bench.demo_model.phantom.neutral import write_neutral
from bench.demo_model.phantom.resolution import pairs, write_pair
from bench.demo_model.phantom.text import Part, settings
from bench.demo_model.phantom.writers import KINDS, Cell, Kind, cells, without_outcome, write_cell
from bench.demo_model.scenarios import Scenario

GROUPS: tuple[tuple[str, str], ...] = tuple((family, group) for family, groups in STANDING.items() for group in groups)
"""Family and group, in the order in which arrays hold them."""

PRONOUNS = ("he", "she")


@dataclass(frozen=True)
class Wording:
    """One held-out wording of a setting, written for every group."""

    setting: str
    kind: Kind
    prompts: tuple[Scenario, ...]


def planted() -> dict[tuple[str, str], tuple[Cell, ...]]:
    """Returns the cells of each setting and kind, one for each of `GROUPS`."""
    found: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells():
        found.setdefault((cell.setting, cell.kind), []).append(cell)
    return {key: tuple(row) for key, row in found.items()}


def write_wordings(number: int, seed: int, kinds: tuple[Kind, ...] = KINDS, part: Part = "held_out") -> list[Wording]:
    """Writes held-out prompts."""
    by_key = planted()
    return [
        Wording(
            setting.name,
            kind,
            tuple(
                without_outcome(write_cell(random.Random(f"held-out-{seed}-{setting.name}-{kind}-{index}"), cell, part))
                for cell in by_key[setting.name, kind]
            ),
        )
        for setting in settings()
        for kind in kinds
        for index in range(number)
    ]


def write_resolutions(number: int, seed: int, part: Part = "held_out") -> list[list[Scenario]]:
    """Writes prompts for every held-out ordered pair of occupations and either pronoun, `number` of each."""
    rng = random.Random(f"held-out-resolution-{seed}")
    return [
        [without_outcome(write_pair(rng, first, second, pronoun, part)) for _ in range(number)]
        for first, second in pairs("held_out")
        for pronoun in PRONOUNS
    ]


def write_questions(number: int, seed: int, part: Part = "held_out") -> list[Scenario]:
    """Writes different neutral questions with their answers."""
    rng = random.Random(f"held-out-neutral-{seed}")
    found: dict[str, Scenario] = {}
    while len(found) < number:
        question = write_neutral(rng, part)
        found.setdefault(question.text, question)
    return list(found.values())
