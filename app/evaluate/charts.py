"""Pictures of evaluations: figures with their intervals, parts of a suite, bias against utility, coverage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import Any

import plotly.graph_objects as go

from app.evaluate.experiments.grid import Value
from app.evaluate.runs import CalibrationNote
from app.evaluate.tables import Cell, Column, Row, Table
from app.shared.charts import plain_layout
from coft_core.suites.base import Figure

SYMBOLS = ("circle", "square-open", "diamond", "triangle-up-open", "cross", "x-open", "star", "hexagon-open")
"""Marks of methods, so that colour is not the only thing that tells them apart."""

ROW = 22
"""Height of one line of a picture, in pixels."""

MARGIN = {"l": 170, "r": 12, "t": 8, "b": 42}
AROUND = {"l": 60, "r": 12, "t": 8, "b": 42}
LEGEND = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}
DASHED = "5px,3px"


def shortened(text: str) -> str:
    """A name as it fits beside a picture."""
    return text if len(text) <= 26 else f"{text[:25]}…"


def framed(height: int, margin: dict[str, int], across: str, up: str = "", legend: bool = False) -> go.Figure:
    """An empty picture with the titles of its axes."""
    figure = go.Figure(layout=plain_layout(height, margin))
    figure.update_xaxes(title={"text": across, "standoff": 6}, showgrid=True)
    if up:
        figure.update_yaxes(title={"text": up, "standoff": 6}, showgrid=True)
    if legend:
        figure.update_layout(showlegend=True, legend=LEGEND)
    return figure


def add_marks(
    figure: go.Figure, name: str, x: Iterable[Any], y: Iterable[Any], hover: Iterable[str], symbol: str = "circle",
    size: int = 8, **more: Any,
) -> None:  # fmt: skip
    """Add the points of a method."""
    figure.add_scatter(
        name=name, x=list(x), y=list(y), marker={"size": size, "symbol": symbol}, hovertext=list(hover),
        hovertemplate="%{hovertext}<extra></extra>", **{"mode": "markers", **more},
    )  # fmt: skip


def add_diagonal(figure: go.Figure, top: float, **more: Any) -> None:
    """Add the line on which what was measured is what was asked."""
    line = {"dash": DASHED, "width": 1}
    figure.add_scatter(x=[0.0, top], y=[0.0, top], mode="lines", name="as asked", line=line, **more)


def bars(ends: Sequence[tuple[float, float]], thickness: float = 1, width: int = 3) -> dict[str, Any]:
    """Bars that reach so far below and above each point."""
    return {
        "type": "data", "symmetric": False, "thickness": thickness, "width": width,
        "array": [above for _, above in ends], "arrayminus": [below for below, _ in ends],
    }  # fmt: skip


def interval_bars(values: Iterable[Cell | Value | Figure], thickness: float = 1, width: int = 3) -> dict[str, Any]:
    """Bars to the ends of the intervals."""
    ends = [
        (0.0, 0.0) if own.value is None or own.low is None or own.high is None
        else (max(own.value - own.low, 0.0), max(own.high - own.value, 0.0))
        for own in values
    ]  # fmt: skip
    return bars(ends, thickness, width)


def name_lines(figure: go.Figure, names: Sequence[str], top: float = -0.5) -> None:
    """Name the lines of a picture, the first on top."""
    figure.update_yaxes(
        tickmode="array", tickvals=list(range(len(names))), ticktext=[shortened(name) for name in names],
        range=[len(names) - 0.5, top], showgrid=False, zeroline=False,
    )  # fmt: skip


def _valued(row: Row, place: int) -> Cell | None:
    """A method's cell in a column, if it has a value."""
    cell = row.cells[place]
    return None if cell is None or cell.value is None else cell


