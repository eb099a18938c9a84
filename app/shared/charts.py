"""The pages' charts: Plotly figures without colours, and one template of colours for light and for dark.

Traces take their colours from the template by their order, so that a change of theme swaps the template alone.
Fonts are fixed at 11 px, because a chart grows with its box and its text must not.
"""

from __future__ import annotations

import re
from typing import Any

import plotly.graph_objects as go

from coft_core.assets import assets_path

_CSS = assets_path("base", "base.css").read_text("utf-8").split("html:has(> body.dark)")
_COLOURS = ("text", "text-2", "text-3", "line", "control", "surface", "surface-2", "accent", "accent-tint", "signal",
            "caution", "data-2")  # fmt: skip


def _palette(css: str) -> dict[str, str]:
    found = dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]{6})", css))
    return {name: found[name] for name in _COLOURS}


PALETTES = {"light": _palette(_CSS[0]), "dark": _palette("".join(_CSS))}
"""The chart colours, which are those of the pages."""

SANS = "-apple-system, BlinkMacSystemFont, Segoe UI, Roboto, Helvetica Neue, Noto Sans, Liberation Sans, Arial"
MONO = "SF Mono, Cascadia Mono, Menlo, Consolas, DejaVu Sans Mono, Liberation Mono, monospace"
FONT_SIZE = 11
CANDIDATES_HEIGHT = 188
STEPS_HEIGHT = 150

CONFIG = {"displayModeBar": False, "responsive": True, "doubleClick": False, "showTips": False}


def template(mode: str) -> dict[str, object]:
    """Colours of one theme (``light`` or ``dark``), as Plotly's template in plain JSON."""
    c = PALETTES[mode]
    axis = {
        "gridcolor": c["line"],
        "linecolor": c["control"],
        "zerolinecolor": c["control"],
        "tickcolor": c["control"],
        "tickfont": {"color": c["text-3"]},
        "title": {"font": {"color": c["text-3"], "size": FONT_SIZE}},
    }
    factual = {"marker": {"color": c["surface"], "line": {"color": c["text-2"], "width": 1.2}}}
    masked = {
        "marker": {
            "color": c["data-2"],
            "line": {"color": c["data-2"], "width": 1},
            "pattern": {"shape": "/", "size": 5, "solidity": 0.35, "fgcolor": c["data-2"], "bgcolor": c["surface"]},
        }
    }
    fused = {"marker": {"color": c["accent"], "line": {"color": c["accent"], "width": 1}}}
    plain = {"marker": {"color": c["data-2"], "line": {"color": c["data-2"], "width": 1}}}
    return {
        "data": {
            "bar": [factual, masked, fused, plain],
            "scatter": [
                {"line": {"color": c["text"]}, "marker": {"color": c["caution"]}},
                {"line": {"color": c["text"]}, "marker": {"color": c["text"]}},
                {"line": {"color": c["text-2"]}, "marker": {"color": c["text-2"]}},
                {"line": {"color": c["accent"]}, "marker": {"color": c["accent"]}},
                {"line": {"color": c["caution"]}, "marker": {"color": c["caution"]}},
            ],
        },
        "layout": {
            "font": {"family": SANS, "size": FONT_SIZE, "color": c["text-3"]},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "xaxis": axis,
            "yaxis": axis,
            "shapedefaults": {"line": {"color": c["text"]}},
            "annotationdefaults": {"font": {"color": c["text"], "size": FONT_SIZE}},
            "hoverlabel": {"bgcolor": c["surface"], "bordercolor": c["control"], "font": {"color": c["text"]}},
        },
    }


def candidates_figure() -> go.Figure:
    """Grouped bars of a step's candidates in the three views, and the threshold."""
    figure = go.Figure(layout=plain_layout(CANDIDATES_HEIGHT, {"l": 34, "r": 4, "t": 12, "b": 22}))
    figure.update_layout(barmode="group", bargap=0.24, bargroupgap=0.1)
    figure.update_xaxes(tickmode="array", tickfont={"family": MONO, "size": FONT_SIZE}, showgrid=False)
    figure.update_yaxes(rangemode="tozero", nticks=5, tickformat=".2~f")
    return figure


