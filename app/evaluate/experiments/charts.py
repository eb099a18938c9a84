"""Pictures of an experiment's tables: the front of a sweep, miscoverage by level and by length, speed by method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import plotly.graph_objects as go

from app.evaluate import words
from app.evaluate.charts import (
    AROUND,
    DASHED,
    LEGEND,
    MARGIN,
    ROW,
    SYMBOLS,
    add_diagonal,
    add_marks,
    bars,
    framed,
    interval_bars,
    name_lines,
)
from app.evaluate.experiments.grid import Chains, Curves, Front, Levels, Picture, Speeds, Value
from coft_core.experiments.choice import Point
from coft_core.suites.base import Figure

HEIGHT = 340
LINES: dict[str, Any] = {"mode": "lines+markers", "line": {"width": 1}, "size": 9}


def picture_figure(picture: Picture) -> go.Figure:
    """The figure of a table's picture."""
    if isinstance(picture, Front):
        return _front(picture)
    if isinstance(picture, Levels):
        return _levels(picture)
    if isinstance(picture, Chains):
        return _chains(picture)
    if isinstance(picture, Curves):
        return _curves(picture)
    return _scaling(picture) if picture.size else _speed(picture)


def _framed(across: str, up: str) -> go.Figure:
    return framed(HEIGHT, AROUND, across, up, legend=True)


def _said(value: Value | Figure) -> str:
    """A number with its interval or deviation, for a tooltip."""
    digits = words.digits_for([value.value])
    deviation = value.deviation if isinstance(value, Value) else None
    spread = f" ± {words.number(deviation, digits)}" if deviation is not None else ""
    interval = words.interval(value.low, value.high, digits)
    counted = f", n = {value.n:,}" if value.n else ""
    return f"{words.number(value.value, digits)}{spread}{f' {interval}' if interval else ''}{counted}"


def _front(picture: Front) -> go.Figure:
    """Bias against utility of swept values: to the left is less biased, higher is more useful.

    Bars are one standard deviation over seeds, or with a single seed the intervals over units.
    Values on the front are joined; those that another one beats, and those that cannot be chosen, have marks of their
    own, and rings mark the knee and what was chosen.
    """
    figure, found = _framed("BiasAvg, less is better", "UtilityAvg, more is better"), picture.selection
    on = {point.value: here for point, here in zip(found.points, found.on_front, strict=True)}
    joined = sorted((point for point in found.points if on[point.value]), key=lambda point: point.bias.value or 0.0)
    figure.add_scatter(
        name="Pareto front", mode="lines", line={"dash": DASHED, "width": 1}, hoverinfo="skip", **_at(joined)
    )
    eligible = [point for point in found.points if point.value < 1]
    for name, symbol, points in (
        ("on the front", "circle", [point for point in eligible if on[point.value]]),
        ("beaten by another value", "square-open", [point for point in eligible if not on[point.value]]),
        ("not eligible", "x-open", [point for point in found.points if point.value >= 1]),
    ):
        if points:
            both = [
                [Value.of_figure(own, deviation) for own, deviation in zip(figures, point.deviations, strict=True)]
                for point in points
                for figures in [(point.bias, point.utility)]
            ]
            hover = [
                f"{picture.knob} {point.value:g}, {name}<br>bias {_said(bias)}<br>utility {_said(utility)}"
                for point, (bias, utility) in zip(points, both, strict=True)
            ]
            add_marks(
                figure, name, hover=hover, symbol=symbol, size=9, mode="markers+text", text=_labels(points),
                textposition="top right", error_x=_seed_bars([bias for bias, _ in both]),
                error_y=_seed_bars([utility for _, utility in both]), **_at(points),
            )  # fmt: skip
    for name, symbol, size, value in (
        ("knee", "diamond-open", 17, found.knee.knee), ("chosen", "circle-open", 24, found.knee.chosen),
    ):  # fmt: skip
        ringed = [point for point in found.points if value is not None and point.value == value]
        mark = {"size": size, "symbol": symbol}
        if ringed:
            figure.add_scatter(name=name, mode="markers", hoverinfo="skip", marker=mark, **_at(ringed))
    figure.update_layout(legend={**LEGEND, "itemsizing": "constant"})
    return figure


def _seed_bars(values: Sequence[Value]) -> dict[str, Any]:
    """Bars of one standard deviation over seeds where all have one, else to the ends of the intervals."""
    if any(own.deviation is None for own in values):
        return interval_bars(values)
    return bars([(own.deviation or 0.0, own.deviation or 0.0) for own in values])


def _at(points: Sequence[Point]) -> dict[str, Any]:
    return {"x": [point.bias.value for point in points], "y": [point.utility.value for point in points]}


def _labels(points: Sequence[Point]) -> list[str]:
    """The value beside each point; the first of points in the same place has the values of all of them."""
    at: dict[tuple[float | None, float | None], list[str]] = {}
    for point in points:
        at.setdefault((point.bias.value, point.utility.value), []).append(f"{point.value:g}")
    return [", ".join(at.pop((point.bias.value, point.utility.value), [])) for point in points]


