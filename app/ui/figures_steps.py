"""Frames of the audit page's pictures: axes and margins, to which the browser adds what the steps say.

The series are drawn from the steps that the page holds already, so that no picture asks the server.
"""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from app.ui.figures import plain_layout

STRIP_HEIGHT = 92
SCATTER_HEIGHT = 320
DIVERGENCE_HEIGHT = 190
MARGIN_HEIGHT = 150


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
    figure = go.Figure(layout=plain_layout(DIVERGENCE_HEIGHT, {"l": 54, "r": 8, "t": 8, "b": 20}))
    figure.update_layout(
        bargap=0.38,
        xaxis={"showgrid": False, "dtick": 8, "tick0": 1, "anchor": "y2"},
        yaxis={"domain": [0.53, 1], "rangemode": "tozero", "nticks": 3, "title": {"text": "KL, nats"}},
        yaxis2={
            "domain": [0, 0.42],
            "range": [0, 1.08],
            "tickvals": [0, 0.5, 1],
            "title": {"text": "TV", "standoff": 4},
        },
    )
    return figure


def margin_figure() -> go.Figure:
    """How far each token's joint support lies above or under its threshold, in nats, by step."""
    figure = go.Figure(layout=plain_layout(MARGIN_HEIGHT, {"l": 54, "r": 8, "t": 8, "b": 20}))
    figure.update_layout(
        bargap=0.38,
        xaxis={"showgrid": False, "dtick": 8, "tick0": 1, "showline": False},
        yaxis={"nticks": 4, "zeroline": True, "zerolinewidth": 1.5, "title": {"text": "nats", "standoff": 4}},
    )
    return figure


def frames() -> dict[str, dict[str, Any]]:
    """Layout of each picture without its template, by the picture's name, as plain JSON."""
    figures = {
        "strip": strip_figure(),
        "scatter": scatter_figure(),
        "divergence": divergence_figure(),
        "margin": margin_figure(),
    }
    return {name: _without_template(figure.layout.to_plotly_json()) for name, figure in figures.items()}


def _without_template(layout: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in layout.items() if key != "template"}
