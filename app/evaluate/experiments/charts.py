"""Pictures of an experiment's tables: the front of a sweep, miscoverage by level and by length, speed by method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import plotly.graph_objects as go

from app.evaluate import words
from app.evaluate.charts import MARGIN, ROW, SYMBOLS, shortened
from app.evaluate.experiments.grid import Chains, Front, Levels, Picture, Speeds, Value
from app.shared.charts import plain_layout
from coft_core.experiments.choice import Point
from coft_core.suites.base import Figure

HEIGHT = 340
LEGEND = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}
AROUND = {"l": 60, "r": 12, "t": 8, "b": 42}
DASHED = "5px,3px"


def picture_figure(picture: Picture) -> go.Figure:
    """The figure of a table's picture."""
    if isinstance(picture, Front):
        return _front(picture)
    if isinstance(picture, Levels):
        return _levels(picture)
    if isinstance(picture, Chains):
        return _chains(picture)
    return _scaling(picture) if picture.size else _speed(picture)


def _framed(across: str, up: str) -> go.Figure:
    figure = go.Figure(layout=plain_layout(HEIGHT, AROUND))
    figure.update_xaxes(title={"text": across, "standoff": 6}, showgrid=True)
    figure.update_yaxes(title={"text": up, "standoff": 6}, showgrid=True)
    figure.update_layout(showlegend=True, legend=LEGEND)
    return figure


def _add(
    figure: go.Figure, name: str, x: Sequence[Any], y: Sequence[Any], symbol: str, hover: Sequence[str], **more: Any
) -> None:
    """A trace whose marks are told apart by more than colour."""
    told = {"mode": "lines+markers", "line": {"width": 1}} | more
    figure.add_scatter(
        name=name, x=list(x), y=list(y), marker={"size": 9, "symbol": symbol}, hovertext=list(hover),
        hovertemplate="%{hovertext}<extra></extra>", **told,
    )  # fmt: skip


def _bars(ends: Sequence[tuple[float, float]], width: int = 3) -> dict[str, Any]:
    """Bars that reach so far below and above."""
    below, above = [low for low, _ in ends], [high for _, high in ends]
    return {"type": "data", "symmetric": False, "thickness": 1, "width": width, "array": above, "arrayminus": below}


def _interval(values: Sequence[Value | Figure], width: int = 3) -> dict[str, Any]:
    """Bars to the ends of the intervals."""
    return _bars([
        (0.0, 0.0) if own.value is None or own.low is None or own.high is None
        else (max(own.value - own.low, 0.0), max(own.high - own.value, 0.0))
        for own in values
    ], width)  # fmt: skip


def _deviation(values: Sequence[Value]) -> dict[str, Any]:
    """Bars of one standard deviation of shares over seeds, cut at 0 and 1."""
    spread = [(own.value or 0.0, own.deviation or 0.0) for own in values]
    return _bars([(min(width, value), min(width, 1 - value)) for value, width in spread])


def _said(value: Value | Figure) -> str:
    """A number with its interval or deviation, for a tooltip."""
    digits = words.digits_for([value.value])
    deviation = value.deviation if isinstance(value, Value) else None
    spread = f" ± {words.number(deviation, digits)}" if deviation is not None else ""
    interval = words.interval(value.low, value.high, digits)
    counted = f", n = {value.n:,}" if value.n else ""
    return f"{words.number(value.value, digits)}{spread}{f' {interval}' if interval else ''}{counted}"


def _front(picture: Front) -> go.Figure:
    """Bias against utility of swept values with both intervals: to the left is less biased, higher is more useful.

    Values on the front are joined; those that another one beats, and those that cannot be chosen, have marks of their
    own, and rings mark the knee and what was chosen.
    """
    figure, found = _framed("BiasAvg, less is better", "UtilityAvg, more is better"), picture.selection
    on = {point.value: here for point, here in zip(found.points, found.on_front, strict=True)}
    joined = sorted((point for point in found.points if on[point.value]), key=lambda point: point.bias.value or 0.0)
    figure.add_scatter(
        name="Pareto front", mode="lines", line={"dash": DASHED, "width": 1}, hoverinfo="skip",
        x=[point.bias.value for point in joined], y=[point.utility.value for point in joined],
    )  # fmt: skip
    eligible = [point for point in found.points if point.value < 1]
    for name, symbol, points in (
        ("on the front", "circle", [point for point in eligible if on[point.value]]),
        ("beaten by another value", "square-open", [point for point in eligible if not on[point.value]]),
        ("not eligible", "x-open", [point for point in found.points if point.value >= 1]),
    ):
        if points:
            bias, utility = [point.bias for point in points], [point.utility for point in points]
            hover = [
                f"{picture.knob} {point.value:g}, {name}<br>bias {_said(point.bias)}<br>utility {_said(point.utility)}"
                for point in points
            ]
            _add(
                figure, name, [own.value for own in bias], [own.value for own in utility], symbol, hover, line=None,
                mode="markers+text", text=_labels(points), textposition="top right", error_x=_interval(bias),
                error_y=_interval(utility),
            )  # fmt: skip
    for name, symbol, size, value in (
        ("knee", "diamond-open", 17, found.knee.knee), ("chosen", "circle-open", 24, found.knee.chosen),
    ):  # fmt: skip
        ringed = [point for point in found.points if value is not None and point.value == value]
        figure.add_scatter(
            name=name, mode="markers", hoverinfo="skip", marker={"size": size, "symbol": symbol},
            x=[point.bias.value for point in ringed], y=[point.utility.value for point in ringed],
        )  # fmt: skip
    figure.update_layout(legend={**LEGEND, "itemsizing": "constant"})
    return figure


