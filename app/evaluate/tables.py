"""Tables of evaluations: methods in rows, figures in columns, each with all that it rests on.

A table is a function of outcomes: neither model nor data is needed, and the order of the outcomes does not matter.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Literal

import numpy as np
import numpy.typing as npt

from app.evaluate.runs import EvaluationMethod
from app.shared.policies import certifies
from coft_core.suites.base import Better, Figure, Kind, Outcome, Outside, Scored, Suite, Unread, Written
from coft_core.suites.statistics import Detail, ahead, difference, made_with, ranks, ranks_among

Figures = Mapping[tuple[str, str], Figure]
"""Figures of a suite by key and part."""

Extent = Literal["main", "table", "all"]
"""Which figures are made: ``main`` the main one, with draws by seed for ranks; ``table`` all, with only their values by
seed; ``all`` all, with their intervals by seed."""

_BY_SEED: Mapping[Extent, Detail] = {"main": "draws", "table": "value", "all": "interval"}


@dataclass(frozen=True, slots=True)
class SuiteReading:
    """How one method read the items of a suite, over all seeds."""

    suite: str
    title: str
    items: int
    unread: int
    reasons: tuple[tuple[str, int], ...]
    compared: int
    unmasked: float | None
    refused: float | None
    empty: float | None
    writes: bool
    seeds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """A method on a suite: figures of what it read, and of the items that every method read."""

    own: Figures
    own_by_seed: Mapping[int, Figures]
    shared: Figures
    shared_by_seed: Mapping[int, Figures]
    reading: SuiteReading


def measured(
    suite: Suite,
    methods: Sequence[EvaluationMethod],
    given: Mapping[str, Sequence[Outcome]],
    outside: Outside,
    extent: Extent = "all",
) -> dict[str, Measured]:
    """What was measured on one suite, by method; ``given`` are outcomes by method, where there are any."""
    certifying = {method.label: certifies_tokens(method) for method in methods}
    ordered = {label: in_order(outcomes) for label, outcomes in given.items() if outcomes}
    read = {label: [own for own in outcomes if not own.unread] for label, outcomes in ordered.items()}
    together = [set(map(_place, outcomes)) for outcomes in read.values() if outcomes]
    common = set.intersection(*together) if together else set()
    found = {}
    for label, outcomes in ordered.items():
        own, own_by_seed = _figures(suite, read[label], outside, extent)
        shared, shared_by_seed = own, own_by_seed
        if len(common) < len(read[label]):
            both = [outcome for outcome in read[label] if _place(outcome) in common]
            shared, shared_by_seed = _figures(suite, both, outside, extent)
        reading = _reading(suite, outcomes, read[label], len(common), certifying[label])
        found[label] = Measured(own, own_by_seed, shared, shared_by_seed, reading)
    return found


def certifies_tokens(method: EvaluationMethod) -> bool:
    """Whether a method certifies its tokens."""
    return method.calibrated and certifies(method.settings)


def in_order(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Outcomes in an order that does not depend on theirs.

    Units are drawn in the order in which they first appear, so that a fixed order makes figures of the same items the
    same, and those of different methods paired.
    """
    return sorted(outcomes, key=_place)


def _place(outcome: Outcome) -> tuple[str, str, int]:
    return outcome.unit, outcome.item, outcome.seed


def _figures(
    suite: Suite, outcomes: Sequence[Outcome], outside: Outside, extent: Extent
) -> tuple[Figures, Mapping[int, Figures]]:
    """Figures of outcomes, and of those of each seed."""

    def made(given: Sequence[Outcome]) -> Figures:
        if not given:
            return {}
        figures = [suite.main_figure(given, outside)] if extent == "main" else suite.figures(given, outside)
        return {(figure.key, figure.part): figure for figure in figures if figure is not None}

    whole, seeds = made(outcomes), sorted({outcome.seed for outcome in outcomes})
    with made_with(_BY_SEED[extent]):
        return whole, {seed: made([outcome for outcome in outcomes if outcome.seed == seed]) for seed in seeds}


