"""Pictures of evaluations: figures with their intervals, parts of a suite, bias against utility, coverage."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import plotly.graph_objects as go

from app.evaluate.runs import CalibrationNote
from app.evaluate.tables import Cell, Column, Table
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


def methods_figure(table: Table, column: Column) -> go.Figure:
    """One figure of all methods with its interval, the first method on top."""
    place = table.columns.index(column)
    rows = [(row.method, cell) for row in table.rows if (cell := row.cells[place]) and cell.value is not None]
    figure = go.Figure(layout=plain_layout(ROW * len(rows) + 60, MARGIN))
    figure.add_scatter(
        x=[cell.value for _, cell in rows],
        y=list(range(len(rows))),
        mode="markers",
        marker={"size": 8},
        error_x={
            "type": "data", "symmetric": False, "thickness": 1.2, "width": 4,
            "array": [_spread(cell)[1] for _, cell in rows], "arrayminus": [_spread(cell)[0] for _, cell in rows],
        },
        hovertext=[f"{name}: {cell.value:.4g}, n = {cell.n:,}" for name, cell in rows],
        hovertemplate="%{hovertext}<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(title={"text": f"{column.suite_title}: {column.title}", "standoff": 6}, nticks=6, showgrid=True)
    figure.update_yaxes(
        tickmode="array", tickvals=list(range(len(rows))), ticktext=[shortened(name) for name, _ in rows],
        range=[len(rows) - 0.5, -0.5], showgrid=False, zeroline=False,
    )  # fmt: skip
    if column.better == "near the middle":
        figure.add_vline(x=50, line={"dash": "5px,3px", "width": 1})
    if column.better == "near zero":
        figure.add_vline(x=0, line={"dash": "5px,3px", "width": 1})
    return figure


def parts_figure(table: Table, columns: Sequence[Column]) -> go.Figure:
    """One figure by part of the suite, a mark a method."""
    places = [table.columns.index(column) for column in columns]
    figure = go.Figure(layout=plain_layout(max(ROW * len(columns) * max(len(table.rows), 1) // 2, 120) + 60, MARGIN))
    step = 0.7 / max(len(table.rows), 1)
    for number, (row, symbol) in enumerate(zip(table.rows, cycle(SYMBOLS), strict=False)):
        cells = [(line, row.cells[place]) for line, place in enumerate(places)]
        present = [(line, cell) for line, cell in cells if cell is not None and cell.value is not None]
        figure.add_scatter(
            name=row.method,
            x=[cell.value for _, cell in present],
            y=[line + (number - (len(table.rows) - 1) / 2) * step for line, _ in present],
            mode="markers",
            marker={"size": 8, "symbol": symbol},
            error_x={
                "type": "data", "symmetric": False, "thickness": 1, "width": 0,
                "array": [_spread(cell)[1] for _, cell in present],
                "arrayminus": [_spread(cell)[0] for _, cell in present],
            },
            hovertext=[
                f"{row.method}, {columns[line].part}: {cell.value:.4g}, n = {cell.n:,}" for line, cell in present
            ],
            hovertemplate="%{hovertext}<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title={"text": columns[0].title, "standoff": 6}, nticks=6, showgrid=True)
    figure.update_yaxes(
        tickmode="array", tickvals=list(range(len(columns))),
        ticktext=[shortened(column.part or "all") for column in columns], range=[len(columns) - 0.5, -0.5],
        showgrid=False, zeroline=False,
    )  # fmt: skip
    figure.update_layout(showlegend=True, legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0})
    return figure


def plane_figure(table: Table, bias: Column, utility: Column) -> go.Figure:
    """Bias against utility, a mark a method with both intervals: to the left is less biased, higher is more useful."""
    across, up = table.columns.index(bias), table.columns.index(utility)
    figure = go.Figure(layout=plain_layout(320, {"l": 60, "r": 12, "t": 8, "b": 42}))
    for row, symbol in zip(table.rows, cycle(SYMBOLS), strict=False):
        x, y = row.cells[across], row.cells[up]
        if x is None or y is None or x.value is None or y.value is None:
            continue
        (left, right), (below, above) = _spread(x), _spread(y)
        bars = {"type": "data", "symmetric": False, "thickness": 1, "width": 3}
        figure.add_scatter(
            name=row.method, x=[x.value], y=[y.value], mode="markers+text", text=[shortened(row.method)],
            textposition="top right", marker={"size": 9, "symbol": symbol},
            error_x={**bars, "array": [right], "arrayminus": [left]},
            error_y={**bars, "array": [above], "arrayminus": [below]},
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
        figure.add_scatter(
            name=method,
            # Calibrations at one level lie beside each other.
            x=[note.alpha + 0.0015 * (place - (len(own) - 1) / 2) for place, note in enumerate(own)],
            y=[1 - (note.coverage or 0.0) for note in own],
            mode="markers",
            marker={"size": 8, "symbol": symbol},
            error_y={
                "type": "data", "symmetric": False, "thickness": 1, "width": 3,
                "array": [(note.coverage or 0.0) - (note.low or 0.0) for note in own],
                "arrayminus": [(note.high or 1.0) - (note.coverage or 0.0) for note in own],
            },
            hovertext=[
                f"{method}, {note.suite}, seed {note.seed}: {note.checked:,} contexts kept apart" for note in own
            ],
            hovertemplate="%{hovertext}<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title={"text": "risk level alpha", "standoff": 6}, range=[0, top], showgrid=True)
    figure.update_yaxes(title={"text": "measured miscoverage", "standoff": 6}, range=[0, top], showgrid=True)
    return figure
