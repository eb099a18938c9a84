"""What the tuning page says of sets and runs, as markup."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import plotly.graph_objects as go

from app.jobs.service import ENDED
from app.shared.charts import plain_layout
from app.shared.format import percentage
from app.shared.markup import html, laid_out
from app.shared.policies import info_of, policy_name
from app.tune.runs import TunedMethod, TunedPoint, TuningView
from app.tune.sets import TuningSet


def calibrated_sentence(view: TuningView) -> str:
    """Whether COFT was certified while it was tuned, and what the calibration rests on."""
    if not view.calibrated_on:
        return "COFT without certification"
    # Other methods that could certify take other calibrations than those that are made here.
    others = any(method.policy != "coft" and info_of(method.policy).certifies for method in view.methods)
    rest = "; the other methods without certification" if others else ""
    if view.calibration_source == "reference":
        return f"COFT calibrated on the references of {view.calibrated_on} at every lambda{rest}"
    return (
        f"COFT calibrated at every lambda on rollouts, what it writes itself on the prompts of {view.calibrated_on} "
        f"in up to {view.settings.max_new_tokens} steps at alpha {view.settings.alpha:g}; other levels are read "
        f"off the same texts{rest}"
    )


def sampling_sentence(view: TuningView) -> str:
    """The sampling controls that the figures hold at."""
    settings = view.settings
    cuts = [f"top-p {settings.top_p:g}"] if settings.top_p < 1 else []
    cuts += [f"top-k {settings.top_k}"] if settings.top_k else []
    return ", ".join([f"temperature {settings.temperature:g}", *cuts])


def none_sentence(method: TunedMethod, floor: float) -> str:
    """Why no point of a complete sweep was chosen; empty where one was, or where nothing was measured."""
    if method.error or not method.points or method.best is not None:
        return ""
    name = policy_name(method.policy)
    if all(point.accuracy[0] < floor for point in method.points):
        return f"{name}: none, no point keeps enough accuracy."
    return f"{name}: none, no point that keeps enough accuracy has a smaller gap than the model alone beyond noise."


def tuning_finding(view: TuningView) -> str:
    """Which method leaves the smallest gap at its best, with its interval; empty for a run that ended early."""
    if not view.complete:
        return ""
    chosen = [(method, method.best) for method in view.methods if method.best is not None]
    if not chosen:
        return "No method narrows the gap between groups beyond noise and keeps 95 % of the accuracy."
    method, best = min(chosen, key=lambda pair: pair[1].gap[0])
    gap, accuracy = best.gap, best.accuracy[0]
    return (
        f"{policy_name(method.policy)} ({values_text(best)}) leaves the smallest gap: {figure_text(gap)} instead of "
        f"{figure_text(view.vanilla.gap)}, with {percentage(accuracy)} right answers instead of "
        f"{percentage(view.vanilla.accuracy[0])}."
    )


def figure_text(measured: tuple[float, float, float]) -> str:
    """A figure with its interval."""
    mean, low, high = measured
    return f"{mean:.3f} [{low:.3f}, {high:.3f}]"


def kept_sentence(view: TuningView) -> str:
    """What is kept of a run that ended early, and that nothing is chosen from it; empty for a complete one."""
    if view.complete:
        return ""
    swept = [method for method in view.methods if not method.error]
    counted = ", ".join(f"{policy_name(m.policy)} {len(m.points)} of {m.planned}" for m in swept)
    return (
        f"This run {ENDED.get(view.status, view.status)} after {view.measured} of {view.planned} points ({counted}). "
        "The points that are kept were measured on all prompts. None is chosen, because a choice needs every point; "
        "run it again for one."
    )


HEIGHT = 368
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "star", "hexagon", "cross", "x")
"""Marks of the methods in their order; colour is not all that tells them apart."""


def tuning_figure(view: TuningView) -> go.Figure:
    """Every point of every method; to the left is less gap, higher is more accurate, below the line is not chosen."""
    figure = go.Figure(layout=plain_layout(HEIGHT, {"l": 48, "r": 16, "t": 36, "b": 40}))
    for method, symbol in zip(view.methods, cycle(SYMBOLS), strict=False):
        if method.points:
            figure.add_trace(_line(method, symbol))
    figure.add_scatter(
        x=[view.vanilla.gap[0]],
        y=[view.vanilla.accuracy[0]],
        mode="markers+text",
        name="the model alone (vanilla)",
        text=["vanilla"],
        textposition="bottom center",
        marker={"symbol": "star-open", "size": 12},
        hovertemplate="vanilla<br>gap %{x:.3f}, accuracy %{y:.1%}<extra></extra>",
    )
    # Above the points, where no point can lie under it.
    figure.update_layout(showlegend=True, legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"})
    figure.add_hline(y=view.floor, line={"dash": "dot", "width": 1})
    figure.update_xaxes(title={"text": "Gap between groups", "standoff": 6}, rangemode="tozero", showgrid=True)
    figure.update_yaxes(title={"text": "Accuracy", "standoff": 6}, tickformat=".0%", showgrid=True)
    return figure


def _line(method: TunedMethod, symbol: str) -> go.Scatter:
    name = policy_name(method.policy)
    return go.Scatter(
        x=[point.gap[0] for point in method.points],
        y=[point.accuracy[0] for point in method.points],
        mode="lines+markers",
        name=name,
        line={"width": 1},
        marker={"symbol": [symbol if point.chosen else f"{symbol}-open" for point in method.points], "size": 9},
        text=[f"{name}: {values_text(point)}" for point in method.points],
        hovertemplate="%{text}<br>gap %{x:.3f}, accuracy %{y:.1%}<extra></extra>",
    )


def values_text(point: TunedPoint) -> str:
    """What was varied, in words."""
    names = {"lam": "λ", "alpha": "α"}
    return ", ".join(f"{names.get(name, name)} {value:g}" for name, value in point.values) or "as it is"


EMPTY = (
    '<p class="sub">Nothing is tuned yet. Upload prompts with right answers, or take the sample; choose methods and '
    "press <strong>Run</strong>. What is found can be used in audits.</p>"
)
MARKS = {
    "circle": "●", "square": "■", "diamond": "◆", "triangle-up": "▲", "triangle-down": "▼", "star": "★",
    "hexagon": "⬢", "cross": "✚", "x": "✖",
}  # fmt: skip
"""The picture's marks as characters."""


