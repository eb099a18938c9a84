"""Charts of calibrations: thresholds by position, two runs against each other, and drift.

As in :mod:`app.shared.charts`, traces hold no colours and take them from the template by their order; states differ in
dash and marker, so that they are told apart without colour.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from app.shared.charts import plain_layout
from app.shared.format import count, level, table_threshold
from coft_core.conformal.bins import Bin
from coft_core.conformal.coverage import CoverageRow
from coft_core.conformal.drift import DriftReport

THRESHOLDS_HEIGHT = 300
COMPARISON_HEIGHT = 240
DRIFT_HEIGHT = 150
MOST_LABELS = 12

OWN, BORROWED, ASKED, MISSING = 1, 2, 3, 4
"""Places of lines and markers in the template."""

CONTEXTS, RANGE = 0, 3
"""Places of bars in the template."""

DASH = {"calibrated": "solid", "inherited": "2px,3px"}


def thresholds_figure(bins: Sequence[Bin], coverage: Sequence[CoverageRow], asked: float) -> go.Figure:
    """Threshold, coverage and contexts by position, one above the other."""
    figure = go.Figure(layout=plain_layout(THRESHOLDS_HEIGHT, {"l": 44, "r": 6, "t": 20, "b": 24}))
    measured = {row.label: row for row in coverage}
    _slotted(
        figure,
        {
            OWN: _thresholds(bins, "calibrated", "circle"),
            BORROWED: _thresholds(bins, "inherited", "square-open"),
            ASKED: go.Scatter(
                x=[-0.5, len(bins) - 0.5], y=[asked, asked], yaxis="y2", mode="lines", hoverinfo="skip",
                line={"dash": "5px,3px", "width": 1.5},
            ),
            MISSING: _missing(bins),
            OWN + 5: _measured(bins, measured),
        },
    )  # fmt: skip
    _slotted(figure, {CONTEXTS: _contexts(bins), RANGE: _ranges(bins)})
    panels = ((1.0, "threshold τ"), (0.46, "coverage it can give, and measured"), (0.15, "contexts"))
    for top, title in panels:
        _titled(figure, top, title)
    most = max((item.contexts for item in bins), default=1)
    lows = [item.coverage_low for item in bins if item.coverage_low is not None]
    lows += [row.coverage for item in bins if (row := measured.get(item.label)) and row.coverage is not None]
    figure.update_layout(
        barmode="overlay",
        xaxis={**_labels([item.label for item in bins]), "anchor": "y3"},
        yaxis={"domain": [0.56, 1], "rangemode": "tozero", "nticks": 4, "exponentformat": "none"},
        yaxis2={"domain": [0.24, 0.45], "range": [max(0.0, min([asked, *lows]) - 0.03), 1.02], "nticks": 3},
        yaxis3={"domain": [0, 0.12], "range": [0, 1.4 * most], "tickvals": [], "fixedrange": True},
    )
    return figure


def comparison_figure(first: Sequence[Bin], second: Sequence[Bin], first_name: str, second_name: str) -> go.Figure:
    """Thresholds of two calibrations by step: a solid line with dots, and a dashed one with squares."""
    figure = go.Figure(layout=plain_layout(COMPARISON_HEIGHT, {"l": 44, "r": 6, "t": 20, "b": 40}))
    runs = {OWN: _run(first, first_name, "circle", "solid"), ASKED: _run(second, second_name, "square", "6px,4px")}
    _slotted(figure, runs)
    figure.update_xaxes(rangemode="tozero", showgrid=False, nticks=10, title={"text": "step", "standoff": 4})
    figure.update_yaxes(rangemode="tozero", nticks=5, exponentformat="none")
    _titled(figure, 1, "threshold τ")
    return figure


def drift_figure(report: DriftReport) -> go.Figure:
    """Each audit's place among the calibration's own chains, in the order in which they were made."""
    figure = go.Figure(layout=plain_layout(DRIFT_HEIGHT, {"l": 34, "r": 6, "t": 8, "b": 36}))
    places = list(range(1, len(report.p_values) + 1))
    _slotted(
        figure,
        {
            OWN: go.Scatter(
                x=places, y=list(report.p_values), mode="markers", marker={"size": 7, "symbol": "circle"},
                hovertemplate="audit %{x}: %{y:.3f}<extra></extra>",
            ),
            ASKED: go.Scatter(
                x=[0.5, len(places) + 0.5], y=[0.5, 0.5], mode="lines", hoverinfo="skip",
                line={"dash": "5px,3px", "width": 1.5},
            ),
        },
    )  # fmt: skip
    figure.update_xaxes(
        range=[0.5, len(places) + 0.5], showgrid=False, nticks=12, title={"text": "audit, oldest first", "standoff": 4}
    )
    figure.update_yaxes(range=[-0.03, 1.03], tickvals=[0, 0.5, 1])
    return figure


def _slotted(figure: go.Figure, traces: dict[int, go.Scatter | go.Bar]) -> None:
    """Add traces at their places in the template; empty ones fill the places between."""
    kind = type(next(iter(traces.values())))
    for place in range(max(traces) + 1):
        figure.add_trace(traces.get(place) or kind(x=[], y=[], hoverinfo="skip"))


def _titled(figure: go.Figure, top: float, title: str) -> None:
    figure.add_annotation(
        x=0, xref="paper", xanchor="left", y=top, yref="paper", yanchor="bottom", text=title, showarrow=False
    )


def _labels(labels: Sequence[str]) -> dict[str, object]:
    every = -(-len(labels) // MOST_LABELS)
    shown = range(0, len(labels), every) if labels else range(0)
    return {
        "tickmode": "array",
        "tickvals": list(shown),
        "ticktext": [labels[place] for place in shown],
        "range": [-0.5, max(1, len(labels)) - 0.5],
        "showgrid": False,
    }


def _thresholds(bins: Sequence[Bin], state: str, symbol: str) -> go.Scatter:
    """A level line over each bin of a state, with a marker in its middle."""
    x: list[float | None] = []
    y: list[float | None] = []
    sizes: list[int] = []
    told: list[str] = []
    for place, item in enumerate(bins):
        if item.state == state:
            x += [place - 0.42, place, place + 0.42, None]
            y += [item.tau, item.tau, item.tau, None]
            sizes += [0, 9, 0, 0]
            told += [table_threshold(item.tau)] * 4
    return go.Scatter(
        x=x, y=y, mode="lines+markers", line={"dash": DASH[state], "width": 2},
        marker={"symbol": symbol, "size": sizes, "opacity": 1},
        hovertext=told, hovertemplate="τ %{hovertext}, " + state + "<extra></extra>",
    )  # fmt: skip


def _missing(bins: Sequence[Bin]) -> go.Scatter:
    places = [place for place, item in enumerate(bins) if item.state == "uninformative"]
    return go.Scatter(
        x=places, y=[0.0] * len(places), mode="markers+text", text=["none"] * len(places), textposition="top center",
        marker={"symbol": "x", "size": 8}, cliponaxis=False,
        hovertemplate="no threshold that says anything<extra></extra>",
    )  # fmt: skip


def _measured(bins: Sequence[Bin], measured: dict[str, CoverageRow]) -> go.Scatter:
    rows = [(place, measured.get(item.label)) for place, item in enumerate(bins) if item.state == "calibrated"]
    coverages = [(place, row.coverage) for place, row in rows if row is not None and row.coverage is not None]
    return go.Scatter(
        x=[place for place, _ in coverages], y=[value for _, value in coverages], yaxis="y2", mode="markers",
        marker={"symbol": "diamond-open", "size": 9, "line": {"width": 1.6}}, cliponaxis=False,
        hovertemplate="measured %{y:.3f}<extra></extra>",
    )  # fmt: skip


def _contexts(bins: Sequence[Bin]) -> go.Bar:
    return go.Bar(
        x=list(range(len(bins))), y=[item.contexts for item in bins], yaxis="y3", width=0.5,
        text=[count(item.contexts) for item in bins] if len(bins) <= MOST_LABELS else None, textposition="outside",
        hovertext=[count(item.contexts) for item in bins], hovertemplate="%{hovertext} contexts<extra></extra>",
        cliponaxis=False,
    )  # fmt: skip


def _ranges(bins: Sequence[Bin]) -> go.Bar:
    ranges = [
        (place, item.coverage_low, item.coverage_high)
        for place, item in enumerate(bins)
        if item.coverage_low is not None and item.coverage_high is not None
    ]
    return go.Bar(
        x=[place for place, _, _ in ranges],
        base=[low for _, low, _ in ranges],
        y=[high - low for _, low, high in ranges],
        yaxis="y2", width=0.3, opacity=0.55,
        hovertext=[f"{level(low)} to {level(high)}" for _, low, high in ranges],
        hovertemplate="95 % range %{hovertext}<extra></extra>",
    )  # fmt: skip


def _run(bins: Sequence[Bin], name: str, symbol: str, dash: str) -> go.Scatter:
    """One calibration's thresholds by step; open markers are inherited, gaps are bins without a threshold."""
    positioned = [item for item in bins if item.last_step is not None]
    usual = (positioned[0].last_step or 0) - positioned[0].first_step + 1 if positioned else 8
    places = [(item.first_step + 1 + (item.last_step or item.first_step + usual - 1) + 1) / 2 for item in bins]
    shown = [item.state != "uninformative" for item in bins]
    return go.Scatter(
        x=places, y=[item.tau if ok else None for item, ok in zip(bins, shown, strict=True)], mode="lines+markers",
        name=name, line={"dash": dash, "width": 2}, connectgaps=False,
        marker={
            "symbol": [symbol if item.state == "calibrated" else f"{symbol}-open" for item in bins],
            "size": 9, "line": {"width": 1.6},
        },
        hovertext=[f"steps {item.label}: τ {table_threshold(item.tau)}, {item.state}" for item in bins],
        hovertemplate="%{hovertext}<extra></extra>",
    )  # fmt: skip


