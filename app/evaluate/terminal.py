"""Tables of evaluations on a terminal."""

from __future__ import annotations

import sys

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as Drawn
from rich.text import Text

from app.evaluate import words
from app.evaluate.layout import Head, Layout, Shown, laid_out, readings_laid_out
from app.evaluate.table_service import EvaluationTable
from app.shared.step_words import visible


def print_table(shown: EvaluationTable) -> None:
    """The figures, what was read, and the sentences that belong to them."""
    table, evaluated = shown.table, shown.evaluated
    print(f"{evaluated.name} (evaluation {shown.evaluation_id}), {evaluated.model}")
    if table.columns:
        print_layout(laid_out(table, shown.elsewhere))
    for note in words.notes(table, evaluated.plans, bool(shown.elsewhere)):
        print(note)
    if any(row.readings for row in table.rows):
        print_layout(readings_laid_out(table))
        print(*words.reading_notes(table), sep="\n")


def print_layout(layout: Layout) -> None:
    """A table; on a terminal as wide as that is."""
    drawn = Drawn(box=box.SIMPLE_HEAD)
    drawn.add_column(layout.corner)
    for head in layout.heads:
        drawn.add_column(_head(head), justify="right")
    for head, line in layout.lines:
        drawn.add_row(_head(head), *(_cell(cell) for cell in line))
    console = Console(file=sys.stdout)
    if not console.is_terminal:
        # Whoever reads it from a file or a pipe has lines as long as they come.
        console.width = Measurement.get(console, console.options.update(width=10_000), drawn).maximum
    console.print(drawn)


def _head(head: Head) -> Text:
    text = Text(visible(f"{head.title} {head.arrow}".rstrip()))
    return text.append(f"\n{visible(head.source)}", "italic") if head.source else text


def _cell(shown: Shown | None) -> Text:
    """The number with its deviation, its interval below, and the difference to the reference method below that."""
    if shown is None:
        return Text("\N{EN DASH}")
    text = Text(f"{visible(shown.text)}{'*' if shown.best else ''}", "bold" if shown.best else "")
    text.append(f" ±{shown.deviation}" if shown.deviation else "", "not bold")
    for line in (shown.interval, shown.contrast):
        text.append(f"\n{line}" if line else "", "not bold dim")
    return text