def read_set(tuning_set: TuningSet) -> str:
    """What is in a set."""
    return html(
        '<p class="hint tnum">{{ set.filename }}: {{ set.graded | plural("prompt") }} with a right answer, '
        '{{ set.pairs | plural("pair") }}.</p>',
        set=tuning_set,
    )


def time_sentence(seconds: float | None) -> str:
    """How long a run would take; None where the model is not loaded, so that nothing was tried."""
    if seconds is None:
        return html('<p class="hint">How long it takes is said once the model is loaded.</p>')
    return html(
        '<p class="hint tnum">Takes {{ seconds | duration }} on this computer; a calibration comes on top.</p>',
        seconds=seconds,
    )


def runs_list(runs: Sequence[TuningView], shown: int | None) -> str:
    """Runs that have ended, newest first."""
    return laid_out("tune/runs.html", runs=runs, shown=shown, found=found_text)


def found_text(view: TuningView) -> str:
    """What a run has chosen, in a list of runs."""
    if not view.complete:
        ended = ENDED.get(view.status, view.status)
        return f"{ended}, {view.measured} of {view.planned} points, nothing chosen"
    chosen = [f"{policy_name(m.policy)} {values_text(m.best)}" for m in view.methods if m.best]
    return "; ".join(chosen) or "nothing chosen"


def run_details(view: TuningView) -> tuple[str, str]:
    """Head and table of a run."""
    said = {"finding": tuning_finding(view), "calibrated": calibrated_sentence(view)}
    head = laid_out("tune/head.html", view=view, sampling=sampling_sentence(view), **said)
    named = {"notes": notes(view), "points": points(view), "values": values_text, "figure": figure_text}
    return head, laid_out("tune/points.html", **named)


def notes(view: TuningView) -> list[str]:
    """What has to be said of a run's points."""
    said = [
        kept_sentence(view),
        *(f"{policy_name(m.policy)} was left out: {m.error}" for m in view.methods if m.error),
        *(none_sentence(m, view.floor) for m in view.methods if view.complete),
    ]
    return [note for note in said if note]


def points(view: TuningView) -> list[tuple[str, str, TunedPoint]]:
    """Every point with its mark in the picture and the name of its method, the model alone first."""
    marked = zip(view.methods, cycle(SYMBOLS), strict=False)
    own = [(MARKS[symbol], policy_name(method.policy), point) for method, symbol in marked for point in method.points]
    return [("", "vanilla", view.vanilla), *own]
