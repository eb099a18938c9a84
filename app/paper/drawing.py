"""Plotly's figures as files, drawn by matplotlib, which needs no browser."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import plotly.graph_objects as go
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

Form = Literal["png", "pdf", "svg"]

WIDTH, DOTS = 680, 100
"""Pixels of a picture, and how many make an inch."""

MARKS = {
    "circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "cross": "P", "x": "x", "star": "*",
    "hexagon": "h",
}  # fmt: skip
UNDATED: dict[Form, dict[str, None]] = {
    "png": {"Software": None}, "pdf": {"CreationDate": None, "Producer": None}, "svg": {"Date": None},
}  # fmt: skip
"""The same figure gives the same bytes."""

STYLE = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "coft",
    "pdf.fonttype": 42,
}


def drawn(figure: go.Figure, forms: Iterable[Form]) -> dict[Form, bytes]:
    """A figure of lines and marks in several forms; anything else that it has is refused."""
    layout = figure.layout
    with rc_context(STYLE):
        paper = Figure((WIDTH / DOTS, layout.height / DOTS), layout="constrained")
        FigureCanvasAgg(paper)
        axes = paper.subplots()
        for place, trace in enumerate(figure.data):
            if trace.type != "scatter":
                raise ValueError(f"A picture has a trace of the kind {trace.type}, which is not drawn yet.")
            _trace(axes, trace, _colour(figure, place))
        for shape in layout.shapes:
            line = axes.axhline if shape.y0 == shape.y1 else axes.axvline
            line(shape.y0 if shape.y0 == shape.y1 else shape.x0, linestyle=":", linewidth=0.8, color="0.4")
        for note in layout.annotations:
            at = axes.get_yaxis_transform()
            axes.annotate(note.text, (note.x, note.y), xycoords=at, ha="right", va="bottom", fontsize=7)
        _axis(axes, "x", layout.xaxis)
        _axis(axes, "y", layout.yaxis)
        if layout.showlegend:
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, frameon=False, fontsize=7)
        # Laid out once, since each form would do so by its own measures of letters.
        paper.draw_without_rendering()
        paper.set_layout_engine("none")
        return {form: _written(paper, form) for form in forms}


def _written(paper: Figure, form: Form) -> bytes:
    data = io.BytesIO()
    paper.savefig(data, format=form, dpi=2 * DOTS, metadata=UNDATED[form])
    return data.getvalue()


def _colour(figure: go.Figure, place: int) -> str:
    """That of the pages' light theme."""
    themed = figure.layout.template.data.scatter
    return str(themed[place % len(themed)].marker.color)


def _trace(axes: Any, trace: Any, colour: str) -> None:
    x, y = (np.array([np.nan if one is None else one for one in own or ()], dtype=float) for own in (trace.x, trace.y))
    if trace.fill == "toself":
        axes.fill(x, y, color="0.5", alpha=0.22, linewidth=0)
        return
    lines, marks = "lines" in trace.mode, "markers" in trace.mode
    symbol = trace.marker.symbol or "circle"
    axes.plot(
        x, y,
        linestyle=("--" if trace.line.dash not in (None, "solid") else "-") if lines else "none",
        linewidth=trace.line.width or 1,
        marker=MARKS[symbol.removesuffix("-open")] if marks else "none",
        markerfacecolor="none" if symbol.endswith("-open") else colour,
        markersize=(trace.marker.size or 6) * 0.6,
        color=colour,
        label=trace.name or "_nolegend_",
    )  # fmt: skip
    for bar, name in ((trace.error_x, "xerr"), (trace.error_y, "yerr")):
        if bar.array is not None:
            ends = {name: [list(bar.arrayminus), list(bar.array)]}
            axes.errorbar(x, y, fmt="none", ecolor=colour, elinewidth=0.8, capsize=2, **ends)
    up = "bottom" not in (trace.textposition or "")
    aside = 4 if "right" in (trace.textposition or "") else 0
    for text, across, at in zip(trace.text or (), x, y, strict=False):
        if text:
            axes.annotate(
                text, (across, at), (aside, 5 if up else -5), textcoords="offset points", fontsize=7,
                ha="left" if aside else "center", va="bottom" if up else "top",
            )  # fmt: skip


def _axis(axes: Any, name: str, said: Any) -> None:
    """Titles, ticks and range of an axis."""
    tell = axes.xaxis if name == "x" else axes.yaxis
    tell.set_label_text(said.title.text or "")
    if said.type == "log":
        getattr(axes, f"set_{name}scale")("log")
    if said.tickvals is not None:
        tell.set_ticks(list(said.tickvals), list(said.ticktext or map(str, said.tickvals)))
        tell.set_ticks([], minor=True)
    if said.range is not None:
        getattr(axes, f"set_{name}lim")(*said.range)
    elif said.rangemode == "tozero":
        getattr(axes, f"set_{name}lim")(**({"left": 0} if name == "x" else {"bottom": 0}))
    if said.showgrid:
        axes.grid(axis=name, color="0.9", linewidth=0.6)
        axes.set_axisbelow(True)
