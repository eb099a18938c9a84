"""Figures of an experiment: those of suites on the paper's scales, their averages, and what was certified."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

import numpy as np

from app.evaluate.experiments import AveragesEntry, ColumnEntry, Experiment
from app.evaluate.measured import Measured, measured_by_suite
from app.evaluate.runs import CalibrationNote, EvaluationMethod, SuiteOutcomes
from app.evaluate.tables import main_table
from coft_core.conformal.calibration import Calibration
from coft_core.experiments.averages import Part, average, shown_as
from coft_core.experiments.certificates import certified_share, empty_prompts, empty_steps, toxic_fallbacks
from coft_core.suites.base import Better, Figure, Outcome, Outside, Suite
from coft_core.suites.statistics import LEVEL, difference


@dataclass(frozen=True)
class Kept:
    """What is kept of an experiment, of which its tables are made without the model."""

    experiment: Experiment
    methods: tuple[EvaluationMethod, ...]
    suites: Mapping[str, Suite]
    outcomes: tuple[SuiteOutcomes, ...]
    calibrations: tuple[CalibrationNote, ...] = ()
    thresholds: Callable[[str, str, int], Calibration | None] = lambda suite, method, seed: None
    prompts: Callable[[str, int], tuple[list[str], list[str]] | None] = lambda suite, seed: None
    left_out: tuple[str, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of the methods."""
        return tuple(method.label for method in self.methods)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds with outcomes, or with thresholds."""
        found = {seed for own in self.outcomes for seed in own.seeds} | {note.seed for note in self.calibrations}
        return tuple(sorted(found))


@dataclass(frozen=True, slots=True)
class Value:
    """A number of a table."""

    value: float | None
    deviation: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    what: str = ""
    unscored: int = 0

    @classmethod
    def of(cls, values: Iterable[float | None], **rest: Any) -> Value:
        """The mean and deviation of seeds' values."""
        present = [value for value in values if value is not None]
        spread = stdev(present) if len(present) > 1 and np.isfinite(present).all() else None
        return cls(fmean(present) if present else None, spread, **rest)


@dataclass(frozen=True)
class Series:
    """A figure of one method: of all that it read, by seed, and of the items that every method read."""

    pooled: Figure
    by_seed: Mapping[int, Figure]
    shared: Figure

    @property
    def value(self) -> Value:
        """Its number."""
        figure = self.pooled
        return Value.of(
            (own.value for own in self.by_seed.values()),
            low=figure.low,
            high=figure.high,
            n=figure.n,
            what=figure.what,
            unscored=figure.unscored,
        )

    def each(self, change: Callable[[Figure], Figure]) -> Series:
        """All of them changed alike."""
        return Series(change(self.pooled), {s: change(own) for s, own in self.by_seed.items()}, change(self.shared))

    def less(self, other: Series) -> Value:
        """How much larger it is than another one, with the interval over the same drawn units."""
        found = difference(self.shared, other.shared)
        return Value.of(
            (one - two for one, two in self._pairs(other)),
            low=found[1] if found else None,
            high=found[2] if found else None,
            n=self.pooled.n,
            what=self.pooled.what,
            unscored=self.pooled.unscored,
        )

    def percent_of(self, other: Series) -> Value:
        """It in percent of another one, with the interval over the same drawn units."""
        first, second = self.shared.draws, other.shared.draws
        low = high = None
        if first is not None and second is not None and len(first) == len(second):
            with np.errstate(divide="ignore", invalid="ignore"):
                ratios = 100 * first / second
            if np.isfinite(ratios).all():
                low, high = (float(end) for end in np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]))
        return Value.of(
            (100 * one / two if two else None for one, two in self._pairs(other)),
            low=low,
            high=high,
            n=self.pooled.n,
            what=self.pooled.what,
            unscored=self.pooled.unscored,
        )

    def _pairs(self, other: Series) -> list[tuple[float, float]]:
        """Values of the same seeds."""
        found = []
        for seed, figure in self.by_seed.items():
            beside = other.by_seed.get(seed)
            if figure.value is not None and beside is not None and beside.value is not None:
                found.append((figure.value, beside.value))
        return found


