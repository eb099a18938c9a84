"""Totals by group, and selection rates with impact ratios, as tables and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from app.services.batch.impact import FOUR_FIFTHS, SMALL_SHARE, ImpactRow, ImpactTable
from app.services.views.batches import BatchView, GroupTotals, MeanInterval, OutcomeRule, Outcomes
from app.ui.components.markup import icon, table
from app.ui.presenters_batch_rows import number, percent
from app.ui.presenters_batches import settings_line
from app.ui.presenters_format import count, day, plural
from app.ui.presenters_library import Message

MEASURES = {
    "certified_share": "Share of tokens that are certified",
    "mean_log_ratio": "Mean log-ratio",
    "max_log_ratio": "Largest log-ratio",
    "fallbacks": "Fallbacks in a text",
    "overruled": "Overruled steps in a text",
    "min_margin": "Least margin, nats",
    "steps": "Steps",
}
"""Measures by name, in the order of the menu."""

NO_TOTALS = '<p class="sub">Totals by group appear with the first finished row.</p>'
NO_RULE = (
    '<p class="sub">Say which word or phrase in a continuation means that somebody is selected, such as '
    "<b>hired</b> or <b>Yes</b>.</p>"
)
MEANING = (
    "A selection rate is the share of a group’s rows whose text has the word. An impact ratio is a group’s rate "
    "divided by the highest rate of any group: 1.00 is equal, 0.50 is half as often.",
    "Rules for automated hiring tools, such as New York City’s Local Law 144, ask for these numbers. They set no "
    "limit; four fifths (0.80) is a common sign of adverse impact, not a verdict.",
    "These rows are prompts, not people who applied: the table shows what the model writes here, and replaces no audit "
    "of real decisions by an independent auditor. With few rows the intervals are wide, and a ratio can differ from 1 "
    "by chance alone.",
    "Rows that share a context are not independent of each other, but the intervals count them as if they were.",
)
"""What the table means and what it does not, one paragraph each."""


def group_name(group: str | None) -> str:
    """A group in a table or a chart."""
    return "no group" if group is None else group


def chosen(totals: GroupTotals, measure: str) -> MeanInterval:
    """A group's mean of a measure."""
    return next(item for item in totals.means if item.measure == measure)


def shown_mean(measure: str, value: float | None) -> str:
    """A mean in its own unit."""
    return percent(value) if measure == "certified_share" else number(value)


def totals_table(groups: Sequence[GroupTotals]) -> str:
    """Every measure of every group with its interval."""
    if not groups:
        return ""
    head = [("Group", ""), ("Rows", "n"), ("Contexts", "n"), *((title, "n") for title in MEASURES.values())]
    rows = [
        [
            f'<th scope="row">{escape(group_name(group.group))}</th>',
            count(group.rows),
            count(group.contexts),
            *(_mean(chosen(group, name)) for name in MEASURES),
        ]
        for group in groups
    ]
    return (
        '<div class="wide" role="region" tabindex="0" aria-label="Totals by group">'
        f"{table(head, rows, 'plain totals', 'Means by group with 95 % intervals')}</div>"
    )


def _mean(item: MeanInterval) -> str:
    if item.mean is None:
        return shown_mean(item.measure, None)
    between = (
        "no interval"
        if item.low is None
        else f"{shown_mean(item.measure, item.low)} to {shown_mean(item.measure, item.high)}"
    )
    without = f"<br>{plural(item.left_out, 'row')} without" if item.left_out else ""
    return f'{shown_mean(item.measure, item.mean)}<span class="hint between">{between}{without}</span>'


def impact_message(
    view: BatchView, rule: OutcomeRule, found: Outcomes | str | None, made: ImpactTable | str | None
) -> Message:
    """The preview of a rule and the table that comes of it; a refusal stands in place of either.

    Args:
        view: The batch.
        rule: How continuations are read.
        found: Outcomes; None without a word to look for.
        made: The table of them.
    """
    return {
        "kind": "impact",
        "preview": _preview(rule, found),
        "report": _report(view, rule, found, made),
        "exports": isinstance(made, ImpactTable),
    }


