"""The claims of the paper's text, each held against the intervals of our figures and against its own tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, median
from typing import Literal

import numpy as np
import yaml
from pydantic import TypeAdapter

from app.evaluate.experiments.figures import SHARED, Experiment, Figures, Series, Table
from app.evaluate.experiments.grid import Grid, Value, Values
from app.evaluate.experiments.named import EXPERIMENTS
from app.evaluate.experiments.tables import FiguresTable
from coft_core.assets import assets_path
from coft_core.conformal.coverage import clopper_pearson
from coft_core.suites.statistics import LEVEL, Floats

Verdict = Literal["shown", "not shown", "contradicted", "cannot be checked here"]
How = Literal["value", "difference", "reduction", "ratio", "chosen"]
UNCHECKED: Verdict = "cannot be checked here"

SURE = 95.0
"""In how many percent of drawn samples a value must be chosen to count as chosen."""

NOTHING = 1e-9
"""A smaller figure is rounding."""


@dataclass(frozen=True, slots=True)
class Reads:
    """Which figures of an experiment a claim is about; without a table those of its first one."""

    experiment: str
    columns: tuple[str, ...]
    rows: tuple[str, ...] = ("COFT",)
    against: str = ""
    table: str = ""
    how: How = "value"
    over: Literal["each", "median"] = "each"
    model: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim; without figures to read it says why it cannot be checked."""

    where: str
    says: str
    reads: Reads | None = None
    within: tuple[float | None, float | None] = (None, None)
    note: str = ""
    reason: str = ""

    @property
    def experiment(self) -> str:
        """What it reads; empty where there is nothing to read."""
        return self.reads.experiment if self.reads else ""

    def allows(self, low: float, high: float) -> bool:
        """Whether an interval lies within its bounds."""
        least, most = self.within
        return (least is None or least <= low) and (most is None or high <= most)

    def forbids(self, low: float, high: float) -> bool:
        """Whether an interval lies outside of its bounds."""
        least, most = self.within
        return (least is not None and high < least) or (most is not None and low > most)


