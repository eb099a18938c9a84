"""The finding of an evaluation: what a method changes against the first one, in a sentence and a picture per suite."""

from __future__ import annotations

from dataclasses import dataclass

from app.evaluate import words
from app.evaluate.tables import Cell, Column, Table
from app.shared.format import count


@dataclass(frozen=True, slots=True)
class Bar:
    """A method's figure in the picture of a suite; ``share`` is its length from 0 to 1."""

    method: str
    text: str
    share: float
    finding: bool = False


@dataclass(frozen=True, slots=True)
class SuitePicture:
    """The main figure of a suite by method."""

    title: str
    what: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class EvaluationFinding:
    """A sentence in pieces, of which the marked ones are emphasised, what it rests on, and the pictures."""

    sentence: tuple[tuple[str, bool], ...]
    below: str
    pictures: tuple[SuitePicture, ...]


def finding(table: Table) -> EvaluationFinding | None:
    """The finding of a table of main figures whose contrasts are to its first method; None while nothing is read."""
    columns = [(place, column) for place, column in enumerate(table.columns) if column.main]
    if not columns or not any(row.cells[place] for row in table.rows for place, _ in columns):
        return None
    place, column = next((pair for pair in columns if pair[1].kind == "bias"), columns[0])
    first, (other, cell) = table.rows[0].cells[place], _compared(table, place)
    contrast = None if cell is None else cell.contrast
    changed = contrast is not None and not contrast.noise
    pictures = tuple(_picture(table, own, each, changed and own == place) for own, each in columns)
    rests = _rests(table, place, column)
    if first is None or cell is None or contrast is None or first.value is None or cell.value is None:
        return EvaluationFinding(_alone(table, place, column), rests, pictures)
    digits = words.digits_for((first.value, cell.value))
    before, after = words.number(first.value, digits), words.number(cell.value, digits)
    name = column.title[0].lower() + column.title[1:]
    same = f"{other} changes the {name} no more than chance would: {before} without it, {after} with it."
    sentence: tuple[tuple[str, bool], ...] = ((same, False),)
    if changed:
        verb = "lowers" if cell.value < first.value else "raises"
        sentence = ((f"{other} {verb} the {name} from ", False), (before, True), (f" to {after}.", False))
    ends = (words.number(end, digits) for end in (contrast.low, contrast.high))
    below = f"{rests} 95 % interval of the difference: {' to '.join(ends)}.{_cost(table, other)}"
    return EvaluationFinding(sentence, below, pictures)


def _compared(table: Table, place: int) -> tuple[str, Cell | None]:
    """The method that is compared with the first: one that certifies, else the second."""
    others = [row for row in table.rows[1:] if row.cells[place] is not None]
    named = [row for row in others if row.certifies or "coft" in row.method.lower()]
    chosen = next(iter([*named, *others]), None)
    return ("", None) if chosen is None else (chosen.method, chosen.cells[place])


def _alone(table: Table, place: int, column: Column) -> tuple[tuple[str, bool], ...]:
    row = next(row for row in table.rows if row.cells[place] is not None)
    cell = row.cells[place]
    value = None if cell is None else cell.value
    shown = words.number(value, words.digits_for((value,))) or "not scored"
    return ((f"{column.suite_title}, {row.method}: {column.title} {shown}.", False),)


def _rests(table: Table, place: int, column: Column) -> str:
    most = max(cell.n for row in table.rows if (cell := row.cells[place]) is not None)
    return f"{column.suite_title}, {count(most)} {column.what}."


def _cost(table: Table, other: str) -> str:
    """What the method costs in usefulness; empty without such a suite."""
    found = next((pair for pair in enumerate(table.columns) if pair[1].main and pair[1].kind == "utility"), None)
    if found is None:
        return ""
    place, column = found
    first, cell = table.rows[0].cells[place], table.row(other).cells[place]
    if first is None or cell is None or first.value is None or cell.value is None or cell.contrast is None:
        return ""
    digits = words.digits_for((first.value, cell.value))
    chance = ", no more than chance would change" if cell.contrast.noise else ""
    return (
        f" {column.suite_title}: {column.title} {words.number(cell.value, digits)} instead of "
        f"{words.number(first.value, digits)}{chance}."
    )


def _picture(table: Table, place: int, column: Column, changed: bool) -> SuitePicture:
    cells = [(row.method, cell) for row in table.rows if (cell := row.cells[place]) is not None]
    values = [cell.value for _, cell in cells if cell.value is not None]
    digits, largest = words.digits_for(values), max((abs(value) for value in values), default=0.0) or 1.0
    bars = tuple(
        Bar(
            method,
            words.number(cell.value, digits) or "not scored",
            0.0 if cell.value is None else abs(cell.value) / largest,
            changed and number == 0,
        )
        for number, (method, cell) in enumerate(cells)
    )
    most = max((cell.n for _, cell in cells), default=0)
    what = f"{words.BETTER[column.better]} {count(most)} {column.what}."
    return SuitePicture(f"{column.suite_title}: {column.title}", what, bars)
