"""Pictures of an experiment's tables: the front of a sweep, miscoverage by level and by length, speed by method."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import plotly.graph_objects as go

from app.evaluate import words
from app.evaluate.charts import MARGIN, ROW, SYMBOLS, shortened
from app.evaluate.experiment_figures import Value
from app.evaluate.experiment_pictures import (
    ChainsPicture,
    FrontPicture,
    LevelPoint,
    LevelsPicture,
    Picture,
    SpeedPicture,
    SpeedPoint,
    SweptPoint,
)
from app.shared.charts import plain_layout

HEIGHT = 340

LEGEND = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}

DASHES = ("solid", "5px,3px")
"""Lines of methods, in turn."""

AROUND = {"l": 60, "r": 12, "t": 8, "b": 42}


def picture_figure(picture: Picture) -> go.Figure:
    """The figure of a table's picture."""
    if isinstance(picture, FrontPicture):
        return front_figure(picture)
    if isinstance(picture, LevelsPicture):
        return levels_figure(picture)
    if isinstance(picture, ChainsPicture):
        return chains_figure(picture)
    return speed_figure(picture) if not picture.size else scaling_figure(picture)


def _framed(height: int, across: str, up: str) -> go.Figure:
    figure = go.Figure(layout=plain_layout(height, AROUND))
    figure.update_xaxes(title={"text": across, "standoff": 6}, showgrid=True)
    figure.update_yaxes(title={"text": up, "standoff": 6}, showgrid=True)
    figure.update_layout(showlegend=True, legend=LEGEND)
    return figure


def _numbers(values: Sequence[Value]) -> list[float | None]:
    return [value.value for value in values]


def _interval(values: Sequence[Value]) -> dict[str, Any]:
    """Bars to the ends of the intervals."""
    ends = [
        (0.0, 0.0) if own.value is None or own.low is None or own.high is None
        else (max(own.value - own.low, 0.0), max(own.high - own.value, 0.0))
        for own in values
    ]  # fmt: skip
    below, above = [low for low, _ in ends], [high for _, high in ends]
    return {"type": "data", "symmetric": False, "thickness": 1, "width": 3, "array": above, "arrayminus": below}


def _deviation(values: Sequence[Value]) -> dict[str, Any]:
    """Bars of one standard deviation of shares over seeds, cut at 0 and 1."""
    spread = [(own.value or 0.0, own.deviation or 0.0) for own in values]
    above, below = [min(width, 1 - value) for value, width in spread], [min(width, value) for value, width in spread]
    return {"type": "data", "symmetric": False, "thickness": 1, "width": 3, "array": above, "arrayminus": below}


def _said(value: Value) -> str:
    """A number with its interval or deviation, for a tooltip."""
    digits = words.digits_for([value.value])
    spread = f" ± {words.number(value.deviation, digits)}" if value.deviation is not None else ""
    interval = words.interval(value.low, value.high, digits)
    counted = f", n = {value.n:,}" if value.n else ""
    return f"{words.number(value.value, digits)}{spread}{f' {interval}' if interval else ''}{counted}"


# Sweeps.


def front_figure(picture: FrontPicture) -> go.Figure:
    """Bias against utility of swept values with both intervals: to the left is less biased, higher is more useful.

    Values on the front are joined; those that another one beats, and those that cannot be chosen, have marks of their
    own, and rings mark the knee and what was chosen.
    """
    figure = _framed(HEIGHT, "BiasAvg, less is better", "UtilityAvg, more is better")
    front = sorted((point for point in picture.points if point.on_front), key=lambda point: point.bias.value or 0.0)
    figure.add_scatter(
        name="Pareto front", mode="lines", line={"dash": "5px,3px", "width": 1}, hoverinfo="skip",
        x=_numbers([point.bias for point in front]), y=_numbers([point.utility for point in front]),
    )  # fmt: skip
    parts = (
        ("on the front", "circle", [own for own in picture.points if own.eligible and own.on_front]),
        (
            "beaten by another value",
            "square-open",
            [own for own in picture.points if own.eligible and not own.on_front],
        ),
        ("not eligible", "x-open", [own for own in picture.points if not own.eligible]),
    )
    for name, symbol, points in parts:
        if points:
            _add_points(figure, picture.knob, name, symbol, points)
    for name, symbol, size, value in (
        ("knee", "diamond-open", 17, picture.knee), ("chosen", "circle-open", 24, picture.chosen),
    ):  # fmt: skip
        ringed = [point for point in picture.points if value is not None and point.value == value]
        figure.add_scatter(
            name=name, mode="markers", hoverinfo="skip", marker={"size": size, "symbol": symbol},
            x=_numbers([point.bias for point in ringed]), y=_numbers([point.utility for point in ringed]),
        )  # fmt: skip
    figure.update_layout(legend={**LEGEND, "itemsizing": "constant"})
    return figure


def _add_points(figure: go.Figure, knob: str, name: str, symbol: str, points: Sequence[SweptPoint]) -> None:
    bias, utility = [point.bias for point in points], [point.utility for point in points]
    figure.add_scatter(
        name=name, mode="markers+text", x=_numbers(bias), y=_numbers(utility),
        text=_labels(points), textposition="top right",
        marker={"size": 9, "symbol": symbol}, error_x=_interval(bias), error_y=_interval(utility),
        hovertext=[
            f"{knob} {point.value:g}, {name}<br>bias {_said(point.bias)}<br>utility {_said(point.utility)}"
            for point in points
        ],
        hovertemplate="%{hovertext}<extra></extra>",
    )  # fmt: skip


