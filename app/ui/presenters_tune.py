"""What the tuning page says of sets and runs, as markup."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from app.services.policy_words import policy_name
from app.services.tuning.words import ENDED, calibrated_sentence, kept_sentence, none_sentence, sampling_sentence
from app.services.views.tuning import TunedMethod, TunedPoint, TunedValues, TuningSet, TuningView
from app.ui.components.markup import icon, table
from app.ui.figures_tune import SYMBOLS, values_text
from app.ui.presenters_format import day, plural

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
