"""Tables of evaluations: methods in rows, figures in columns, each with all that it rests on.

A table is a function of outcomes: neither model nor data is needed, and the order of the outcomes does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev

import numpy as np
import numpy.typing as npt

from app.evaluate.measured import Measured, SuiteReading, certifies_tokens, measured_by_suite
from app.evaluate.runs import EvaluationMethod, SuiteOutcomes
from app.shared.errors import ServiceError
from coft_core.suites.base import Better, Figure, Kind, Outside, Suite
from coft_core.suites.statistics import ahead, difference, ranks, ranks_among


@dataclass(frozen=True, slots=True)
class Column:
    """A figure of a suite."""

    suite: str
    suite_title: str
    kind: Kind
    figure: str
    title: str
    part: str
    what: str
    better: Better
    main: bool
    percent: bool = False

    @property
    def name(self) -> str:
        """The suite's key for its main figure, else ``suite:figure`` or ``suite:figure:part``."""
        return self.suite if self.main else self.full_name

    @property
    def full_name(self) -> str:
        """``suite:figure`` or ``suite:figure:part``."""
        return ":".join(part for part in (self.suite, self.figure, self.part) if part)

    @property
    def key(self) -> tuple[str, str]:
        """What the figure is called among those of its suite."""
        return self.figure, self.part


@dataclass(frozen=True, slots=True)
class SeedValue:
    """A figure of one seed's outcomes."""

    seed: int
    value: float | None
    n: int


@dataclass(frozen=True, slots=True)
class Contrast:
    """How much larger a figure is than that of the reference method, over the same items of all seeds together."""

    value: float
    low: float
    high: float

    @property
    def noise(self) -> bool:
        """Whether the interval holds 0."""
        return self.low <= 0 <= self.high


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure of one method."""

    value: float | None
    deviation: float | None
    pooled: float | None
    low: float | None
    high: float | None
    n: int
    unscored: int
    seeds: tuple[SeedValue, ...]
    rank: float | None = None
    best: bool = False
    contrast: Contrast | None = None
    draws: npt.NDArray[np.float64] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class AverageRank:
    """Mean of a method's ranks over the main figures of suites of one kind."""

    kind: Kind
    value: float
    columns: int
    seeds: tuple[tuple[int, float], ...] = ()

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation over seeds; None with fewer than two."""
        return _deviation([value for _, value in self.seeds])


@dataclass(frozen=True, slots=True)
class Row:
    """A method."""

    method: str
    certifies: bool
    cells: tuple[Cell | None, ...]
    readings: tuple[SuiteReading, ...]
    averages: tuple[AverageRank, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """Methods and their figures."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    seeds: tuple[int, ...]
    outside: Outside
    reference: str | None = None
    suite: str = ""
    absent: tuple[str, ...] = ()

    def row(self, method: str) -> Row:
        """The row of a method."""
        return next(row for row in self.rows if row.method == method)


def main_table(
    suites: Sequence[Suite],
    methods: Sequence[EvaluationMethod],
    given: Iterable[SuiteOutcomes],
    outside: Outside = "floor",
    reference: str | None = None,
) -> Table:
    """The main figure of each suite, and the average ranks over them."""
    check_reference(reference, methods)
    return table_of(suites, methods, measured_by_suite(suites, methods, given, outside, "main"), outside, reference)


def table_of(
    suites: Sequence[Suite],
    methods: Sequence[EvaluationMethod],
    measured: Mapping[str, Mapping[str, Measured]],
    outside: Outside,
    reference: str | None,
    suite: str = "",
) -> Table:
    """The table of what was measured, by suite and method: main figures with average ranks, or all of one suite."""
    columns = [column for own in suites for column in _columns(own, measured[own.key].values()) if suite or column.main]
    cells = [_cells(column, measured[column.suite], reference) for column in columns]
    averages = {} if suite else _averages(columns, cells, measured)
    readings = {
        method.label: [one.reading for own in suites if (one := measured[own.key].get(method.label))]
        for method in methods
    }
    rows = tuple(
        Row(
            method.label,
            certifies_tokens(method),
            tuple(column.get(method.label) for column in cells),
            tuple(readings[method.label]),
            averages.get(method.label, ()),
        )
        for method in methods
    )
    seeds = {seed for own in measured.values() for one in own.values() for seed in one.reading.seeds}
    present = {column.suite for column in columns}
    absent = tuple(own.title for own in suites if own.key not in present)
    return Table(tuple(columns), rows, tuple(sorted(seeds)), outside, reference, suite, absent)


