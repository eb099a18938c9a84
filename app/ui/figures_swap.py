"""The chart of an attribute swap: one panel a reading, a row a candidate, a mark a variant.

As in :mod:`app.ui.figures`, traces hold no colours and take them from the template by their order. Variants differ in
the shape of their marks, so that they are told apart without colour.
"""

from __future__ import annotations

import plotly.graph_objects as go

from app.services.views.swaps import SwapResult, SwapToken
from app.ui.figures import FONT_SIZE, MONO, plain_layout
from app.ui.presenters_format import shown_token
from app.ui.presenters_swap_form import LETTERS
from app.ui.presenters_swap_readings import view_name

SYMBOLS = (
    "circle", "diamond-open", "triangle-up", "square-open", "cross", "circle-open", "diamond", "triangle-up-open",
    "square", "x-open", "star", "hexagon-open",
)  # fmt: skip
SHOWN = 10
"""Candidates that are drawn: those that differ most in the visible reading."""

LEAST = 0.005
"""Candidates that are less likely than this everywhere stand in the table alone."""

ROW_HEIGHT = 26
TITLE_HEIGHT = 24
LONGEST_NAME = 28
MARGIN = {"l": 96, "r": 10, "t": 66, "b": 40}
GAP = 0.03
SLOTS = (1, 3, 2, 0)
"""Places in the template's five lines and markers: text, accent, second text, caution."""
BLOCK = 5
RANGES = 2
"""Place of the lines that join a candidate's marks."""


def swap_figure(result: SwapResult) -> go.Figure:
    """A candidate's probability in every variant, one panel a reading on a common scale."""
    tokens = drawn_tokens(result)
    figure = empty_swap_figure(len(tokens))
    most = max((value for token in tokens for view in result.views for value in token.of(view)), default=1.0)
    width = (1 - GAP * (len(result.views) - 1)) / max(1, len(result.views))
    for panel, view in enumerate(result.views):
        axis = "" if panel == 0 else str(panel + 1)
        left = panel * (width + GAP)
        figure.update_layout(
            {
                f"xaxis{axis}": {
                    "domain": [left, left + width], "range": [-0.03 * most, most * 1.08], "nticks": 4, "anchor": "y",
                    "fixedrange": True, "showline": True, "tickformat": ".2~f", "zeroline": False,
                }
            }
        )  # fmt: skip
        figure.add_annotation(
            x=left, xref="paper", xanchor="left", y=1, yref="paper", yanchor="bottom", yshift=4, showarrow=False,
            text=f"<b>{view_name(result, view)[0]}</b>",
        )  # fmt: skip
        _panel(figure, result, tokens, view, f"x{axis}", first=panel == 0)
    names = [_short(shown_token(token.token)) for token in tokens]
    figure.update_yaxes(tickmode="array", tickvals=list(range(len(tokens))), ticktext=names)
    figure.add_annotation(
        x=0.5, xref="paper", y=0, yref="paper", yshift=-24, yanchor="top", showarrow=False,
        text=f"probability of token {result.answer_step + 1}",
    )  # fmt: skip
    return figure


def drawn_tokens(result: SwapResult) -> tuple[SwapToken, ...]:
    """The candidates that the chart shows: those that differ most, and of them only what is visible on its scale."""
    likely = [t for t in result.tokens if max(value for view in result.views for value in t.of(view)) >= LEAST]
    return tuple(likely[:SHOWN] or result.tokens[:SHOWN])


def empty_swap_figure(rows: int = 3) -> go.Figure:
    """The chart before there is a comparison."""
    shown = max(3, rows)
    figure = go.Figure(layout=plain_layout(MARGIN["t"] + MARGIN["b"] + ROW_HEIGHT * shown, MARGIN))
    figure.update_layout(
        showlegend=True,
        legend={
            "orientation": "h", "x": 0, "xanchor": "left", "y": 1 + TITLE_HEIGHT / (ROW_HEIGHT * shown),
            "yanchor": "bottom", "itemclick": False, "itemdoubleclick": False, "bgcolor": "rgba(0,0,0,0)",
        },
        yaxis={
            "autorange": False, "range": [shown - 0.4, -0.6], "fixedrange": True, "showgrid": True, "zeroline": False,
            "tickfont": {"family": MONO, "size": FONT_SIZE},
        },
    )  # fmt: skip
    return figure


def _panel(
    figure: go.Figure, result: SwapResult, tokens: tuple[SwapToken, ...], view: str, axis: str, first: bool
) -> None:
    """The lines and marks of one panel, at their places in the template."""
    traces: dict[int, go.Scatter] = {RANGES: _ranges(tokens, view, axis)}
    for number, outcome in enumerate(result.outcomes):
        name = f"{LETTERS[number]}  {_short(outcome.variant.label, LONGEST_NAME)}"
        place = BLOCK * (1 + number // len(SLOTS)) + SLOTS[number % len(SLOTS)]
        traces[place] = go.Scatter(
            x=[token.of(view)[number] for token in tokens],
            y=list(range(len(tokens))),
            xaxis=axis,
            mode="markers",
            name=name,
            legendgroup=name,
            legendrank=number + 1,
            showlegend=first,
            marker={"symbol": SYMBOLS[number], "size": 9, "line": {"width": 1.6}},
            hovertemplate=f"{outcome.variant.label} %{{x:.4f}}<extra></extra>",
        )
    total = BLOCK * (2 + (len(result.outcomes) - 1) // len(SLOTS))
    for place in range(total):
        figure.add_trace(traces.get(place) or go.Scatter(x=[], y=[], hoverinfo="skip", showlegend=False))


def _ranges(tokens: tuple[SwapToken, ...], view: str, axis: str) -> go.Scatter:
    """A thin line from each candidate's lowest to its highest mark."""
    x: list[float | None] = []
    y: list[float | None] = []
    for row, token in enumerate(tokens):
        values = token.of(view)
        x += [min(values), max(values), None]
        y += [row, row, None]
    return go.Scatter(x=x, y=y, xaxis=axis, mode="lines", line={"width": 1.2}, hoverinfo="skip", showlegend=False)


def _short(name: str, most: int = 12) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
