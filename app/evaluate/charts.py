"""Pictures of evaluations: figures with their intervals, parts of a suite, bias against utility, coverage."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import plotly.graph_objects as go

from app.evaluate.runs import CalibrationNote
from app.evaluate.tables import Cell, Column, Row, Table
from app.shared.charts import plain_layout

SYMBOLS = ("circle", "square-open", "diamond", "triangle-up-open", "cross", "x-open", "star", "hexagon-open")
"""Marks of methods, so that colour is not the only thing that tells them apart."""

ROW = 22
"""Height of one line of a picture, in pixels."""

MARGIN = {"l": 170, "r": 12, "t": 8, "b": 42}


def shortened(text: str) -> str:
    """A name as it fits beside a picture."""
    return text if len(text) <= 26 else f"{text[:25]}…"


def _spread(cell: Cell) -> tuple[float, float]:
    """How far the interval reaches to the left and to the right of the value."""
    if cell.value is None or cell.low is None or cell.high is None:
        return 0.0, 0.0
    return max(cell.value - cell.low, 0.0), max(cell.high - cell.value, 0.0)


def _bars(spreads: Sequence[tuple[float, float]], thickness: float, width: int) -> dict[str, Any]:
    """Bars that reach so far below and above each value."""
    return {
        "type": "data", "symmetric": False, "thickness": thickness, "width": width,
        "array": [above for _, above in spreads], "arrayminus": [below for below, _ in spreads],
    }  # fmt: skip


def _valued(row: Row, place: int) -> Cell | None:
    """A method's cell in a column, if it has a value."""
    cell = row.cells[place]
    return None if cell is None or cell.value is None else cell


def _name_lines(figure: go.Figure, names: Sequence[str]) -> None:
    """Name the lines of a picture, the first on top."""
    figure.update_yaxes(
        tickmode="array", tickvals=list(range(len(names))), ticktext=[shortened(name) for name in names],
        range=[len(names) - 0.5, -0.5], showgrid=False, zeroline=False,
    )  # fmt: skip


def methods_figure(table: Table, column: Column) -> go.Figure:
    """One figure of all methods with its interval, the first method on top."""
    place = table.columns.index(column)
    rows = [(row.method, cell) for row in table.rows if (cell := _valued(row, place))]
    figure = go.Figure(layout=plain_layout(ROW * len(rows) + 60, MARGIN))
    figure.add_scatter(
        x=[cell.value for _, cell in rows],
        y=list(range(len(rows))),
        mode="markers",
        marker={"size": 8},
        error_x=_bars([_spread(cell) for _, cell in rows], 1.2, 4),
        hovertext=[f"{name}: {cell.value:.4g}, n = {cell.n:,}" for name, cell in rows],
        hovertemplate="%{hovertext}<extra></extra>",
    )
    figure.update_xaxes(title={"text": f"{column.suite_title}: {column.title}", "standoff": 6}, nticks=6, showgrid=True)
    _name_lines(figure, [name for name, _ in rows])
    best = {"near the middle": 50, "near zero": 0}
    if column.better in best:
        figure.add_vline(x=best[column.better], line={"dash": "5px,3px", "width": 1})
    return figure


def parts_figure(table: Table, columns: Sequence[Column]) -> go.Figure:
    """One figure by part of the suite, a mark a method."""
    places = [table.columns.index(column) for column in columns]
    methods = max(len(table.rows), 1)
    figure = go.Figure(layout=plain_layout(max(ROW * len(columns) * methods // 2, 120) + 60, MARGIN))
    for number, (row, symbol) in enumerate(zip(table.rows, cycle(SYMBOLS), strict=False)):
        cells = [(line, cell) for line, place in enumerate(places) if (cell := _valued(row, place))]
        figure.add_scatter(
            name=row.method,
            x=[cell.value for _, cell in cells],
            y=[line + (number - (len(table.rows) - 1) / 2) * (0.7 / methods) for line, _ in cells],
            mode="markers",
            marker={"size": 8, "symbol": symbol},
            error_x=_bars([_spread(cell) for _, cell in cells], 1, 0),
            hovertext=[f"{row.method}, {columns[line].part}: {cell.value:.4g}, n = {cell.n:,}" for line, cell in cells],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    figure.update_xaxes(title={"text": columns[0].title, "standoff": 6}, nticks=6, showgrid=True)
    _name_lines(figure, [column.part or "all" for column in columns])
    figure.update_layout(showlegend=True, legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0})
    return figure


def plane_figure(table: Table, bias: Column, utility: Column) -> go.Figure:
    """Bias against utility, a mark a method with both intervals: to the left is less biased, higher is more useful."""
    across, up = table.columns.index(bias), table.columns.index(utility)
    figure = go.Figure(layout=plain_layout(320, {"l": 60, "r": 12, "t": 8, "b": 42}))
    for row, symbol in zip(table.rows, cycle(SYMBOLS), strict=False):
        x, y = _valued(row, across), _valued(row, up)
        if x is not None and y is not None:
            figure.add_scatter(
                name=row.method, x=[x.value], y=[y.value], mode="markers+text", text=[shortened(row.method)],
                textposition="top right", marker={"size": 9, "symbol": symbol},
                error_x=_bars([_spread(x)], 1, 3), error_y=_bars([_spread(y)], 1, 3),
                hovertemplate=f"{row.method}: %{{x:.4g}}, %{{y:.4g}}<extra></extra>",
            )  # fmt: skip
    figure.update_xaxes(title={"text": f"{bias.suite_title}: {bias.title}", "standoff": 6}, showgrid=True)
    figure.update_yaxes(title={"text": f"{utility.suite_title}: {utility.title}", "standoff": 6}, showgrid=True)
    return figure


def coverage_figure(notes: Sequence[CalibrationNote]) -> go.Figure:
    """Miscoverage on the contexts kept apart against the level that was asked for, a mark a calibration."""
    checked = [note for note in notes if note.coverage is not None]
    figure = go.Figure(layout=plain_layout(260, {"l": 60, "r": 12, "t": 8, "b": 42}))
    methods = list(dict.fromkeys(note.method for note in checked))
    top = max([0.2, *(note.alpha for note in checked), *(1 - (note.coverage or 0.0) for note in checked)]) * 1.1
    figure.add_scatter(x=[0, top], y=[0, top], mode="lines", name="as asked", line={"dash": "5px,3px", "width": 1})
    for method, symbol in zip(methods, cycle(SYMBOLS), strict=False):
        own = [note for note in checked if note.method == method]
        covered = [(note.low or 0.0, note.coverage or 0.0, note.high or 1.0) for note in own]
        figure.add_scatter(
            name=method,
            # Calibrations at one level lie beside each other.
            x=[note.alpha + 0.0015 * (place - (len(own) - 1) / 2) for place, note in enumerate(own)],
            y=[1 - share for _, share, _ in covered],
            mode="markers",
            marker={"size": 8, "symbol": symbol},
            error_y=_bars([(high - share, share - low) for low, share, high in covered], 1, 3),
            hovertext=[
                f"{method}, {note.suite}, seed {note.seed}: {note.checked:,} contexts kept apart" for note in own
            ],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    figure.update_xaxes(title={"text": "risk level alpha", "standoff": 6}, range=[0, top], showgrid=True)
    figure.update_yaxes(title={"text": "measured miscoverage", "standoff": 6}, range=[0, top], showgrid=True)
    return figure