def _levels(picture: Levels) -> go.Figure:
    """Miscoverage against the level that was asked for; on the diagonal it is just that level."""
    figure = _framed("risk level alpha", "measured miscoverage")
    points = [*picture.measured.items(), *picture.published.items()]
    top = 1.1 * max([0.05, *(alpha for alpha, _ in points), *(missed.value or 0.0 for _, missed in points)])
    add_diagonal(figure, top, hoverinfo="skip")
    _add_shares(figure, "measured", "circle", picture.measured, "alpha {:g}, measured")
    if picture.published:
        name = f"paper, {picture.source}"
        _add_shares(figure, name, "square-open", picture.published, f"alpha {{:g}}, {name}")
    figure.update_xaxes(range=[0, top])
    figure.update_yaxes(rangemode="tozero")
    return figure


def _add_shares(figure: go.Figure, name: str, symbol: str, shares: Mapping[Any, Value], named: str) -> None:
    """Shares with bars of one standard deviation over seeds, cut at 0 and 1."""
    hover = [f"{named.format(place)}: {_said(own)}" for place, own in shares.items()]
    spread = [(own.value or 0.0, own.deviation or 0.0) for own in shares.values()]
    ends = [(min(width, value), min(width, 1 - value)) for value, width in spread]
    add_marks(figure, name, shares, (own.value for own in shares.values()), hover, symbol, error_y=bars(ends), **LINES)


def _chains(picture: Chains) -> go.Figure:
    """Miscoverage of whole chains against their length, a mark a level, whose broken line is what was asked for."""
    figure = _framed("length of the chain, steps", "share of chains that miss")
    for (alpha, missed), symbol in zip(picture.levels.items(), cycle(SYMBOLS), strict=False):
        _add_shares(figure, f"alpha {alpha:g}", symbol, missed, f"alpha {alpha:g}, {{}} steps")
        figure.add_hline(y=alpha, line={"dash": "2px,4px", "width": 1})
        figure.add_annotation(
            x=1, xref="paper", xanchor="right", y=alpha, yanchor="bottom", text=f"asked {alpha:g}", showarrow=False
        )
    lengths = sorted({steps for missed in picture.levels.values() for steps in missed})
    figure.update_xaxes(tickmode="array", tickvals=lengths)
    figure.update_yaxes(rangemode="tozero")
    return figure


def _curves(picture: Curves) -> go.Figure:
    """A share against a size, a mark a method, with bars of one standard deviation over seeds."""
    figure = _framed(picture.across, picture.up)
    for (label, points), symbol in zip(picture.series.items(), cycle(SYMBOLS), strict=False):
        _add_shares(figure, label, symbol, points, f"{label}, {{:g}}")
    sizes = sorted({size for points in picture.series.values() for size in points})
    figure.update_xaxes(tickmode="array", tickvals=sizes)
    return figure


def _speed(picture: Speeds) -> go.Figure:
    """Tokens a second of every method with the range over rounds, and its overhead beside it; the first one on top."""
    ((title, points),) = picture.series.items()
    figure = framed(2 * ROW * len(points) + 60, MARGIN, f"{title}, more is better")
    speeds = [speed for speed, _ in points.values()]
    hover = [f"{name}: {_said(speed)} tokens a second" for name, (speed, _) in points.items()]
    add_marks(
        figure, title, (own.value for own in speeds), range(len(points)), hover, size=9, mode="markers+text",
        error_x=interval_bars(speeds, width=4), textposition="top center",
        text=[_overhead(own) for _, own in points.values()],
    )  # fmt: skip
    figure.update_xaxes(rangemode="tozero")
    name_lines(figure, list(points), top=-0.7)
    return figure


def _scaling(picture: Speeds) -> go.Figure:
    """Tokens a second against a size, a mark a method; bands are one deviation over rounds, bars their range."""
    figure = _framed(picture.size, "tokens a second")
    for (label, points), symbol, dash in zip(
        picture.series.items(), cycle(SYMBOLS), cycle(("solid", DASHED)), strict=False
    ):
        speeds = [speed for speed, _ in points.values()]
        hover = [f"{label}, {size}: {_said(speed)} tokens a second" for size, (speed, _) in points.items()]
        add_marks(
            figure, label, map(float, points), (own.value for own in speeds), hover, symbol, 9,
            mode="lines+markers+text", line={"width": 1, "dash": dash}, error_y=interval_bars(speeds),
            text=[_overhead(own) for _, own in points.values()], textposition="bottom center",
        )  # fmt: skip
    for label, points in picture.series.items():
        _add_band(figure, f"{label} ± one standard deviation", {float(at): speed for at, (speed, _) in points.items()})
    sizes = list(dict.fromkeys(size for points in picture.series.values() for size in points))
    figure.update_xaxes(type="log", tickmode="array", tickvals=list(map(float, sizes)), ticktext=sizes)
    figure.update_yaxes(rangemode="tozero")
    return figure


def _add_band(figure: go.Figure, name: str, values: Mapping[float, Value]) -> None:
    """Shade what lies within one standard deviation of values that have one, in a grey for both themes."""
    spread = [(x, own.value, own.deviation) for x, own in values.items() if own.value and own.deviation is not None]
    if spread:
        x = [at for at, _, _ in spread]
        ends = [value + width for _, value, width in spread], [value - width for _, value, width in spread]
        figure.add_scatter(
            name=name, x=[*x, *reversed(x)], y=[*ends[0], *reversed(ends[1])], fill="toself", mode="lines",
            fillcolor="rgba(128,128,128,0.22)", line={"width": 0}, hoverinfo="skip", showlegend=False,
        )  # fmt: skip


def _overhead(slower: Value | None) -> str:
    if slower is None or slower.value is None:
        return ""
    return f"{words.number(abs(slower.value), 1)} % {'slower' if slower.value >= 0 else 'faster'}"