def methods_figure(table: Table, column: Column) -> go.Figure:
    """One figure of all methods with its interval, the first method on top."""
    place = table.columns.index(column)
    rows = {row.method: cell for row in table.rows if (cell := _valued(row, place))}
    figure = framed(ROW * len(rows) + 60, MARGIN, f"{column.suite_title}: {column.title}")
    figure.update_xaxes(nticks=6)
    hover = [f"{name}: {cell.value:.4g}, n = {cell.n:,}" for name, cell in rows.items()]
    error = interval_bars(rows.values(), 1.2, 4)
    add_marks(figure, "", (cell.value for cell in rows.values()), range(len(rows)), hover, error_x=error)
    name_lines(figure, list(rows))
    best = {"near the middle": 50, "near zero": 0}
    if column.better in best:
        figure.add_vline(x=best[column.better], line={"dash": DASHED, "width": 1})
    return figure


def parts_figure(table: Table, columns: Sequence[Column]) -> go.Figure:
    """One figure by part of the suite, a mark a method."""
    places = [table.columns.index(column) for column in columns]
    methods = max(len(table.rows), 1)
    height = max(ROW * len(columns) * methods // 2, 120) + 60
    figure = framed(height, MARGIN, columns[0].title, legend=True)
    figure.update_xaxes(nticks=6)
    for number, (row, symbol) in enumerate(zip(table.rows, cycle(SYMBOLS), strict=False)):
        cells = [(line, cell) for line, place in enumerate(places) if (cell := _valued(row, place))]
        aside = (number - (len(table.rows) - 1) / 2) * (0.7 / methods)
        hover = [f"{row.method}, {columns[line].part}: {cell.value:.4g}, n = {cell.n:,}" for line, cell in cells]
        add_marks(
            figure, row.method, (cell.value for _, cell in cells), (line + aside for line, _ in cells), hover, symbol,
            error_x=interval_bars((cell for _, cell in cells), 1, 0),
        )  # fmt: skip
    name_lines(figure, [column.part or "all" for column in columns])
    return figure


def plane_figure(table: Table, bias: Column, utility: Column) -> go.Figure:
    """Bias against utility, a mark a method with both intervals: to the left is less biased, higher is more useful."""
    across, up = table.columns.index(bias), table.columns.index(utility)
    first, second = (f"{column.suite_title}: {column.title}" for column in (bias, utility))
    figure = framed(320, AROUND, first, second)
    for row, symbol in zip(table.rows, cycle(SYMBOLS), strict=False):
        x, y = _valued(row, across), _valued(row, up)
        if x is not None and y is not None:
            add_marks(
                figure, row.method, [x.value], [y.value], [f"{row.method}: {x.value:.4g}, {y.value:.4g}"], symbol, 9,
                mode="markers+text", text=[shortened(row.method)], textposition="top right",
                error_x=interval_bars([x]), error_y=interval_bars([y]),
            )  # fmt: skip
    return figure


def coverage_figure(notes: Sequence[CalibrationNote]) -> go.Figure:
    """Miscoverage on the contexts kept apart against the level that was asked for, a mark a calibration."""
    checked = [note for note in notes if note.coverage is not None]
    figure = framed(260, AROUND, "risk level alpha", "measured miscoverage")
    top = max([0.2, *(note.alpha for note in checked), *(1 - (note.coverage or 0.0) for note in checked)]) * 1.1
    add_diagonal(figure, top)
    methods = dict.fromkeys(note.method for note in checked)
    for method, symbol in zip(methods, cycle(SYMBOLS), strict=False):
        own = [note for note in checked if note.method == method]
        covered = [(note.low or 0.0, note.coverage or 0.0, note.high or 1.0) for note in own]
        add_marks(
            figure,
            method,
            # Calibrations at one level lie beside each other.
            (note.alpha + 0.0015 * (place - (len(own) - 1) / 2) for place, note in enumerate(own)),
            (1 - share for _, share, _ in covered),
            (f"{method}, {note.suite}, seed {note.seed}: {note.checked:,} contexts kept apart" for note in own),
            symbol,
            error_y=bars([(high - share, share - low) for low, share, high in covered]),
        )
    figure.update_xaxes(range=[0, top])
    figure.update_yaxes(range=[0, top])
    return figure
