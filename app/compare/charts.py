"""The compare page's charts: lines over the steps of chains that stand beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import plotly.graph_objects as go

from app.compare.types import Comparison
from app.shared.audits import SENSITIVE
from app.shared.charts import MONO, plain_layout
from app.shared.step_words import shown_token
from coft_core.types import Step

SENSITIVITY_HEIGHT = 210
CHAIN_DIVERGENCE_HEIGHT = 170
MARKED_POINTS = 32
LABEL_SHARE = 0.25

LINES: tuple[tuple[int, str, str], ...] = (
    (2, "5px,3px", "circle"),
    (3, "solid", "diamond"),
    (7, "2px,3px", "square-open"),
    (6, "8px,3px,2px,3px", "triangle-up-open"),
)
"""By column: the line's place in the template, its dash and its marker."""


def sensitivity_figure(comparison: Comparison, names: Sequence[str]) -> go.Figure:
    """Log ratio of each column's token over the aligned steps; lines go on over gaps."""
    figure = go.Figure(layout=plain_layout(SENSITIVITY_HEIGHT, {"l": 38, "r": 8, "t": 14, "b": 36}))
    traces: list[tuple[int, go.Scatter]] = []
    peaks: list[tuple[int, Step]] = []
    for place, chain in enumerate(comparison.chains[: len(LINES)]):
        shown = [(number, chain.steps[at]) for number, row in enumerate(comparison.rows, 1)
                 if (at := row.steps[place]) is not None]  # fmt: skip
        traces.append(
            _line(
                place,
                names[place],
                [number for number, _ in shown],
                [round(step.diagnostics.log_ratio, 4) for _, step in shown],
                [shown_token(step.token) for _, step in shown],
                "%{customdata} %{y:+.2f}",
            )
        )
        peaks.extend(_peak(shown))
    _slotted(figure, traces)
    for label in _labels(peaks, len(comparison.rows)):
        figure.add_annotation(label)
    figure.update_xaxes(**_steps(len(comparison.rows), "aligned step"))
    figure.update_yaxes(nticks=6, zeroline=True)
    return figure


def vanilla_figure(comparison: Comparison, names: Sequence[str]) -> go.Figure:
    """Total variation of each column's distribution from vanilla's after the same prefix, by the column's own steps."""
    figure = go.Figure(layout=plain_layout(CHAIN_DIVERGENCE_HEIGHT, {"l": 38, "r": 8, "t": 10, "b": 36}))
    traces = []
    for place, chain in enumerate(comparison.chains[: len(LINES)]):
        shown = [] if chain.own_model else [s for s in chain.steps if s.diagnostics.tv_fused_factual is not None]
        steps = [step.index + 1 for step in shown]
        values = [float(f"{step.diagnostics.tv_fused_factual:.4g}") for step in shown]
        words = [shown_token(step.token) for step in shown]
        traces.append(_line(place, names[place], steps, values, words, "%{customdata} %{y:.3f}"))
    _slotted(figure, traces)
    figure.update_xaxes(**_steps(len(comparison.divergence), "step"))
    figure.update_yaxes(nticks=4, rangemode="tozero")
    return figure


def chain_divergence_figure(comparison: Comparison, names: Sequence[str]) -> go.Figure:
    """``KL(fused || masked)`` as stored with each step, by the column's own steps."""
    figure = go.Figure(layout=plain_layout(CHAIN_DIVERGENCE_HEIGHT, {"l": 38, "r": 8, "t": 10, "b": 36}))
    _slotted(
        figure,
        [
            _line(
                place,
                names[place],
                [step.index + 1 for step in chain.steps],
                [float(f"{step.diagnostics.kl_fused_masked:.4g}") for step in chain.steps],
                [shown_token(step.token) for step in chain.steps],
                "%{customdata} %{y:.3g} nats",
            )
            for place, chain in enumerate(comparison.chains[: len(LINES)])
        ],
    )
    figure.update_xaxes(**_steps(len(comparison.divergence), "step"))
    figure.update_yaxes(nticks=4, rangemode="tozero")
    return figure


def changed_figure(comparison: Comparison, names: Sequence[str]) -> go.Figure:
    """How many aligned steps have differed from the first column so far, for each other column."""
    figure = go.Figure(layout=plain_layout(CHAIN_DIVERGENCE_HEIGHT, {"l": 38, "r": 8, "t": 10, "b": 36}))
    places = list(range(1, len(comparison.rows) + 1))
    traces = []
    for place in range(1, min(len(comparison.chains), len(LINES))):
        so_far = list(accumulate(int(row.differs[place]) for row in comparison.rows))
        traces.append(_line(place, names[place], places, so_far, [str(n) for n in so_far], "%{customdata} so far"))
    _slotted(figure, traces)
    figure.update_xaxes(**_steps(len(comparison.rows), "aligned step"))
    figure.update_yaxes(nticks=4, rangemode="tozero", tickformat="d")
    return figure


def _line(
    place: int, name: str, x: Sequence[int], y: Sequence[float], words: Sequence[str], hover: str
) -> tuple[int, go.Scatter]:
    slot, dash, symbol = LINES[place]
    return slot, go.Scatter(
        name=name,
        x=list(x),
        y=list(y),
        customdata=list(words),
        mode="lines+markers",
        line={"dash": dash, "width": 1.6},
        marker={"symbol": symbol, "size": 7, "maxdisplayed": MARKED_POINTS},
        hovertemplate=f"{name}, %{{x}}: {hover}<extra></extra>",
    )


def _slotted(figure: go.Figure, traces: Sequence[tuple[int, go.Scatter]]) -> None:
    """Add traces at their places in the template; empty ones fill the places between."""
    by_slot = dict(traces)
    for slot in range(max(by_slot, default=-1) + 1):
        figure.add_trace(by_slot.get(slot, go.Scatter(x=[], y=[], hoverinfo="skip")))


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
    found = sorted(shown, key=lambda item: -abs(item[1].diagnostics.log_ratio))[:1]
    return [item for item in found if abs(item[1].diagnostics.log_ratio) >= SENSITIVE]


def _labels(peaks: Sequence[tuple[int, Step]], length: int) -> list[go.layout.Annotation]:
    """Names of the peaks, largest first; one that would run into another is left to the text under the picture."""
    placed: list[int] = []
    found = []
    for number, step in sorted(peaks, key=lambda item: -abs(item[1].diagnostics.log_ratio)):
        if any(abs(number - other) < LABEL_SHARE * max(length, 8) for other in placed):
            continue
        placed.append(number)
        late = number > 0.7 * max(length, 8)
        found.append(
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
    return found