def steps_figure() -> go.Figure:
    """Certified-set size (bars, above) and threshold (line, below) by step."""
    return _by_step(
        STEPS_HEIGHT,
        {"l": 34, "r": 4, "t": 6, "b": 20},
        xaxis={"anchor": "y2"},
        yaxis={"domain": [0.42, 1], "rangemode": "tozero", "nticks": 3},
        yaxis2={"domain": [0, 0.27], "rangemode": "tozero", "nticks": 2},
    )


def plain_layout(height: int, margin: dict[str, int]) -> go.Layout:
    """What all charts have in common: no legend, no zoom, the light template until the page swaps it."""
    return go.Layout(
        template=template("light"),
        height=height,
        margin=margin,
        showlegend=False,
        dragmode=False,
        font={"family": SANS, "size": FONT_SIZE},
        xaxis={"fixedrange": True, "showline": True},
        yaxis={"fixedrange": True},
        yaxis2={"fixedrange": True},
    )


STRIP_HEIGHT = 92
SCATTER_HEIGHT = 320
DIVERGENCE_HEIGHT = 190
MARGIN_HEIGHT = 150


def _by_step(height: int, margin: dict[str, int], xaxis: dict[str, Any], **layout: Any) -> go.Figure:
    """A chart of a chain's steps, counted from 1."""
    figure = go.Figure(layout=plain_layout(height, margin))
    figure.update_layout(bargap=0.38, xaxis={"showgrid": False, "dtick": 8, "tick0": 1, **xaxis}, **layout)
    return figure


def strip_figure() -> go.Figure:
    """The chain as a strip of cells, one a step; the row above marks which way a sensitive token moves."""
    figure = go.Figure(layout=plain_layout(STRIP_HEIGHT, {"l": 8, "r": 8, "t": 6, "b": 20}))
    figure.update_layout(
        xaxis={"showgrid": False, "dtick": 8, "tick0": 1, "showline": False},
        yaxis={"visible": False, "range": [-0.5, 1.3]},
    )
    return figure


def scatter_figure() -> go.Figure:
    """A step's candidates by their probability as typed and masked, both on a log scale."""
    figure = go.Figure(layout=plain_layout(SCATTER_HEIGHT, {"l": 52, "r": 8, "t": 10, "b": 40}))
    axis = {"type": "log", "tickmode": "array", "zeroline": False}
    figure.update_layout(
        xaxis={**axis, "title": {"text": "factual probability, log scale", "standoff": 6}},
        yaxis={**axis, "showline": True, "title": {"text": "masked probability, log scale", "standoff": 4}},
    )
    return figure


def divergence_figure() -> go.Figure:
    """KL(fused || masked) above, total variation on the certified set and its bound below, by step."""
    return _by_step(
        DIVERGENCE_HEIGHT,
        {"l": 54, "r": 8, "t": 8, "b": 20},
        xaxis={"anchor": "y2"},
        yaxis={"domain": [0.53, 1], "rangemode": "tozero", "nticks": 3, "title": {"text": "KL, nats"}},
        yaxis2={
            "domain": [0, 0.42], "range": [0, 1.08], "tickvals": [0, 0.5, 1], "title": {"text": "TV", "standoff": 4},
        },
    )  # fmt: skip


def margin_figure() -> go.Figure:
    """How far each token's joint support lies above or under its threshold, in nats, by step."""
    return _by_step(
        MARGIN_HEIGHT,
        {"l": 54, "r": 8, "t": 8, "b": 20},
        xaxis={"showline": False},
        yaxis={"nticks": 4, "zeroline": True, "zerolinewidth": 1.5, "title": {"text": "nats", "standoff": 4}},
    )


def frames() -> dict[str, dict[str, Any]]:
    """Layout of each picture without its template, by the picture's name, as plain JSON."""
    figures = {
        "candidates": candidates_figure(),
        "steps": steps_figure(),
        "strip": strip_figure(),
        "scatter": scatter_figure(),
        "divergence": divergence_figure(),
        "margin": margin_figure(),
    }
    return {
        name: {key: value for key, value in figure.layout.to_plotly_json().items() if key != "template"}
        for name, figure in figures.items()
    }
