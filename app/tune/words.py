"""What the tuning page says of sets and runs, as markup."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go

from app.shared.charts import plain_layout
from app.shared.markup import icon, table
from app.shared.policies import info_of, policy_name
from app.shared.step_words import day, plural
from app.tune.types import TunedMethod, TunedPoint, TunedValues, TuningSet, TuningView

ENDED = {"cancelled": "was cancelled", "interrupted": "was interrupted", "failed": "failed"}
"""How a run ended before all methods were swept."""


def calibrated_sentence(view: TuningView) -> str:
    """Whether COFT was certified while it was tuned, and what the calibration rests on."""
    if not view.calibrated_on:
        return "COFT without certification"
    # Other methods that could certify take other calibrations than those that are made here.
    others = any(own.policy != "coft" and info_of(own.policy).certifies for own in view.methods)
    rest = "; the other methods without certification" if others else ""
    if view.calibration_source == "reference":
        return f"COFT calibrated on the references of {view.calibrated_on} at every lambda{rest}"
    return (
        f"COFT calibrated at every lambda on rollouts, what it writes itself on the prompts of {view.calibrated_on} "
        f"in up to {view.settings.max_new_tokens} steps at alpha {view.settings.alpha:g}; other levels are read "
        f"off the same chains{rest}"
    )


def sampling_sentence(view: TuningView) -> str:
    """The sampling controls that the figures hold at."""
    own = view.settings
    cuts = [f"top-p {own.top_p:g}"] if own.top_p < 1 else []
    cuts += [f"top-k {own.top_k}"] if own.top_k else []
    return ", ".join([f"temperature {own.temperature:g}", *cuts])


def none_sentence(own: TunedMethod, floor: float) -> str:
    """Why no point of a complete sweep was chosen; empty where one was, or where nothing was measured."""
    if own.error or not own.points or own.best is not None:
        return ""
    name = policy_name(own.policy)
    if all(point.accuracy[0] < floor for point in own.points):
        return f"{name}: none, no point keeps enough accuracy."
    return f"{name}: none, no point that keeps enough accuracy has a smaller gap than the model alone beyond noise."


def kept_sentence(view: TuningView) -> str:
    """What is kept of a run that ended early, and that nothing is chosen from it; empty for a complete one."""
    if view.complete:
        return ""
    counted = ", ".join(
        f"{policy_name(own.policy)} {len(own.points)} of {own.planned}" for own in view.methods if not own.error
    )
    return (
        f"This run {ENDED.get(view.status, view.status)} after {view.measured} of {view.planned} points ({counted}). "
        "The points that are kept were measured on all prompts. None is chosen, because a choice needs every point; "
        "run it again for one."
    )


HEIGHT = 340
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "star", "hexagon", "cross", "x")
"""Marks of the methods in their order; colour alone tells nobody apart."""


def tuning_figure(view: TuningView) -> go.Figure:
    """Every point of every method; to the left is less gap, higher is more accurate, below the line is not chosen."""
    figure = go.Figure(layout=plain_layout(HEIGHT, {"l": 48, "r": 16, "t": 8, "b": 40}))
    for place, own in enumerate(view.methods):
        if own.points:
            figure.add_trace(_line(own, SYMBOLS[place % len(SYMBOLS)]))
    figure.add_trace(_vanilla(view.vanilla))
    figure.add_hline(y=view.floor, line={"dash": "dot", "width": 1})
    figure.update_xaxes(title={"text": "Gap between groups", "standoff": 6}, rangemode="tozero", showgrid=True)
    figure.update_yaxes(title={"text": "Accuracy", "standoff": 6}, tickformat=".0%", showgrid=True)
    return figure


def _line(own: TunedMethod, symbol: str) -> go.Scatter:
    name = policy_name(own.policy)
    return go.Scatter(
        x=[point.gap[0] for point in own.points],
        y=[point.accuracy[0] for point in own.points],
        mode="lines+markers",
        name=name,
        line={"width": 1},
        marker={"symbol": [symbol if point.chosen else f"{symbol}-open" for point in own.points], "size": 9},
        text=[f"{name}: {values_text(point)}" for point in own.points],
        hovertemplate="%{text}<br>gap %{x:.3f}, accuracy %{y:.1%}<extra></extra>",
    )


def _vanilla(point: TunedPoint) -> go.Scatter:
    return go.Scatter(
        x=[point.gap[0]],
        y=[point.accuracy[0]],
        mode="markers+text",
        text=["vanilla"],
        textposition="bottom center",
        marker={"symbol": "star-open", "size": 12},
        hovertemplate="vanilla<br>gap %{x:.3f}, accuracy %{y:.1%}<extra></extra>",
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


def tuned_line(found: TunedValues | None) -> str:
    """The strength at which a method was found to be best; nothing where it was not tuned."""
    if found is None:
        return ""
    values = [("λ", found.lam), ("α", found.alpha), *found.parameters]
    text = ", ".join(f"{name} {value:g}" for name, value in values if isinstance(value, (int, float)))
    run = f'<a href="./tune">{escape(found.run_name)}</a>'
    return f'<p class="hint tnum">Tuned on {escape(found.set_name)} ({run}): {escape(text)}</p>'


def read_set(found: TuningSet) -> str:
    """What is in a set."""
    return (
        f'<p class="hint tnum">{escape(found.filename)}: {plural(found.graded, "prompt")} with a right answer, '
        f"{plural(found.pairs, 'pair')}.</p>"
    )


def runs_list(found: Sequence[TuningView], shown: int | None) -> str:
    """Runs that have ended, newest first."""
    if not found:
        return '<p class="sub">No run yet. The first one that you make is listed here.</p>'
    return f'<ul class="runlist">{"".join(_run(view, view.id == shown) for view in found)}</ul>'


def run_details(view: TuningView) -> tuple[str, str]:
    """Head and table of a run."""
    below = "are not chosen; filled marks are" if view.complete else "could not be chosen"
    head = (
        f'<div class="bar"><h2>{escape(view.name)}</h2><span class="hint tnum">{escape(view.model)}, '
        f"{escape(view.set_name)}, {day(view.created_at)}</span></div>"
        f'<p class="sub">{plural(view.prompts, "prompt")} with a right answer, {plural(view.pairs, "pair")}; '
        f"{escape(calibrated_sentence(view))}; {sampling_sentence(view)}. To the left is less gap between groups, "
        "higher is more accurate. Points below the dotted line lose more than 5 % of the accuracy of the model alone "
        f"and {below}.</p>"
    )
    rows = [["vanilla", "as it is", *_figures(view.vanilla), ""]]
    for place, own in enumerate(view.methods):
        rows += _rows(own, MARKS[SYMBOLS[place % len(SYMBOLS)]])
    columns = [("Method", ""), ("Strength", "n"), ("Gap", "n"), ("Accuracy", "n"), ("Chosen", "")]
    points = table(columns, rows, "tuned", "Points of the run")
    left_out = "".join(
        f"<li>{icon('tri')}<span>{escape(policy_name(own.policy))} was left out: {escape(own.error)}</span></li>"
        for own in view.methods
        if own.error
    )
    none = "".join(
        f"<li>{icon('tri')}<span>{escape(sentence)}</span></li>"
        for own in view.methods
        if view.complete and (sentence := none_sentence(own, view.floor))
    )
    early = kept_sentence(view)
    early = f"<li>{icon('tri')}<span>{escape(early)}</span></li>" if early else ""
    notes = f'<ul class="cautions">{early}{left_out}{none}</ul>' if early or left_out or none else ""
    region = f'<div class="scrolls" tabindex="0" role="region" aria-label="Points, table">{points}</div>'
    return head, f'{notes}{region}<p class="hint">In brackets: 95 % bootstrap intervals over pairs.</p>'


def _rows(own: TunedMethod, mark: str) -> list[list[str]]:
    return [
        [
            f'<span class="mono" aria-hidden="true">{mark}</span> {escape(policy_name(own.policy))}',
            escape(values_text(point)),
            *_figures(point),
            "<strong>chosen</strong>" if point.chosen else "",
        ]
        for point in own.points
    ]


def _figures(point: TunedPoint) -> list[str]:
    gap, accuracy = point.gap, point.accuracy
    return [
        f"{gap[0]:.3f} [{gap[1]:.3f}, {gap[2]:.3f}]",
        f"{accuracy[0]:.3f} [{accuracy[1]:.3f}, {accuracy[2]:.3f}]",
    ]


def _run(view: TuningView, current: bool) -> str:
    chosen = [f"{policy_name(own.policy)} {values_text(own.best)}" for own in view.methods if own.best]
    name = escape(view.name)
    said = "; ".join(chosen) or "nothing chosen"
    if not view.complete:
        said = f"{ENDED.get(view.status, view.status)}, {view.measured} of {view.planned} points, nothing chosen"
    return (
        f'<li{" aria-current=true" if current else ""}><button type="button" class="link" data-do="show" '
        f'data-id="{view.id}">{name}</button><span class="hint tnum">{escape(view.model)}, {escape(view.set_name)}, '
        f"{day(view.created_at)}: {escape(said)}</span></li>"
    )