def _labels(points: Sequence[Point]) -> list[str]:
    """The value beside each point; those of points in the same place stand together beside the first of them."""
    at: dict[tuple[float | None, float | None], list[str]] = {}
    for point in points:
        at.setdefault((point.bias.value, point.utility.value), []).append(f"{point.value:g}")
    return [", ".join(at.pop((point.bias.value, point.utility.value), [])) for point in points]


def _levels(picture: Levels) -> go.Figure:
    """Miscoverage against the level that was asked for; on the diagonal it is just that level."""
    figure = _framed("risk level alpha", "measured miscoverage")
    points = [*picture.measured.items(), *picture.published.items()]
    top = 1.1 * max([0.05, *(alpha for alpha, _ in points), *(missed.value or 0.0 for _, missed in points)])
    figure.add_scatter(
        name="as asked", x=[0.0, top], y=[0.0, top], mode="lines", line={"dash": DASHED, "width": 1}, hoverinfo="skip"
    )
    series = {"measured": ("circle", picture.measured)}
    if picture.published:
        series[f"paper, {picture.source}"] = ("square-open", picture.published)
    for name, (symbol, missed) in series.items():
        _add_shares(figure, name, symbol, missed, [f"alpha {alpha:g}, {name}" for alpha in missed])
    figure.update_xaxes(range=[0, top])
    figure.update_yaxes(rangemode="tozero")
    return figure


def _add_shares(figure: go.Figure, name: str, symbol: str, shares: Mapping[Any, Value], named: Sequence[str]) -> None:
    hover = [f"{title}: {_said(own)}" for title, own in zip(named, shares.values(), strict=True)]
    numbers, bars = [own.value for own in shares.values()], _deviation(list(shares.values()))
    _add(figure, name, list(shares), numbers, symbol, hover, error_y=bars)


def _chains(picture: Chains) -> go.Figure:
    """Miscoverage of whole chains against their length, a mark a level, whose broken line is what was asked for."""
    figure = _framed("length of the chain, steps", "share of chains that miss")
    for (alpha, missed), symbol in zip(picture.levels.items(), cycle(SYMBOLS), strict=False):
        _add_shares(figure, f"alpha {alpha:g}", symbol, missed, [f"alpha {alpha:g}, {steps} steps" for steps in missed])
        figure.add_hline(y=alpha, line={"dash": "2px,4px", "width": 1})
        figure.add_annotation(
            x=1, xref="paper", xanchor="right", y=alpha, yanchor="bottom", text=f"asked {alpha:g}", showarrow=False
        )
    lengths = sorted({steps for missed in picture.levels.values() for steps in missed})
    figure.update_xaxes(tickmode="array", tickvals=lengths)
    figure.update_yaxes(rangemode="tozero")
    return figure


def _speed(picture: Speeds) -> go.Figure:
    """Tokens a second of every method with the range over rounds, and its overhead beside it; the first one on top."""
    ((title, points),) = picture.series.items()
    figure = go.Figure(layout=plain_layout(2 * ROW * len(points) + 60, MARGIN))
    speeds = [speed for speed, _ in points.values()]
    places = list(range(len(points)))
    hover = [f"{name}: {_said(speed)} tokens a second" for name, (speed, _) in points.items()]
    _add(
        figure, title, [own.value for own in speeds], places, "circle", hover, line=None, mode="markers+text",
        error_x=_interval(speeds, 4), textposition="top center", text=[_overhead(own) for _, own in points.values()],
    )  # fmt: skip
    figure.update_xaxes(title={"text": f"{title}, more is better", "standoff": 6}, rangemode="tozero", showgrid=True)
    figure.update_yaxes(
        tickmode="array", tickvals=places, ticktext=[shortened(name) for name in points],
        range=[len(points) - 0.5, -0.7], showgrid=False, zeroline=False,
    )  # fmt: skip
    return figure


def _scaling(picture: Speeds) -> go.Figure:
    """Tokens a second against a size, a mark a method with the range over rounds."""
    figure = _framed(picture.size, "tokens a second")
    for (label, points), symbol, dash in zip(
        picture.series.items(), cycle(SYMBOLS), cycle(("solid", DASHED)), strict=False
    ):
        speeds = [speed for speed, _ in points.values()]
        _add(
            figure, label, list(map(float, points)), [own.value for own in speeds], symbol,
            [f"{label}, {size}: {_said(speed)} tokens a second" for size, (speed, _) in points.items()],
            mode="lines+markers+text", line={"width": 1, "dash": dash}, error_y=_interval(speeds),
            text=[_overhead(own) for _, own in points.values()], textposition="bottom center",
        )  # fmt: skip
    sizes = list(dict.fromkeys(size for points in picture.series.values() for size in points))
    figure.update_xaxes(type="log", tickmode="array", tickvals=list(map(float, sizes)), ticktext=sizes)
    figure.update_yaxes(rangemode="tozero")
    return figure


def _overhead(slower: Value | None) -> str:
    if slower is None or slower.value is None:
        return ""
    return f"{words.number(abs(slower.value), 1)} % {'slower' if slower.value >= 0 else 'faster'}"
