"""A table as texts: laid out once, for pages, LaTeX and a terminal alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.evaluate import words
from app.evaluate.tables import Cell, Column, Table
from app.shared.format import count, signed


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


def figure_shown(
    value: float | None,
    digits: int,
    deviation: float | None = None,
    low: float | None = None,
    high: float | None = None,
    contrast: str = "",
    best: bool = False,
    said: str = "",
) -> Shown:
    """A figure with its deviation and interval."""
    text = "unscored" if value is None else words.number(value, digits)
    interval = words.interval(low, high, digits)
    return Shown(text, words.number(deviation, digits), interval, contrast, best, value, said)


def laid_out(table: Table, elsewhere: Sequence[Elsewhere] = ()) -> Layout:
    """The figures of a table: a row a method, or a column a method in the table of one suite, which has many."""
    digits = [_digits(table, place, elsewhere) for place in range(len(table.columns))]
    averages = {average.kind: average for row in table.rows for average in row.averages}
    titled = words.figure_title if table.suite else words.column_title
    heads = [
        *(Head(titled(own), words.ARROWS[own.better], words.figure_sentence(own)) for own in table.columns),
        *(Head(words.average_title(own), words.ARROWS["lower"], words.average_sentence(own))
          for own in averages.values()),
    ]  # fmt: skip
    rows = {row.method: row for row in table.rows}
    lines: list[tuple[Head, tuple[Shown | None, ...]]] = []
    for label in labels_of(table, elsewhere):
        if label in rows:
            cells = map(_cell, rows[label].cells, table.columns, digits)
            ranks = {own.kind: figure_shown(own.value, 1) for own in rows[label].averages}
            lines.append((Head(label), (*cells, *map(ranks.get, averages))))
        for other in elsewhere:
            found = [other.value(label, column) for column in table.columns]
            if any(found):
                published = (figure_shown(own.value, places, own.deviation) if own else None
                             for own, places in zip(found, digits, strict=True))  # fmt: skip
                lines.append((Head(label, source=other.source), (*published, *(None for _ in averages))))
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
    return Layout("Suite and method", tuple(map(Head, titles)), tuple(lines))


def labels_of(table: Table, elsewhere: Sequence[Elsewhere]) -> list[str]:
    """The table's methods, followed by those that only figures from elsewhere have."""
    own = [row.method for row in table.rows]
    return list(dict.fromkeys([*own, *(label for other in elsewhere for label in other.values)]))


def _digits(table: Table, place: int, elsewhere: Sequence[Elsewhere]) -> int:
    """Decimals of a column."""
    cells = [row.cells[place] for row in table.rows]
    published = [other.value(label, table.columns[place]) for other in elsewhere for label in other.values]
    return words.digits_for(found.value for found in (*cells, *published) if found)


def _cell(cell: Cell | None, column: Column, digits: int) -> Shown | None:
    if cell is None:
        return None
    against = cell.contrast
    contrast = "" if against is None else (
        f"Δ {signed(against.value, digits)} {words.interval(against.low, against.high, digits)}"
    )  # fmt: skip
    said = words.cell_sentence(cell, column, digits)
    return figure_shown(cell.value, digits, cell.deviation, cell.low, cell.high, contrast, cell.best, said)
