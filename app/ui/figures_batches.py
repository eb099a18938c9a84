"""Charts of batches: means by group with their intervals.

As in :mod:`app.ui.figures`, traces hold no colours and take them from the template by their order.
"""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from app.services.views.batches import GroupTotals
from app.ui.figures import plain_layout
from app.ui.presenters_impact import MEASURES, chosen, group_name

ROW_HEIGHT = 30
FRAME_HEIGHT = 58
LONGEST_NAME = 22
CHARACTER_WIDTH = 6.5
INTERVALS, DOTS = 2, 3
"""Places of both traces in the template."""


def totals_figure(groups: Sequence[GroupTotals], measure: str) -> go.Figure:
    """A dot for each group's mean and a line for its interval; a mean without an interval is an open square.

    Args:
        groups: Totals by group, drawn from the top.
        measure: Which of their means.
    """
    names = [_short(group_name(group.group)) for group in groups]
    left = 16 + CHARACTER_WIDTH * max((len(name) for name in names), default=4)
    figure = go.Figure(layout=plain_layout(figure_height(len(groups)), {"l": round(left), "r": 16, "t": 8, "b": 40}))
    empty = {"x": [], "y": [], "hoverinfo": "skip"}
    for trace in (go.Scatter(empty), go.Scatter(empty), _intervals(groups, measure), _dots(groups, measure)):
        figure.add_trace(trace)
    share = measure == "certified_share"
    figure.update_xaxes(
        title={"text": MEASURES[measure], "standoff": 6}, tickformat=".0%" if share else None, nticks=6, showgrid=True,
        range=_share_range(groups) if share else None,
    )  # fmt: skip
    figure.update_yaxes(
        tickmode="array", tickvals=list(range(len(names))), ticktext=names, showgrid=False, zeroline=False,
        range=[len(names) - 0.5, -0.5],
    )  # fmt: skip
    return figure


def figure_height(groups: int) -> int:
    """Height in pixels for a number of groups."""
    return FRAME_HEIGHT + ROW_HEIGHT * max(1, groups)


def _share_range(groups: Sequence[GroupTotals]) -> list[float]:
    """From a little below the lowest value to 100 %, beyond which no share goes."""
    found = [chosen(group, "certified_share") for group in groups]
    least = min((value for item in found for value in (item.low, item.mean) if value is not None), default=0.0)
    return [max(0.0, least - 0.05), 1.02]


def _intervals(groups: Sequence[GroupTotals], measure: str) -> go.Scatter:
    x: list[float | None] = []
    y: list[float | None] = []
    for place, group in enumerate(groups):
        item = chosen(group, measure)
        if item.low is not None and item.high is not None:
            x += [item.low, item.high, None]
            y += [place, place, None]
    return go.Scatter(
        x=x, y=y, mode="lines+markers", line={"width": 1.6}, hoverinfo="skip",
        marker={"symbol": "line-ns-open", "size": 9, "line": {"width": 1.6}},
    )  # fmt: skip


def _dots(groups: Sequence[GroupTotals], measure: str) -> go.Scatter:
    found = [(place, chosen(group, measure), group) for place, group in enumerate(groups)]
    known = [(place, item, group) for place, item, group in found if item.mean is not None]
    return go.Scatter(
        x=[item.mean for _, item, _ in known],
        y=[place for place, _, _ in known],
        mode="markers",
        marker={
            "size": 9, "line": {"width": 1.6},
            "symbol": ["circle" if item.low is not None else "square-open" for _, item, _ in known],
        },
        hovertext=[_told(group_name(group.group), item.mean, item.low, item.high) for _, item, group in known],
        hovertemplate="%{hovertext}<extra></extra>",
        cliponaxis=False,
    )  # fmt: skip


def _told(name: str, mean: float | None, low: float | None, high: float | None) -> str:
    between = "no interval" if low is None or high is None else f"{low:.3g} to {high:.3g}"
    return f"{name}: {mean:.3g} ({between})"


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
