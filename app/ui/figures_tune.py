"""The picture of a tuning run: gap against accuracy, a line for each method, its chosen point filled.

As in :mod:`app.ui.figures`, traces hold no colours and take them from the template by their order.
"""

from __future__ import annotations

import plotly.graph_objects as go

from app.services.policy_words import policy_name
from app.services.views.tuning import TunedMethod, TunedPoint, TuningView
from app.ui.figures import plain_layout

HEIGHT = 340
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "star", "hexagon", "cross", "x")
"""Marks of the methods in their order; colour alone tells nobody apart."""


def tuning_figure(view: TuningView) -> go.Figure:
    """Every point of every method; to the left is less gap, higher is more accurate, below the line is not chosen."""
    figure = go.Figure(layout=plain_layout(HEIGHT, {"l": 48, "r": 16, "t": 8, "b": 40}))
    for place, own in enumerate(view.methods):
        if own.points:
            figure.add_trace(_line(own, SYMBOLS[place % len(SYMBOLS)]))
    figure.add_trace(_vanilla(view.vanilla))
    figure.add_hline(y=view.floor, line={"dash": "dot", "width": 1})
    figure.update_xaxes(title={"text": "Gap between groups", "standoff": 6}, rangemode="tozero", showgrid=True)
    figure.update_yaxes(title={"text": "Accuracy", "standoff": 6}, tickformat=".0%", showgrid=True)
    return figure


def _line(own: TunedMethod, symbol: str) -> go.Scatter:
    name = policy_name(own.policy)
    return go.Scatter(
        x=[point.gap[0] for point in own.points],
        y=[point.accuracy[0] for point in own.points],
        mode="lines+markers",
        name=name,
        line={"width": 1},
        marker={"symbol": [symbol if point.chosen else f"{symbol}-open" for point in own.points], "size": 9},
        text=[f"{name}: {values_text(point)}" for point in own.points],
        hovertemplate="%{text}<br>gap %{x:.3f}, accuracy %{y:.1%}<extra></extra>",
    )


def _vanilla(point: TunedPoint) -> go.Scatter:
    return go.Scatter(
        x=[point.gap[0]],
        y=[point.accuracy[0]],
        mode="markers+text",
        text=["vanilla"],
        textposition="bottom center",
        marker={"symbol": "star-open", "size": 12},
        hovertemplate="vanilla<br>gap %{x:.3f}, accuracy %{y:.1%}<extra></extra>",
    )


def values_text(point: TunedPoint) -> str:
    """What was varied, in words."""
    names = {"lam": "λ", "alpha": "α"}
    return ", ".join(f"{names.get(name, name)} {value:g}" for name, value in point.values) or "as it is"