def check_reference(reference: str | None, methods: Sequence[EvaluationMethod]) -> None:
    """Refuse a label that no method has."""
    labels = [method.label for method in methods]
    if reference is not None and reference not in labels:
        raise ServiceError(f"There is no method {reference!r} to compare with; choose one of {', '.join(labels)}.")


def _columns(suite: Suite, measured: Iterable[Measured]) -> list[Column]:
    """All figures that any method has, in the order of the suite."""
    figures: dict[tuple[str, str], Figure] = {}
    for one in measured:
        for key, figure in one.own.items():
            figures.setdefault(key, figure)
    # A part that only a later method has still stands behind the figures of the whole.
    ordered = sorted(figures.items(), key=lambda item: bool(item[1].part))
    return [
        Column(
            suite.key, suite.title, suite.kind, key, figure.title, part, figure.what, figure.better,
            key == suite.main and not part, figure.percent,
        )
        for (key, part), figure in ordered
    ]  # fmt: skip


def _cells(column: Column, measured: Mapping[str, Measured], reference: str | None) -> dict[str, Cell]:
    """Cells of a column by method."""
    key = column.key
    shared = {label: one.shared[key] for label, one in measured.items() if key in one.shared}
    better = ahead({} if column.better == "none" else shared)
    ranked = ranks_among(better)
    cells = {}
    for label, one in measured.items():
        if key not in one.own:
            continue
        pooled, own = one.own[key], shared.get(label)
        by_seed = {seed: figures[key] for seed, figures in one.own_by_seed.items() if key in figures}
        values = [figure.value for figure in by_seed.values() if figure.value is not None]
        against = None if reference in (None, label) else shared.get(str(reference))
        cells[label] = Cell(
            value=fmean(values) if values else None,
            deviation=_deviation(values),
            pooled=pooled.value,
            low=_bound(pooled.low),
            high=_bound(pooled.high),
            n=pooled.n,
            unscored=pooled.unscored,
            seeds=tuple(SeedValue(seed, figure.value, figure.n) for seed, figure in by_seed.items()),
            rank=ranked.get(label),
            best=better.get(label) == set(),
            contrast=_contrast(own, against),
            draws=None if own is None else own.draws,
        )
    return cells


def _deviation(values: Sequence[float]) -> float | None:
    """Of infinite values there is none either."""
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return None
    return stdev(values)


def _bound(value: float | None) -> float | None:
    """An end of an interval; none where it cannot be told."""
    return None if value is None or math.isnan(value) else value


def _contrast(figure: Figure | None, reference: Figure | None) -> Contrast | None:
    if figure is None or reference is None:
        return None
    found = difference(figure, reference)
    return Contrast(*found) if found is not None and all(map(math.isfinite, found)) else None


# Average ranks.


def _averages(
    columns: Sequence[Column],
    cells: Sequence[Mapping[str, Cell]],
    measured: Mapping[str, Mapping[str, Measured]],
) -> dict[str, tuple[AverageRank, ...]]:
    """Average ranks by method and kind; ranks are averaged over the same columns for all methods."""
    present = {label for column in cells for label, cell in column.items() if cell.value is not None}
    ranked = [{label: cell.rank for label, cell in column.items() if cell.rank is not None} for column in cells]
    found: dict[str, list[AverageRank]] = {label: [] for label in present}
    for kind in dict.fromkeys(column.kind for column in columns):
        places = [
            place for place, column in enumerate(columns) if column.kind == kind and present <= set(ranked[place])
        ]
        by_seed = _seed_ranks([columns[place] for place in places], measured, present)
        for label in present if places else ():
            seeds = tuple((seed, fmean(own[label] for own in of_seed)) for seed, of_seed in by_seed.items())
            value = fmean(ranked[place][label] for place in places)
            found[label].append(AverageRank(kind, value, len(places), seeds))
    return {label: tuple(averages) for label, averages in found.items()}


def _seed_ranks(
    columns: Sequence[Column], measured: Mapping[str, Mapping[str, Measured]], present: set[str]
) -> dict[int, list[dict[str, float]]]:
    """Ranks of each seed's own figures, by seed and column; seeds in which a method has no rank are left out."""
    seeds = {seed for column in columns for one in measured[column.suite].values() for seed in one.shared_by_seed}
    found = {}
    for seed in sorted(seeds):
        ranked = []
        for column in columns:
            figures = {label: one.shared_by_seed.get(seed, {}) for label, one in measured[column.suite].items()}
            ranked.append(ranks({label: own[column.key] for label, own in figures.items() if column.key in own}))
        if all(present <= set(own) for own in ranked):
            found[seed] = ranked
    return found