def _labels(points: Sequence[SweptPoint]) -> list[str]:
    """The value beside each point; those of points in the same place stand together beside the first of them."""
    at: dict[tuple[float | None, float | None], list[str]] = {}
    for point in points:
        at.setdefault((point.bias.value, point.utility.value), []).append(f"{point.value:g}")
    return [", ".join(at.pop((point.bias.value, point.utility.value), [])) for point in points]


# Coverage.


def levels_figure(picture: LevelsPicture) -> go.Figure:
    """Miscoverage against the level that was asked for; on the diagonal it is just that level."""
    figure = _framed(HEIGHT, "risk level alpha", "measured miscoverage")
    points = [*picture.points, *picture.published]
    top = 1.1 * max([0.05, *(point.alpha for point in points), *(point.missed.value or 0.0 for point in points)])
    _add_asked(figure, [0.0, top])
    _add_levels(figure, "measured", "circle", picture.points)
    if picture.published:
        _add_levels(figure, f"paper, {picture.source}", "square-open", picture.published)
    figure.update_xaxes(range=[0, top])
    figure.update_yaxes(rangemode="tozero")
    return figure


def _add_asked(figure: go.Figure, ends: Sequence[float]) -> None:
    figure.add_scatter(
        name="as asked", x=list(ends), y=list(ends), mode="lines", line={"dash": "5px,3px", "width": 1},
        hoverinfo="skip",
    )  # fmt: skip


def _add_levels(figure: go.Figure, name: str, symbol: str, points: Sequence[LevelPoint]) -> None:
    missed = [point.missed for point in points]
    figure.add_scatter(
        name=name, x=[point.alpha for point in points], y=_numbers(missed), mode="lines+markers",
        line={"width": 1}, marker={"size": 9, "symbol": symbol}, error_y=_deviation(missed),
        hovertext=[f"alpha {point.alpha:g}, {name}: {_said(point.missed)}" for point in points],
        hovertemplate="%{hovertext}<extra></extra>",
    )  # fmt: skip


def chains_figure(picture: ChainsPicture) -> go.Figure:
    """Miscoverage of whole chains against their length, a mark a level, whose broken line is what was asked for."""
    figure = _framed(HEIGHT, "length of the chain, steps", "share of chains that miss")
    lengths = sorted({point.steps for points in picture.levels.values() for point in points})
    for (alpha, points), symbol in zip(picture.levels.items(), cycle(SYMBOLS), strict=False):
        measured = [(point.steps, point.missed) for point in points if point.missed is not None]
        missed = [own for _, own in measured]
        figure.add_scatter(
            name=f"alpha {alpha:g}", x=[steps for steps, _ in measured], y=_numbers(missed), mode="lines+markers",
            line={"width": 1}, marker={"size": 9, "symbol": symbol}, error_y=_deviation(missed),
            hovertext=[f"alpha {alpha:g}, {steps} steps: {_said(own)}" for steps, own in measured],
            hovertemplate="%{hovertext}<extra></extra>",
        )  # fmt: skip
        figure.add_hline(y=alpha, line={"dash": "2px,4px", "width": 1})
        figure.add_annotation(
            x=1, xref="paper", xanchor="right", y=alpha, yanchor="bottom", text=f"asked {alpha:g}", showarrow=False
        )
    figure.update_xaxes(tickmode="array", tickvals=lengths)
    figure.update_yaxes(rangemode="tozero")
    return figure


# Speed.


def speed_figure(picture: SpeedPicture) -> go.Figure:
    """Tokens a second of every method with the range over rounds, and its overhead beside it; the first one on top."""
    ((title, points),) = picture.series.items()
    figure = go.Figure(layout=plain_layout(2 * ROW * len(points) + 60, MARGIN))
    speeds = [point.speed for point in points]
    figure.add_scatter(
        name=title, x=_numbers(speeds), y=list(range(len(points))), mode="markers+text",
        marker={"size": 9}, error_x={**_interval(speeds), "width": 4}, textposition="top center",
        text=[_overhead(point) for point in points],
        hovertext=[f"{point.name}: {_said(point.speed)} tokens a second" for point in points],
        hovertemplate="%{hovertext}<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(title={"text": f"{title}, more is better", "standoff": 6}, rangemode="tozero", showgrid=True)
    figure.update_yaxes(
        tickmode="array", tickvals=list(range(len(points))), ticktext=[shortened(point.name) for point in points],
        range=[len(points) - 0.5, -0.7], showgrid=False, zeroline=False,
    )  # fmt: skip
    return figure


def _overhead(point: SpeedPoint) -> str:
    if point.overhead is None or point.overhead.value is None:
        return ""
    slower = point.overhead.value
    return f"{words.number(abs(slower), 1)} % {'slower' if slower >= 0 else 'faster'}"


def scaling_figure(picture: SpeedPicture) -> go.Figure:
    """Tokens a second against a size, a mark a method with the range over rounds."""
    figure = _framed(HEIGHT, picture.size, "tokens a second")
    for (label, points), symbol, dash in zip(picture.series.items(), cycle(SYMBOLS), cycle(DASHES), strict=False):
        speeds = [point.speed for point in points]
        figure.add_scatter(
            name=label, x=[float(point.name) for point in points], y=_numbers(speeds), mode="lines+markers+text",
            line={"width": 1, "dash": dash}, marker={"size": 9, "symbol": symbol}, error_y=_interval(speeds),
            text=[_overhead(point) for point in points], textposition="bottom center",
            hovertext=[f"{label}, {point.name}: {_said(point.speed)} tokens a second" for point in points],
            hovertemplate="%{hovertext}<extra></extra>",
        )  # fmt: skip
    sizes = [point.name for points in picture.series.values() for point in points]
    figure.update_xaxes(type="log", tickmode="array", tickvals=list(map(float, sizes)), ticktext=sizes)
    figure.update_yaxes(rangemode="tozero")
    return figure
