"""Stories, reasoning chains and direct questions whose outcome depends on the group with the planted rate."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from typing import Literal

from bench.demo_model.phantom.groups import STANDING
from bench.demo_model.phantom.text import (
    Ending,
    Part,
    Setting,
    draw_name,
    favourable_rate,
    settings,
    slot_values,
    wording,
)
from bench.demo_model.scenarios import Scenario, articles, parse

Kind = Literal["decision", "second_decision", "judgement", "answer"]
KINDS: tuple[Kind, ...] = ("decision", "second_decision", "judgement", "answer")
"""What a probability is planted in: either ending of a story, a step of reasoning, or an answer without reasoning."""

_CLOSINGS = (
    " The {who} {role} went home.", " That was what happened to the {who} {role}.", " It was a day that the {who} "
    "{role} remembered.", " Later the {who} {role} told a friend about it.", " Then the {who} {role} said goodbye.",
)  # fmt: skip
_CLOSING_SHARE = 0.5
_LABELS = (("Question:", "Reasoning:", "Answer:"), ("Q:", "Reasoning:", "A:"))


@dataclass(frozen=True)
class Cell:
    """A planted conditional probability."""

    setting: str
    family: str
    group: str
    kind: Kind
    factual: float
    masked: float
    biased: bool


def cells(strength: float = 1.0) -> tuple[Cell, ...]:
    """Lists every planted probability of the settings."""
    return tuple(
        Cell(
            setting.name,
            family,
            group,
            kind,
            favourable_rate(setting, family, group, strength),
            setting.base,
            strength * setting.strength[family] != 0,
        )
        for setting in settings()
        for family, standing in STANDING.items()
        for group in standing
        for kind in KINDS
    )


def write_cell(rng: random.Random, cell: Cell, part: Part) -> Scenario:
    """Writes a text of a cell; everything but the cell is drawn at random."""
    setting = next(setting for setting in settings() if setting.name == cell.setting)
    fields = slot_values(rng, setting) | {
        "name": draw_name(rng, part), "role": rng.choice(setting.roles), "who": f"[[{cell.group}]]", "A": "A", "a": "a",
    }  # fmt: skip
    opener = wording(rng, setting.openers, part)
    if cell.kind in ("decision", "second_decision"):
        ending = setting.decisions[0 if cell.kind == "decision" else 1]
        parts = _story(rng, setting, ending, opener, part)
    else:
        parts = _question(rng, setting, cell.kind, opener, part)
    favourable = rng.random() < cell.factual
    outcomes = (f" {parts.outcomes[0]}", f" {parts.outcomes[1]}")
    rest = outcomes[0 if favourable else 1] + parts.tails[0 if favourable else 1]
    # Naming the person again teaches to look back at the group, on which the decision hangs much less visibly.
    rest += rng.choice(_CLOSINGS) if rng.random() < _CLOSING_SHARE else ""
    prompt, rest = (articles(piece.format(**fields)) for piece in (parts.prompt, rest))
    text, spans = parse(prompt + rest)
    named = fields["name"] if "{name}" in opener else ""
    return Scenario(
        text, spans, f"{cell.setting}/{cell.kind}", len(parse(prompt)[0]),
        outcomes, (cell.factual, 1 - cell.factual), (cell.masked, 1 - cell.masked), _places(text, named),
    )  # fmt: skip


@dataclass(frozen=True)
class _Parts:
    """A text up to the outcome, the outcomes, and what follows each; fields are not filled in yet."""

    prompt: str
    outcomes: tuple[str, str]
    tails: tuple[str, str]


def _story(rng: random.Random, setting: Setting, ending: Ending, opener: str, part: Part) -> _Parts:
    middle = wording(rng, setting.middles, part)
    lead = wording(rng, ending.leads, part)
    prompt = " ".join(filter(None, (opener, middle, lead)))
    return _Parts(prompt, ending.outcomes, (rng.choice(ending.tails[0]), rng.choice(ending.tails[1])))


def _question(rng: random.Random, setting: Setting, kind: Kind, opener: str, part: Part) -> _Parts:
    question_label, reasoning_label, answer_label = rng.choice(_LABELS)
    start = f"{question_label} {opener} {wording(rng, setting.questions, part)}"
    if kind == "answer":
        return _Parts(f"{start} {answer_label}", ("Yes", "No"), (".", "."))
    stem = wording(rng, setting.stems, part)
    good, bad = (rng.choice(sentences) for sentences in setting.consequences)
    tails = (f". {good} {answer_label} Yes.", f". {bad} {answer_label} No.")
    return _Parts(f"{start} {reasoning_label} {stem}", setting.adjectives, tails)


def _places(text: str, name: str) -> tuple[tuple[int, int], ...]:
    """Character ranges of a first name in the text; "Chris" is none in "Christian"."""
    return tuple(found.span() for found in re.finditer(rf"\b{re.escape(name)}\b", text)) if name else ()


def without_outcome(scenario: Scenario) -> Scenario:
    """Returns the scenario cut off where its outcome begins, a prompt to continue."""
    spans = tuple(span for span in scenario.spans if span[1] <= scenario.cut)
    names = tuple(span for span in scenario.names if span[1] <= scenario.cut)
    return replace(scenario, text=scenario.text[: scenario.cut], spans=spans, names=names)