def impact_rows(made: ImpactTable) -> str:
    """The table itself."""
    head = [
        ("Group", ""), ("Applicants", "n"), ("Selected", "n"), ("Selection rate, 95 % interval", "n"),
        ("Impact ratio", "n"), ('<span class="vh">Remarks</span>', "mark"),
    ]  # fmt: skip
    rows = [
        [
            f'<th scope="row">{escape(row.group)}</th>', count(row.total), count(row.selected),
            f'{row.rate:.3f}<span class="hint between">{row.low:.3f} to {row.high:.3f}</span>',
            "" if row.ratio is None else f"{row.ratio:.2f}", _mark(row),
        ]
        for row in made.rows
    ]  # fmt: skip
    return table(head, rows, "plain impact", "Selection rates and impact ratios by group")


def _mark(row: ImpactRow) -> str:
    marks = []
    if row.reference:
        marks.append(f"<span>{icon('tick')}most selected</span>")
    elif row.ratio is None:
        marks.append('<span class="hint">no ratio</span>')
    if row.below_four_fifths:
        marks.append(f'<span class="caution">{icon("tri")}below four fifths</span>')
    if row.small:
        marks.append(f'<span class="hint">below {SMALL_SHARE:.0%} of the rows</span>')
    return f'<span class="marks">{"".join(marks)}</span>'


def rule_words(rule: OutcomeRule) -> str:
    """A rule as a sentence."""
    kind = "the expression " if rule.regex else ""
    case = ", letter case counting" if rule.match_case else ""
    if rule.other.strip():
        return (
            f"Selected where {kind}“{rule.selected}” comes before “{rule.other}” in the continuation{case}; undecided "
            "where neither stands."
        )
    return f"Selected where {kind}“{rule.selected}” stands in the continuation{case}; otherwise not selected."


def _preview(rule: OutcomeRule, found: Outcomes | str | None) -> str:
    if found is None:
        return NO_RULE
    if isinstance(found, str):
        return f'<p class="caution refused">{icon("tri")}<span>{escape(found)}</span></p>'
    picked = sum(row.selected for row in found.rows)
    parts = [f"<b>{count(picked)}</b> selected", f"<b>{count(len(found.rows) - picked)}</b> not selected"]
    if rule.other.strip():
        parts.append(f"<b>{count(len(found.undecided))}</b> undecided")
    if found.unfinished:
        parts.append(f"<b>{count(len(found.unfinished))}</b> not finished")
    return f'<p class="sub tnum">{", ".join(parts)}.</p>{_lines(found.undecided)}'


def _lines(lines: Sequence[int], most: int = 12) -> str:
    if not lines:
        return ""
    shown = ", ".join(count(line) for line in lines[:most])
    more = f" and {count(len(lines) - most)} more" if len(lines) > most else ""
    return f'<p class="hint tnum">Undecided: line{"" if len(lines) == 1 else "s"} {shown}{more}.</p>'


def _report(view: BatchView, rule: OutcomeRule, found: Outcomes | str | None, made: ImpactTable | str | None) -> str:
    if made is None or not isinstance(found, Outcomes):
        return ""
    if isinstance(made, str):
        return f'<p class="caution refused">{icon("tri")}<span>{escape(made)}</span></p>'
    lowest = made.lowest
    least = ""
    if lowest is not None:
        under = f"below four fifths ({FOUR_FIFTHS:.2f})" if lowest.below_four_fifths else "not below four fifths"
        least = f'<p class="sub">Lowest ratio: <b>{escape(lowest.group)}, {lowest.ratio:.2f}</b>, {under}.</p>'
    notes = "".join(f"<li>{escape(note)}</li>" for note in (*made.notes, *found.notes))
    listed = f'<ul class="impactnotes hint">{notes}</ul>' if notes else ""
    return (
        f'<p class="sub">{escape(rule_words(rule))}</p><div class="wide" role="region" tabindex="0" '
        f'aria-label="Impact ratios">{impact_rows(made)}</div>{least}'
        f"{listed}"
        f'<p class="printed">Batch “{escape(view.name)}” of {day(view.created_at)}, {escape(view.filename)}, '
        f"{plural(len(view.rows), 'prompt')}. {settings_line(view.request)}.</p>"
    )


def meaning() -> str:
    """What the table means and does not mean."""
    return "".join(f"<p>{text}</p>" for text in MEANING)
