"""The compare page's charts: lines over the steps of chains that stand beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

import plotly.graph_objects as go

from app.compare.chains import Comparison
from app.shared.audits import SENSITIVE
from app.shared.charts import MONO, plain_layout
from app.shared.format import shown_token
from coft_core.types import Step

SENSITIVITY_HEIGHT = 210
CHAIN_DIVERGENCE_HEIGHT = 170
MARKED_POINTS = 32
LABEL_SHARE = 0.25
MARGIN = {"l": 38, "r": 8, "t": 10, "b": 36}

LINES: tuple[tuple[int, str, str], ...] = (
    (2, "5px,3px", "circle"),
    (3, "solid", "diamond"),
    (7, "2px,3px", "square-open"),
    (6, "8px,3px,2px,3px", "triangle-up-open"),
)
"""By column: the line's place in the template, its dash and its marker."""


Line = tuple[Sequence[int], Sequence[float], Sequence[str]]
"""What a column's line goes through: steps, values, and what stands before each value under the pointer."""


def sensitivity_figure(comparison: Comparison, names: Sequence[str]) -> go.Figure:
    """Log ratio of each column's token over the aligned steps; lines go on over gaps."""
    lines: list[Line] = []
    peaks: list[tuple[int, Step]] = []
    for place, chain in enumerate(comparison.chains[: len(LINES)]):
        shown = [(number, chain.steps[at]) for number, row in enumerate(comparison.rows, 1)
                 if (at := row.steps[place]) is not None]  # fmt: skip
        ratios = [round(step.diagnostics.log_ratio, 4) for _, step in shown]
        lines.append(([number for number, _ in shown], ratios, [shown_token(step.token) for _, step in shown]))
        peaks.extend(_peak(shown))
    layout = plain_layout(SENSITIVITY_HEIGHT, {"l": 38, "r": 8, "t": 14, "b": 36})
    figure = _figure(layout, dict(enumerate(lines)), names, "%{customdata} %{y:+.2f}")
    for label in _labels(peaks, len(comparison.rows)):
        figure.add_annotation(label)
    figure.update_xaxes(**_steps(len(comparison.rows), "aligned step"))
    figure.update_yaxes(nticks=6, zeroline=True)
    return figure


def vanilla_figure(comparison: Comparison, names: Sequence[str]) -> go.Figure:
    """Total variation of each column's distribution from vanilla's after the same prefix, by the column's own steps."""
    shown = [
        [] if chain.own_model else [s for s in chain.steps if s.diagnostics.tv_fused_factual is not None]
        for chain in comparison.chains
    ]
    return _by_own_steps(comparison, names, shown, "tv_fused_factual", "%{customdata} %{y:.3f}")


def chain_divergence_figure(comparison: Comparison, names: Sequence[str]) -> go.Figure:
    """``KL(fused || masked)`` as stored with each step, by the column's own steps."""
    shown = [chain.steps for chain in comparison.chains]
    return _by_own_steps(comparison, names, shown, "kl_fused_masked", "%{customdata} %{y:.3g} nats")


def changed_figure(comparison: Comparison, names: Sequence[str]) -> go.Figure:
    """How many aligned steps have differed from the first column so far, for each other column."""
    lines: dict[int, Line] = {}
    for place in range(1, min(len(comparison.chains), len(LINES))):
        so_far = list(accumulate(int(row.differs[place]) for row in comparison.rows))
        lines[place] = (list(range(1, len(so_far) + 1)), so_far, [str(n) for n in so_far])
    figure = _figure(plain_layout(CHAIN_DIVERGENCE_HEIGHT, MARGIN), lines, names, "%{customdata} so far")
    figure.update_xaxes(**_steps(len(comparison.rows), "aligned step"))
    figure.update_yaxes(nticks=4, rangemode="tozero", tickformat="d")
    return figure


def _by_own_steps(
    comparison: Comparison, names: Sequence[str], shown: Sequence[Sequence[Step]], field: str, hover: str
) -> go.Figure:
    """A figure of each column's diagnostics at its own steps."""
    lines: dict[int, Line] = {}
    for place, steps in enumerate(shown[: len(LINES)]):
        values = [float(f"{getattr(step.diagnostics, field):.4g}") for step in steps]
        lines[place] = ([step.index + 1 for step in steps], values, [shown_token(step.token) for step in steps])
    figure = _figure(plain_layout(CHAIN_DIVERGENCE_HEIGHT, MARGIN), lines, names, hover)
    figure.update_xaxes(**_steps(comparison.longest, "step"))
    figure.update_yaxes(nticks=4, rangemode="tozero")
    return figure


def _figure(layout: go.Layout, lines: Mapping[int, Line], names: Sequence[str], hover: str) -> go.Figure:
    """The lines of columns at their places in the template; empty ones fill the places between."""
    traces = {}
    for place, (x, y, words) in lines.items():
        slot, dash, symbol = LINES[place]
        traces[slot] = go.Scatter(
            name=names[place],
            x=x,
            y=y,
            customdata=words,
            mode="lines+markers",
            line={"dash": dash, "width": 1.6},
            marker={"symbol": symbol, "size": 7, "maxdisplayed": MARKED_POINTS},
            hovertemplate=f"{names[place]}, %{{x}}: {hover}<extra></extra>",
        )
    figure = go.Figure(layout=layout)
    for slot in range(max(traces, default=-1) + 1):
        figure.add_trace(traces.get(slot, go.Scatter(x=[], y=[], hoverinfo="skip")))
    return figure


def _steps(length: int, title: str) -> dict[str, object]:
    return {
        "showgrid": False,
        "range": [0.5, max(length, 8) + 0.5],
        "nticks": 12,
        "tickformat": "d",
        "title": {"text": title, "standoff": 4},
    }


def _peak(shown: Sequence[tuple[int, Step]]) -> list[tuple[int, Step]]:
    """The most sensitive token of a column and its aligned step, if it is sensitive at all."""
    peak = sorted(shown, key=lambda item: -abs(item[1].diagnostics.log_ratio))[:1]
    return [item for item in peak if abs(item[1].diagnostics.log_ratio) >= SENSITIVE]


def _labels(peaks: Sequence[tuple[int, Step]], length: int) -> list[go.layout.Annotation]:
    """Names of the peaks, largest first; one that would run into another is left to the text under the picture."""
    placed: list[int] = []
    labels = []
    for number, step in sorted(peaks, key=lambda item: -abs(item[1].diagnostics.log_ratio)):
        if any(abs(number - other) < LABEL_SHARE * max(length, 8) for other in placed):
            continue
        placed.append(number)
        late = number > 0.7 * max(length, 8)
        labels.append(
            go.layout.Annotation(
                x=number,
                y=step.diagnostics.log_ratio,
                text=shown_token(step.token),
                showarrow=False,
                xanchor="right" if late else "left",
                xshift=-7 if late else 7,
                font={"family": MONO},
            )
        )
    return labels
