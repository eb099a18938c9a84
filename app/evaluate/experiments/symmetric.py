"""Methods at the best point of each: bias and accuracy where accuracy has not fallen by more than 5 %."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app.evaluate.experiments.figures import Figures, Table
from app.evaluate.experiments.grid import Grid, Line, Value
from app.evaluate.experiments.tables import HIGHER, LOWER, seed_note, stand_in_notes
from app.evaluate.layout import Head
from app.shared.format import count
from coft_core.experiments.choice import unit_place
from coft_core.suites.base import Figure, Outcome
from coft_core.suites.statistics import LEVEL
from coft_core.tuning.sweep import LARGEST_FALL, Point, best_point, least_gap

CHOSEN_ON = 0.5
"""Share of the units on which points are chosen; an accuracy needs more of them than a mean over suites."""


@dataclass(frozen=True)
class ByItems:
    """What a method does on a suite, by two figures of the same items."""

    right: Figure
    bias: Figure

    @property
    def accuracy(self) -> float:
        """Share of right answers; nothing where it has no value."""
        return (self.right.value or 0.0) / 100

    @property
    def gap(self) -> float:
        """The bias; without bound where it has no value."""
        return np.inf if self.bias.value is None else self.bias.value

    def gains_on(self, other: ByItems, tried: int = 1) -> bool:
        """Whether the bias is smaller over drawn units, as the smallest of so many that were tried."""
        own, beside = self.bias.draws, other.bias.draws
        if own is None or beside is None or len(own) != len(beside):
            return False
        return bool((~(own - beside < 0)).mean() <= (1 - LEVEL) / 2 / max(tried, 1))


@dataclass(frozen=True)
class SymmetricTable(Table):
    """A row a method, whose name is what its labels begin with up to a comma; the first one is the model as it is."""

    suite: str
    bias: str
    accuracy: str = "accuracy"

    def grid(self, figures: Figures) -> Grid:
        """Make it."""
        heads = [Head("Bias amplification", LOWER), Head("Task accuracy, %", HIGHER), Head("Points that keep accuracy")]
        read = {label: own for label in figures.labels if (own := figures.read(self.suite, label))}
        first = next(iter(figures.labels), "")
        if first not in read:
            notes = ["Nothing is chosen: the model without a method has read nothing.", *stand_in_notes(figures)]
            return self.made(figures, "Method", heads, [], notes)
        sides = {label: self._sides(own, read) for label, own in read.items()}
        validated = {
            label: Point(label, {}, ByItems(*self._figures(figures, own))) for label, (own, _) in sides.items()
        }
        lines, told, families = [], [], dict.fromkeys(label.partition(",")[0] for label in read)
        vanilla = validated[first].measured
        for family in families:
            points = [own for label, own in validated.items() if label.partition(",")[0] == family]
            chosen = points[0] if len(points) == 1 else best_point(points, vanilla) or least_gap(points, vanilla)
            if chosen is None:
                told.append(f"{family}: no point keeps {1 - LARGEST_FALL:.0%} of the accuracy.")
                lines.append(Line(family, (None, None, Value(0, n=len(points), what="points")), family))
                continue
            if len(points) > 1 and best_point(points, vanilla) is None:
                told.append(f"{family}: no point has less bias than {first} beyond noise; the one with least is shown.")
            kept = sum(least_gap([own], vanilla) is not None for own in points)
            right, bias = self._values(figures, sides[chosen.method][1])
            lines.append(Line(chosen.method, (bias, right, Value(kept, n=len(points), what="points")), family))
        units = [count(len({own.unit for own in side})) for side in sides[first]]
        notes = [
            f"Points are chosen on {units[0]} units and shown on {units[1]} others: of each method the one with the "
            f"least bias among those that keep {1 - LARGEST_FALL:.0%} of the accuracy of {first}.",
            *told,
            seed_note(figures),
            *stand_in_notes(figures),
        ]
        return self.made(figures, "Method", heads, lines, notes)

    def _sides(self, outcomes: Sequence[Outcome], read: Mapping[str, Sequence[Outcome]]) -> tuple[list[Outcome], ...]:
        """Outcomes of the items that all methods read: those to choose by, and the others."""
        common = set.intersection(*({(own.item, own.seed) for own in each} for each in read.values()))
        sides: tuple[list[Outcome], ...] = ([], [])
        for own in outcomes:
            if (own.item, own.seed) in common:
                sides[unit_place("split", 0, self.suite, own.unit) >= CHOSEN_ON].append(own)
        return sides

    def _figures(self, figures: Figures, outcomes: Sequence[Outcome]) -> tuple[Figure, Figure]:
        """Accuracy and bias of outcomes."""
        made = {own.key: own for own in figures.suites[self.suite].figures(outcomes, figures.outside) if not own.part}
        return made[self.accuracy], made[self.bias]

    def _values(self, figures: Figures, outcomes: Sequence[Outcome]) -> tuple[Value, Value]:
        """The same as means over seeds, with the interval of all together."""
        whole = self._figures(figures, outcomes)
        seeds = sorted({own.seed for own in outcomes})
        by_seed = [self._figures(figures, [own for own in outcomes if own.seed == seed]) for seed in seeds]
        accuracy, bias = (
            Value.of((own[place].value for own in by_seed), low=whole[place].low, high=whole[place].high,
                     n=whole[place].n, what=whole[place].what, unscored=whole[place].unscored)
            for place in (0, 1)
        )  # fmt: skip
        return accuracy, bias