@dataclass(frozen=True, slots=True)
class Run:
    """What an experiment came to on a model."""

    model: str
    figures: Figures
    grids: tuple[Grid, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """A claim with its verdict, our readings by what they are of, and the span of the paper's own values."""

    claim: Claim
    verdict: Verdict
    reason: str
    found: tuple[tuple[str, Value], ...] = ()
    printed: tuple[float, float] | None = None

    @property
    def holds_in_print(self) -> bool | None:
        """Whether the paper's own tables say it; None where they have no such figure."""
        return None if self.printed is None else self.claim.allows(*self.printed)


_CLAIMS = TypeAdapter(tuple[Claim, ...])


def paper_claims() -> tuple[Claim, ...]:
    """All claims, in the order of the paper."""
    return _CLAIMS.validate_python(yaml.safe_load(assets_path("paper", "claims.yaml").read_text("utf-8")))


def check(claim: Claim, runs: Sequence[Run]) -> Checked:
    """Hold a claim against what its experiment came to on each model."""
    if (reads := claim.reads) is None:
        return Checked(claim, UNCHECKED, claim.reason)
    experiment = runs[0].figures.experiment if runs else EXPERIMENTS.get(reads.experiment)
    printed = _printed(reads, experiment) if experiment else None
    own = [run for run in runs if reads.model.lower() in run.model.lower()]
    if not own:
        what = f"{reads.experiment} was not run" + (f" on {reads.model}" if reads.model else "")
        return Checked(claim, UNCHECKED, f"{what}.", printed=printed)
    found = [(name, value) for run in own for name, value in _readings(reads, run, len(own) > 1)]
    verdict, reason = judged(claim, [value for _, value in found])
    return Checked(claim, verdict, reason, tuple(found), printed)


# Verdicts.


def judged(claim: Claim, values: Sequence[Value]) -> tuple[Verdict, str]:
    """The verdict of readings, and why it is none.

    It is shown if every interval lies within the bounds. It is contradicted if one lies outside of them, after all are
    widened for their number, so that a false contradiction is as rare as for one reading.
    """
    known = [(one.value, one.low, one.high) for one in values if one.value is not None]
    if not known:
        return UNCHECKED, "Our runs have no such figure."
    if claim.reads is not None and claim.reads.how == "chosen":
        share = min(value for value, _, _ in known)
        return "shown" if share >= SURE else "contradicted" if share <= 100 - SURE else "not shown", ""
    # Where no draw differs from another, too little was read to say how far the figure may lie from what it would be.
    intervals = [
        (value, low, high)
        for value, low, high in known
        if low is not None and high is not None and not high - low < NOTHING
    ]
    by, missing = _widening(max(len(intervals), 1)), len(values) - len(intervals)
    ends = [(low, high) for _, low, high in intervals]
    wide = [(_widened(value, low, by), _widened(value, high, by)) for value, low, high in intervals]
    if claim.reads is not None and claim.reads.over == "median":
        # Where all intervals hold together, so does that between the medians of their ends.
        ends = wide = [(median(low for low, _ in wide), median(high for _, high in wide))] if not missing else []
    if any(claim.forbids(low, high) for low, high in wide):
        return "contradicted", ""
    if missing:
        return UNCHECKED, f"{missing} of {len(values)} figures have no interval, or one without width."
    return ("shown" if all(claim.allows(low, high) for low, high in ends) else "not shown"), ""


def _widened(value: float, end: float, by: float) -> float:
    return end if math.isinf(end) or math.isinf(value) else value + by * (end - value)


def _widening(number: int) -> float:
    """By how much intervals grow so that all of so many hold at the level of one (Bonferroni, normal ends)."""
    normal = NormalDist()
    return normal.inv_cdf(1 - (1 - LEVEL) / 2 / number) / normal.inv_cdf((1 + LEVEL) / 2)


# Readings.


def _readings(reads: Reads, run: Run, named: bool) -> Iterator[tuple[str, Value]]:
    place = _place(reads, run.figures.experiment.tables)
    table, grid = run.figures.experiment.tables[place], run.grids[place]
    read: Callable[[str, str], Value | None]
    if isinstance(table, FiguresTable):
        read = lambda row, column: _compared(reads, run.figures, table, row, column)  # noqa: E731
    else:
        cells = _cells(grid)
        read = lambda row, column: _between(reads, cells, row, column)  # noqa: E731
    for row in reads.rows:
        for column in reads.columns:
            value = read(row, column)
            parts = (*([run.model] if named else []), *([row] if len(reads.rows) > 1 else []), column)
            yield ", ".join(parts), _with_interval(value or Value(None))


def _place(reads: Reads, tables: Sequence[Table]) -> int:
    titles = [table.title for table in tables]
    return titles.index(reads.table) if reads.table else 0


def _compared(reads: Reads, figures: Figures, table: FiguresTable, row: str, title: str) -> Value | None:
    """A figure of outcomes; comparisons are paired over drawn units."""
    columns, of_suites = {own.title: own for own in table.columns}, table.rows == "suites"
    if of_suites and row not in figures.suites:
        return None

    def series(name: str, title: str) -> Series | None:
        column = columns[title]
        return column.series(figures, column.method if of_suites else name, row if of_suites else "")

    if reads.how == "value" and not of_suites:
        return columns[title].value(figures, row)
    own = series(row, title)
    if own is None or reads.how == "value":
        return None if own is None else own.value
    other = series(row, reads.against) if of_suites else series(reads.against, title)
    if other is None:
        return None
    return own.less(other) if reads.how == "difference" else _percent(reads.how, own, other)


def _percent(how: How, own: Series, other: Series) -> Value:
    """The size of a figure in percent of another's, or by how much it is less; beside none it is without bound."""
    first, second = own.figures[SHARED], other.figures[SHARED]
    if first.value is None or second.value is None:
        return Value(None)
    value = float(_shares(how, np.array([first.value]), np.array([second.value]))[0])
    if first.draws is None or second.draws is None or len(first.draws) != len(second.draws):
        return Value(value)
    drawn, tail = _shares(how, first.draws, second.draws), (1 - LEVEL) / 2
    low, high = (float(np.quantile(drawn, end, method=side)) for end, side in ((tail, "lower"), (1 - tail, "higher")))
    return Value(value, None, low, high, first.n, first.what)


def _shares(how: How, first: Floats, second: Floats) -> Floats:
    first, second = (np.where(np.abs(own) < NOTHING, 0.0, np.abs(own)) for own in (first, second))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where((first == 0) & (second == 0), 100.0, 100 * first / second)
    return share if how == "ratio" else 100 - share


def _cells(grid: Grid) -> Mapping[str, Mapping[str, Value | None]]:
    """Our numbers by row and column."""
    titles = [head.title for head in grid.heads]
    return {head.title: dict(zip(titles, values, strict=True)) for head, values in grid.rows if not head.source}


def _between(reads: Reads, cells: Mapping[str, Mapping[str, Value | None]], row: str, column: str) -> Value | None:
    """A number of a table, or its difference to that of another row or column, from both intervals (MOVER)."""

    def named(name: str) -> Mapping[str, Value | None]:
        # What a row was chosen at is behind a comma.
        begun = (own for title, own in cells.items() if title.startswith(f"{name},"))
        return cells.get(name) or next(begun, {})

    first = named(row).get(column)
    if reads.how in ("value", "chosen") or first is None:
        return first
    second = named(row).get(reads.against) or named(reads.against).get(column)
    if second is None or first.value is None or second.value is None:
        return None
    value = first.value - second.value
    if first.low is None or first.high is None or second.low is None or second.high is None:
        return Value(value)
    below = math.hypot(first.value - first.low, second.high - second.value)
    above = math.hypot(first.high - first.value, second.value - second.low)
    return replace(first, value=value, low=value - below, high=value + above)


def _with_interval(value: Value) -> Value:
    """A share of counted contexts has its exact interval."""
    if value.value is None or value.low is not None or value.what != "contexts" or not value.n:
        return value
    low, high = clopper_pearson(round(value.value * value.n), value.n)
    return replace(value, low=low, high=high)


# What the paper prints.


def _printed(reads: Reads, experiment: Experiment) -> tuple[float, float] | None:
    """The span of the paper's own values over its models."""
    table = experiment.tables[_place(reads, experiment.tables)]
    empty = table.grid(Figures(experiment, "", experiment.evaluated(), {}, {}))
    titles = [head.title for head in empty.heads]
    found: list[float] = []
    for paper in table.papers:
        values = [
            value
            for row in reads.rows
            for column in reads.columns
            if (value := _of_print(reads, paper.rows, titles, row, column)) is not None
        ]
        found += [median(values)] if values and reads.over == "median" else values
    return (min(found), max(found)) if found and reads.how != "chosen" else None


def _of_print(reads: Reads, rows: Mapping[str, Values], titles: Sequence[str], row: str, column: str) -> float | None:
    def cell(name: str, title: str) -> float | None:
        # A row of a level and a length is printed for the level.
        values = rows.get(name) or rows.get(name.partition(",")[0]) or ()
        place = titles.index(title) if title in titles else len(values)
        value = values[place] if place < len(values) else None
        return None if value is None else value.value

    own = cell(row, column)
    other = cell(row, reads.against) if reads.against in titles else cell(reads.against, column)
    if own is None or reads.how == "value":
        return own
    if other is None:
        return None
    if reads.how == "difference":
        return round(own - other, 9)
    return 100 * own / other if reads.how == "ratio" else 100 - 100 * own / other