HISTOGRAM_HEIGHT = 220


def support_histogram(
    log_values: Sequence[float], tau: float, tau_text: str, support: str = "lower probability"
) -> go.Figure:
    """Support of the true tokens on a log scale, with the threshold."""
    lowest = math.log10(max(min((math.exp(v) for v in log_values), default=1e-3), 1e-6))
    first = max(-6.0, math.floor(lowest))
    logs = [max(first, value / math.log(10)) for value in log_values]
    size = (0.0 - first) / 27
    counts = [0] * 27
    for value in logs:
        counts[min(26, int((value - first) / size))] += 1
    places = [first + (i + 0.5) * size for i in range(27)]
    limit = math.log10(tau) if tau > 0 else -math.inf
    above = [n if x >= limit else 0 for n, x in zip(counts, places, strict=True)]
    below = [n if x < limit else 0 for n, x in zip(counts, places, strict=True)]
    figure = go.Figure(layout=plain_layout(HISTOGRAM_HEIGHT, {"l": 38, "r": 6, "t": 20, "b": 40}))
    # the template colours bars by their order: the first and third place stay empty here
    for name, values in (("", []), ("under the threshold", below), ("", []), ("at or over the threshold", above)):
        figure.add_bar(
            x=places[: len(values)], y=values, name=name, width=size * 0.9,
            hovertemplate="%{y} " + name + "<extra></extra>",
        )  # fmt: skip
    figure.update_layout(barmode="stack")
    ticks = list(range(int(first), 1))
    figure.update_xaxes(
        tickmode="array",
        tickvals=ticks,
        ticktext=[f"{10.0**t:.{-t}f}" for t in ticks],
        range=[first, 0.02],
        showgrid=False,
        title={"text": f"{support} of the true next token, log scale", "standoff": 8},
    )
    figure.update_yaxes(rangemode="tozero", nticks=4)
    if tau > 0:
        under = sum(1 for value in log_values if value < math.log(tau))
        figure.add_vline(x=limit, line={"dash": "5px,3px", "width": 1.5})
        figure.add_annotation(
            x=limit,
            y=1,
            yref="paper",
            # Above the bars, which reach the top.
            yanchor="bottom",
            xanchor="right" if limit > first / 2 else "left",
            text=f"<b>τ {tau_text}</b>, {under:,} fall below",
            showarrow=False,
        )
    return figure
