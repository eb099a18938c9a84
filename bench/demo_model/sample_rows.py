"""Rows of the sample prompt sets: texts of the phantom, cut into a prompt and its reference."""

from __future__ import annotations

import random
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from bench.demo_model.phantom.generate import seen_in_training
from bench.demo_model.phantom.groups import STANDING
from bench.demo_model.phantom.neutral import write_neutral
from bench.demo_model.phantom.resolution import write_resolution
from bench.demo_model.phantom.text import settings
from bench.demo_model.phantom.writers import KINDS, Cell, Kind, cells, write_cell
from bench.demo_model.scenarios import Scenario
from bench.demo_model.stories import write_opening

_EARLY = 0.35
_SENTENCE_END = re.compile(r"[.?](?= )")


@dataclass(frozen=True)
class Row:
    """A row of a prompt set; what its file has no column for stays empty."""

    prompt: str
    reference: str
    spans: tuple[tuple[int, int, str], ...] = ()
    group: str = ""
    context: int = 0
    weight: float = 1.0


Writer = Callable[[random.Random], Sequence[Row]]
"""Writes the rows of one context."""


class Drawer:
    """Draws contexts whose prompts are new: not drawn before, and no beginning of a text of the training run."""

    def __init__(self, seed: int, training_seed: int) -> None:
        """Reads the training texts of a seed."""
        self._seed = seed
        self._seen = sorted(seen_in_training(training_seed))
        self._taken: set[str] = set()

    def generator(self, name: str) -> random.Random:
        """Returns the source of draws of a name."""
        return random.Random(f"samples-{self._seed}-{name}")

    def draw(self, name: str, number: int, write: Writer) -> list[Sequence[Row]]:
        """Draws a number of contexts; a prompt is left out for itself alone, never for its reference."""
        rng = self.generator(name)
        found: list[Sequence[Row]] = []
        while len(found) < number:
            rows = write(rng)
            if not any(row.prompt in self._taken or self._begins_training_text(row.prompt) for row in rows):
                self._taken.update(row.prompt for row in rows)
                found.append(rows)
        return found

    def _begins_training_text(self, prompt: str) -> bool:
        place = bisect_left(self._seen, prompt)
        return place < len(self._seen) and self._seen[place].startswith(prompt)


@dataclass(frozen=True)
class OfCells:
    """Writes a text of one of some planted cells."""

    cells: tuple[Cell, ...]
    group: str = ""

    def __call__(self, rng: random.Random) -> tuple[Row]:
        """Writes one row."""
        cell = rng.choice(self.cells)
        return (_row(rng, write_cell(rng, cell, "training"), cell.family, self.group),)


@dataclass(frozen=True)
class Pair:
    """Writes one story for two groups of a family, with the same draws, so that nothing but the group differs."""

    family: str
    weights: dict[str, float]

    def __call__(self, rng: random.Random) -> tuple[Row, ...]:
        """Writes two rows."""
        setting, kind = rng.choice(settings()).name, rng.choice(KINDS)
        groups, seed = rng.sample(list(STANDING[self.family]), 2), rng.random()
        return tuple(
            self._told(random.Random(seed), cells_of(setting=setting, family=self.family, group=group, kind=kind))
            for group in groups
        )

    def _told(self, rng: random.Random, chosen: tuple[Cell, ...]) -> Row:
        (cell,) = chosen
        row = _row(rng, write_cell(rng, cell, "training"), self.family, self.family)
        return replace(row, weight=self.weights[cell.setting])


@dataclass(frozen=True)
class Lineup:
    """Writes one text for every group of a family, with the same draws, so that nothing but the group differs."""

    setting: str
    family: str
    kind: Kind

    def __call__(self, rng: random.Random) -> tuple[Row, ...]:
        """Writes a row for each group, in random order."""
        groups, seed = rng.sample(list(STANDING[self.family]), len(STANDING[self.family])), rng.random()
        return tuple(self._told(random.Random(seed), group) for group in groups)

    def _told(self, rng: random.Random, group: str) -> Row:
        (cell,) = cells_of(setting=self.setting, family=self.family, group=group, kind=self.kind)
        return _row(rng, write_cell(rng, cell, "training"), self.family, group)


def question(rng: random.Random) -> tuple[Row]:
    """Writes a question in whose answer the group has no part."""
    return (_row(rng, write_neutral(rng, "training")),)


def pronoun(rng: random.Random) -> tuple[Row]:
    """Writes a question about an ambiguous pronoun."""
    return (_row(rng, write_resolution(rng, "training")),)


def story(rng: random.Random) -> tuple[Row]:
    """Writes the opening of a story with a long continuation."""
    opening = write_opening(rng)
    return (Row(opening.prompt, opening.reference),)


def cells_of(**wanted: str) -> tuple[Cell, ...]:
    """Returns the planted cells whose fields have the wanted values."""
    return tuple(cell for cell in cells() if all(getattr(cell, name) == value for name, value in wanted.items()))


def flat(contexts: Iterable[Sequence[Row]]) -> list[Row]:
    """Returns the rows of all contexts in a list."""
    return [row for rows in contexts for row in rows]


def numbered(contexts: Iterable[Sequence[Row]]) -> Iterator[Row]:
    """Gives the rows the number of their context."""
    for number, rows in enumerate(contexts, start=1):
        yield from (replace(row, context=number) for row in rows)


def _row(rng: random.Random, scenario: Scenario, family: str = "", group: str = "") -> Row:
    """Cuts a text where its outcome begins; now and then earlier, behind the group, for a longer reference."""
    named = min((end for _, end in scenario.spans), default=scenario.cut)
    early = [match.end() for match in _SENTENCE_END.finditer(scenario.text, named, scenario.cut)]
    cut = rng.choice(early) if early and rng.random() < _EARLY else scenario.cut
    spans = tuple((start, end, family) for start, end in scenario.spans if end <= cut)
    return Row(scenario.text[:cut], scenario.text[cut:], spans, group)
