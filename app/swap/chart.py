"""The chart of an attribute swap: a candidate's probability in every variant, one panel a reading on a common scale."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from app.shared.charts import FONT_SIZE, MONO, plain_layout
from app.shared.format import shown_token
from app.swap.types import SwapResult, SwapToken

LETTERS = "ABCDEFGHIJKL"
"""What variants are called in charts and tables, in their order."""

SYMBOLS = (
    "circle", "diamond-open", "triangle-up", "square-open", "cross", "circle-open", "diamond", "triangle-up-open",
    "square", "x-open", "star", "hexagon-open",
)  # fmt: skip
SHOWN = 10
"""Candidates that are drawn: those that differ most in the visible reading."""

LEAST = 0.005
"""Only the table has candidates that are less likely than this everywhere."""

ROW_HEIGHT = 26
TITLE_HEIGHT = 24
LONGEST_TOKEN = 12
LONGEST_NAME = 28
MARGIN = {"l": 96, "r": 10, "t": 66, "b": 40}
GAP = 0.03
SLOTS = (1, 3, 2, 0)
"""Places in the template's five lines and markers: text, accent, second text, caution."""
BLOCK = 5
RANGES = 2
"""Place of the lines that join a candidate's marks."""


def drawn_tokens(result: SwapResult) -> tuple[SwapToken, ...]:
    """The candidates that the chart shows: those that differ most, and of them only what is visible on its scale."""
    likely = [token for token in result.tokens if _most(token) >= LEAST]
    return tuple(likely[:SHOWN] or result.tokens[:SHOWN])


def swap_figure(result: SwapResult, titles: Sequence[str]) -> go.Figure:
    """The chart; ``titles`` are those of its panels."""
    tokens = drawn_tokens(result)
    rows = max(3, len(tokens))
    most = max(map(_most, tokens), default=1.0)
    width = (1 - GAP * (len(titles) - 1)) / max(1, len(titles))
    figure = go.Figure(layout=plain_layout(MARGIN["t"] + MARGIN["b"] + ROW_HEIGHT * rows, MARGIN))
    for panel, (view, title) in enumerate(zip(result.views, titles, strict=True)):
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
            text=f"<b>{title}</b>",
        )  # fmt: skip
        figure.add_traces(_panel(result, tokens, view, f"x{axis}"))
    figure.add_annotation(
        x=0.5, xref="paper", y=0, yref="paper", yshift=-24, yanchor="top", showarrow=False,
        text=f"probability of token {result.answer_step + 1}",
    )  # fmt: skip
    figure.update_layout(
        showlegend=True,
        legend={
            "orientation": "h", "x": 0, "xanchor": "left", "y": 1 + TITLE_HEIGHT / (ROW_HEIGHT * rows),
            "yanchor": "bottom", "itemclick": False, "itemdoubleclick": False, "bgcolor": "rgba(0,0,0,0)",
        },
        yaxis={
            "autorange": False, "range": [rows - 0.4, -0.6], "fixedrange": True, "showgrid": True, "zeroline": False,
            "tickfont": {"family": MONO, "size": FONT_SIZE}, "tickmode": "array", "tickvals": list(range(len(tokens))),
            "ticktext": [_short(shown_token(token.token), LONGEST_TOKEN) for token in tokens],
        },
    )  # fmt: skip
    return figure


def _panel(result: SwapResult, tokens: tuple[SwapToken, ...], view: str, axis: str) -> list[go.Scatter]:
    """The lines and marks of one panel, at their places in the template."""
    total = BLOCK * (2 + (len(result.outcomes) - 1) // len(SLOTS))
    traces = [go.Scatter(x=[], y=[], hoverinfo="skip", showlegend=False) for _ in range(total)]
    ends = [(min(token.probabilities[view]), max(token.probabilities[view]), None) for token in tokens]
    traces[RANGES] = go.Scatter(
        x=[end for each in ends for end in each],
        y=[end for row in range(len(tokens)) for end in (row, row, None)],
        xaxis=axis,
        mode="lines",
        line={"width": 1.2},
        hoverinfo="skip",
        showlegend=False,
    )
    for number, outcome in enumerate(result.outcomes):
        name = f"{LETTERS[number]}  {_short(outcome.variant.label, LONGEST_NAME)}"
        traces[BLOCK * (1 + number // len(SLOTS)) + SLOTS[number % len(SLOTS)]] = go.Scatter(
            x=[token.probabilities[view][number] for token in tokens],
            y=list(range(len(tokens))),
            xaxis=axis,
            mode="markers",
            name=name,
            legendgroup=name,
            legendrank=number + 1,
            showlegend=axis == "x",
            marker={"symbol": SYMBOLS[number], "size": 9, "line": {"width": 1.6}},
            hovertemplate=f"{outcome.variant.label} %{{x:.4f}}<extra></extra>",
        )
    return traces


def _most(token: SwapToken) -> float:
    return max(value for values in token.probabilities.values() for value in values)


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