def _reading(
    suite: Suite, outcomes: Sequence[Outcome], read: Sequence[Outcome], compared: int, certifying: bool
) -> SuiteReading:
    reasons = Counter(outcome.unread for outcome in outcomes if outcome.unread)
    answers = [answer for outcome in read for answer in outcome.answers]
    texts = [likelihood for answer in answers if isinstance(answer, Scored) for likelihood in answer.likelihoods]
    written = [answer for answer in answers if isinstance(answer, Written)]
    given = sum(text.tokens for text in texts)
    steps = given + sum(answer.tokens for answer in written)
    empty = sum(text.empty for text in texts) + sum(len(answer.empty) for answer in written)
    untouched = sum(not any(own.masked for own in outcome.answers if not isinstance(own, Unread)) for outcome in read)
    return SuiteReading(
        suite=suite.key,
        title=suite.title,
        items=len(outcomes),
        unread=len(outcomes) - len(read),
        reasons=tuple(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
        compared=compared,
        unmasked=untouched / len(read) if read else None,
        refused=sum(text.refused for text in texts) / given if certifying and given else None,
        empty=empty / steps if certifying and steps else None,
        writes=bool(written),
        seeds=tuple(sorted({outcome.seed for outcome in outcomes})),
    )


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
    rows = tuple(
        Row(
            method.label,
            certifies_tokens(method),
            tuple(column.get(method.label) for column in cells),
            tuple(one.reading for own in suites if (one := measured[own.key].get(method.label))),
            tuple(averages.get(method.label, ())),
        )
        for method in methods
    )
    seeds = {seed for own in measured.values() for one in own.values() for seed in one.reading.seeds}
    present = {column.suite for column in columns}
    absent = tuple(own.title for own in suites if own.key not in present)
    return Table(tuple(columns), rows, tuple(sorted(seeds)), outside, reference, suite, absent)


def _columns(suite: Suite, measured: Iterable[Measured]) -> list[Column]:
    """All figures that any method has, in the order of the suite."""
    figures: dict[tuple[str, str], Figure] = {}
    for one in measured:
        for key, figure in one.own.items():
            figures.setdefault(key, figure)
    # Parts follow the figures of the whole, those that only a later method has too.
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
        against = None if reference in (None, label) else shared.get(reference or "")
        cells[label] = Cell(
            value=fmean(values) if values else None,
            deviation=_deviation(values),
            pooled=pooled.value,
            low=_end(pooled.low),
            high=_end(pooled.high),
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


def _end(value: float | None) -> float | None:
    """An end of an interval; None where it is not known."""
    return None if value is None or math.isnan(value) else value


def _contrast(figure: Figure | None, reference: Figure | None) -> Contrast | None:
    found = None if figure is None or reference is None else difference(figure, reference)
    return Contrast(*found) if found is not None and all(map(math.isfinite, found)) else None


# Average ranks.


def _averages(
    columns: Sequence[Column], cells: Sequence[Mapping[str, Cell]], measured: Mapping[str, Mapping[str, Measured]]
) -> dict[str, list[AverageRank]]:
    """Average ranks by method and kind; ranks are averaged over the same columns for all methods."""
    present = {label for column in cells for label, cell in column.items() if cell.value is not None}
    ranked = [{label: cell.rank for label, cell in column.items() if cell.rank is not None} for column in cells]
    found: dict[str, list[AverageRank]] = {label: [] for label in present}
    for kind in dict.fromkeys(column.kind for column in columns):
        both = zip(columns, ranked, strict=True)
        chosen = [(column, own) for column, own in both if column.kind == kind and present <= set(own)]
        by_seed = _seed_ranks([column for column, _ in chosen], measured, present)
        for label in present if chosen else ():
            seeds = tuple((seed, fmean(own[label] for own in of_seed)) for seed, of_seed in by_seed.items())
            found[label].append(AverageRank(kind, fmean(own[label] for _, own in chosen), len(chosen), seeds))
    return found


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