class Figures:
    """The figures of an experiment's methods."""

    def __init__(self, kept: Kept, outside: Outside) -> None:
        """Make the figures of all suites."""
        self.kept, self._outside = kept, outside
        self._suites = list(dict.fromkeys(kept.suites.values()))
        self._measured = measured_by_suite(self._suites, kept.methods, kept.outcomes, outside)

    def measured(self, suite: str, label: str) -> Measured | None:
        """What a method made of a suite; None where it has no outcome."""
        read = self.kept.suites.get(suite)
        return None if read is None else self._measured[read.key].get(label)

    def read(self, suite: str, label: str) -> list[Outcome]:
        """Outcomes that were read, in an order that does not depend on theirs."""
        found = self.measured(suite, label)
        return [] if found is None else [outcome for outcome in found.outcomes if not outcome.unread]

    def column(self, column: ColumnEntry, label: str, suite: str = "") -> Value | None:
        """A number of a table; None where there is none."""
        own = self._series(column, label, suite)
        if not column.against or own is None:
            return None if own is None else own.value
        other = self._series(column, column.against, suite)
        if other is None:
            return None
        return own.less(other) if column.change == "difference" else own.percent_of(other)

    def better(self, column: ColumnEntry, label: str, suite: str = "") -> Better | None:
        """Which values of a column are good, by a method's figure; None where it has none, or it is a comparison."""
        own = None if column.against else self._series(column, label, suite)
        return None if own is None else own.pooled.better

    def ranks(self, kind: str) -> dict[str, Value]:
        """Average ranks over the main figures of suites of a kind, by method; none where methods cannot be ranked."""
        table = main_table(self._suites, self.kept.methods, self.kept.outcomes, self._outside)
        found = ((row.method, average) for row in table.rows for average in row.averages if average.kind == kind)
        return {
            label: Value(average.value, average.deviation, n=average.columns, what="figures")
            for label, average in found
        }

    def figure(self, part: Part, label: str, group: str = "") -> Series | None:
        """A figure of a suite; None where the method has none of that key."""
        found, suite = self.measured(part.suite, label), self.kept.suites.get(part.suite)
        if found is None or suite is None:
            return None
        key = (part.figure or suite.main, group)
        if key not in found.own or key not in found.shared:
            return None
        by_seed = {seed: figures[key] for seed, figures in found.own_by_seed.items() if key in figures}
        return Series(found.own[key], by_seed, found.shared[key]).each(lambda figure: shown_as(figure, part.shown))

    def average(self, kind: str, label: str) -> Series | None:
        """The average bias or utility over those of its suites that took part; None where a figure is missing."""
        parts = self.parts(kind)
        found = {part.suite: own for part in parts if (own := self.figure(part, label)) is not None}
        if not parts or len(found) < len(parts):
            return None
        title = {"bias": "BiasAvg", "utility": "UtilityAvg"}[kind]

        def mean(figures: Mapping[str, Figure]) -> Figure:
            return average(f"{kind}_average", title, figures)

        seeds = set.intersection(*(set(own.by_seed) for own in found.values()))
        return Series(
            mean({suite: own.pooled for suite, own in found.items()}),
            {seed: mean({suite: own.by_seed[seed] for suite, own in found.items()}) for seed in sorted(seeds)},
            mean({suite: own.shared for suite, own in found.items()}),
        )

    def parts(self, kind: str) -> list[Part]:
        """The parts of an average whose suites took part."""
        return present_parts(self.kept.experiment.averages, kind, self.kept.suites)

    def certificates(self, what: str, label: str, suites: Iterable[str]) -> Series | None:
        """How often or how much was certified, over several suites; None for a method without thresholds."""
        method = next(own for own in self.kept.methods if own.label == label)
        outcomes = [replace(own, unit=f"{key} {own.unit}") for key in suites for own in self.read(key, label)]
        if not method.calibrated or not outcomes:
            return None
        make = _CERTIFICATES[what]
        seeds = sorted({own.seed for own in outcomes})
        by_seed = {seed: make([own for own in outcomes if own.seed == seed]) for seed in seeds}
        pooled = make(outcomes)
        return Series(pooled, by_seed, pooled)

    def _series(self, column: ColumnEntry, label: str, suite: str) -> Series | None:
        if label not in self.kept.labels:
            return None
        if column.average:
            return self.average(column.average, label)
        if column.read:
            return self.certificates(column.read, label, [suite] if suite else self.kept.suites)
        return self.figure(Part(column.suite or suite, column.figure, column.shown), label, column.part)


def present_parts(averages: AveragesEntry, kind: str, suites: Mapping[str, Suite]) -> list[Part]:
    """The parts of an average whose suites took part."""
    return [entry.part for entry in getattr(averages, kind) if entry.suite in suites]


_CERTIFICATES: Mapping[str, Callable[[Sequence[Outcome]], Figure]] = {
    "empty prompts": empty_prompts,
    "empty steps": empty_steps,
    "toxic fallbacks": toxic_fallbacks,
    "certified share": certified_share,
}
