"""A table's cells as texts, laid out once for a terminal, LaTeX and HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.evaluate import words
from app.evaluate.tables import AverageRank, Cell, Column, Row, Table
from app.shared.format import count, signed
from coft_core.suites.base import Kind


@dataclass(frozen=True, slots=True)
class Published:
    """A figure that was computed elsewhere, as it was published."""

    value: float
    deviation: float | None = None


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Figures from elsewhere: a paper's, or another run's."""

    source: str
    values: Mapping[str, Mapping[str, Published]] = field(default_factory=dict)

    @classmethod
    def of(cls, source: str, values: Mapping[str, Mapping[str, float]]) -> Elsewhere:
        """Figures without a deviation."""
        return cls(
            source,
            {label: {name: Published(value) for name, value in own.items()} for label, own in values.items()},
        )

    def value(self, method: str, column: Column) -> Published | None:
        """A method's figure; None without one."""
        own = self.values.get(method, {})
        return own.get(column.name) or own.get(column.full_name)


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a column or row."""

    title: str
    arrow: str = ""
    said: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Shown:
    """A figure as it is shown."""

    text: str
    deviation: str = ""
    interval: str = ""
    contrast: str = ""
    best: bool = False
    value: float | None = None
    said: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """A table of texts."""

    corner: str
    heads: tuple[Head, ...]
    lines: tuple[tuple[Head, tuple[Shown | None, ...]], ...]


def laid_out(table: Table, elsewhere: Sequence[Elsewhere] = ()) -> Layout:
    """The figures of a table.

    Methods stand in rows; in the table of one suite, which has many figures, they stand in columns.
    """
    digits = [_digits(table, place, elsewhere) for place in range(len(table.columns))]
    averages = {average.kind: average for row in table.rows for average in row.averages}
    heads = [*(_column_head(column, table) for column in table.columns), *map(_average_head, averages.values())]
    lines: list[tuple[Head, tuple[Shown | None, ...]]] = []
    for label in _labels(table, elsewhere):
        row = next((row for row in table.rows if row.method == label), None)
        if row is not None:
            lines.append((Head(label), _row(row, table, digits, list(averages))))
        for other in elsewhere:
            if own := _published(label, other, table, digits):
                nothing = (None,) * len(averages)
                lines.append((Head(label, source=other.source), (*own, *nothing)))
    if not table.suite:
        return Layout("Method", tuple(heads), tuple(lines))
    turned = tuple((head, tuple(shown[place] for _, shown in lines)) for place, head in enumerate(heads))
    return Layout("Figure", tuple(head for head, _ in lines), turned)


def readings_laid_out(table: Table) -> Layout:
    """What was read: a row a suite and method."""
    certifying = any(row.certifies for row in table.rows)
    titles = ("Items, all seeds", "No answer", "Nothing masked", *(("Refused", "Empty") if certifying else ()))
    read = [(reading, row.method) for row in table.rows for reading in row.readings]
    suites = list(dict.fromkeys(reading.suite for reading, _ in read))
    lines = []
    for reading, method in sorted(read, key=lambda pair: suites.index(pair[0].suite)):
        counts = [Shown(count(number), value=number) for number in (reading.items, reading.unread)]
        shares = [reading.unmasked, *((reading.refused, reading.empty) if certifying else ())]
        shown = [None if share is None else Shown(words.percent(share), value=share) for share in shares]
        lines.append((Head(f"{reading.title}: {method}"), (*counts, *shown)))
    return Layout("Suite and method", tuple(Head(title) for title in titles), tuple(lines))


def _labels(table: Table, elsewhere: Sequence[Elsewhere]) -> list[str]:
    """The table's methods, and behind them those that are known from elsewhere alone."""
    own = [row.method for row in table.rows]
    return list(dict.fromkeys([*own, *(label for other in elsewhere for label in other.values)]))


def _digits(table: Table, place: int, elsewhere: Sequence[Elsewhere]) -> int:
    """Decimals of a column."""
    cells = [row.cells[place] for row in table.rows]
    published = [other.value(label, table.columns[place]) for other in elsewhere for label in other.values]
    values = [*(cell.value for cell in cells if cell), *(one.value for one in published if one)]
    return words.digits_for(values)


def _column_head(column: Column, table: Table) -> Head:
    title = words.figure_title(column) if table.suite else words.column_title(column)
    return Head(title, words.ARROWS[column.better], words.figure_sentence(column))


def _average_head(average: AverageRank) -> Head:
    return Head(words.average_title(average), words.ARROWS["lower"], words.average_sentence(average))


def _row(row: Row, table: Table, digits: Sequence[int], kinds: Sequence[Kind]) -> tuple[Shown | None, ...]:
    cells = [
        None if cell is None else _cell(cell, column, places)
        for cell, column, places in zip(row.cells, table.columns, digits, strict=True)
    ]
    averages = {average.kind: average for average in row.averages}
    ranks = [
        None if kind not in averages else Shown(words.number(averages[kind].value, 1), value=averages[kind].value)
        for kind in kinds
    ]
    return (*cells, *ranks)


def _cell(cell: Cell, column: Column, digits: int) -> Shown:
    contrast = "" if cell.contrast is None else (
        f"Δ {signed(cell.contrast.value, digits)} "
        f"{words.interval(cell.contrast.low, cell.contrast.high, digits)}"
    )  # fmt: skip
    return Shown(
        "unscored" if cell.value is None else words.number(cell.value, digits),
        words.number(cell.deviation, digits),
        words.interval(cell.low, cell.high, digits),
        contrast,
        cell.best,
        cell.value,
        words.cell_sentence(cell, column, digits),
    )


def _published(label: str, other: Elsewhere, table: Table, digits: Sequence[int]) -> tuple[Shown | None, ...]:
    """Figures from elsewhere in the table's columns; empty where there is none."""
    found = [other.value(label, column) for column in table.columns]
    if not any(found):
        return ()
    return tuple(
        None if one is None else Shown(
            words.number(one.value, places), words.number(one.deviation, places), value=one.value
        )
        for one, places in zip(found, digits, strict=True)
    )  # fmt: skip
