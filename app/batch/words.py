"""Totals by group, and selection rates with impact ratios, as tables and sentences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, cast, get_args

import plotly.graph_objects as go

from app.batch.impact import FOUR_FIFTHS, SMALL_SHARE, ImpactRow, ImpactTable
from app.batch.types import (
    BatchEstimate,
    BatchOrder,
    BatchRequest,
    BatchRowView,
    BatchSummary,
    BatchView,
    GroupTotals,
    MeanInterval,
    OutcomeRule,
    Outcomes,
    RowState,
)
from app.calibrate.words import ENDED, job_said, job_status
from app.sessions.words import beginning
from app.shared.charts import plain_layout
from app.shared.errors import ServiceError
from app.shared.events import Reply as Message
from app.shared.markup import badge, icon, table
from app.shared.policies import info_of, parameters_line
from app.shared.step_words import count, day, duration, level, plural, signed

SIZES = (25, 50, 100)
NO_GROUP = "none"
"""Filter value for rows without a group; that of a named one begins with :data:`NAMED`."""
NAMED = "g:"


@dataclass(frozen=True, slots=True)
class BatchQuery:
    """Which rows of a batch are shown, and in what order.

    Attributes:
        batch: The batch.
        order: What the rows are sorted by.
        descending: From the largest to the smallest.
        text: Words that the prompt, the continuation or the context must hold.
        group: Filter value of a group; empty for all.
        state: A state; empty for all.
        page: The page, from 1.
        size: Rows on a page.
    """

    batch: int
    order: BatchOrder = "line"
    descending: bool = False
    text: str = ""
    group: str = ""
    state: str = ""
    page: int = 1
    size: int = SIZES[0]


def batch_query(given: Mapping[str, Any]) -> BatchQuery:
    """What the page asks for.

    Args:
        given: By name: ``batch``, ``order``, ``down``, ``text``, ``group``, ``state``, ``page`` and ``size``.

    Raises:
        ServiceError: A value is none of those that there are.
    """
    return BatchQuery(
        batch=whole_number(given, "batch"),
        order=cast(BatchOrder, _one_of(given, "order", get_args(BatchOrder), "line")),
        descending=bool(given.get("down")),
        text=str(given.get("text") or "").strip(),
        group=str(given.get("group") or ""),
        state=_one_of(given, "state", ("", *get_args(RowState)), ""),
        page=max(1, whole_number(given, "page", 1)),
        size=min(SIZES[-1], max(1, whole_number(given, "size", SIZES[0]))),
    )


def outcome_rule(given: Mapping[str, Any]) -> OutcomeRule:
    """How continuations are read as outcomes: ``selected``, ``other``, ``regex`` and ``case``."""
    return OutcomeRule(
        selected=str(given.get("selected") or ""),
        other=str(given.get("other") or ""),
        regex=bool(given.get("regex")),
        match_case=bool(given.get("case")),
    )


def filtered(rows: Iterable[BatchRowView], query: BatchQuery) -> list[BatchRowView]:
    """The rows that the filters let through, in their order."""
    wanted = query.text.casefold()
    return [
        row
        for row in rows
        if wanted in f"{row.prompt}\n{row.text}\n{row.context or ''}".casefold()
        and query.group in ("", group_value(row.group))
        and query.state in ("", row.state)
    ]


def page_of(rows: Sequence[BatchRowView], query: BatchQuery) -> tuple[Sequence[BatchRowView], int, int]:
    """The rows of the asked-for page, or of the last one; its number, and the number of pages."""
    pages = max(1, -(-len(rows) // query.size))
    page = min(query.page, pages)
    return rows[(page - 1) * query.size : page * query.size], page, pages


def group_value(group: str | None) -> str:
    """Filter value of a group."""
    return NO_GROUP if group is None else f"{NAMED}{group}"


def whole_number(given: Mapping[str, Any], name: str, usual: int | None = None) -> int:
    """A whole number that the page sends.

    Raises:
        ServiceError: It is none.
    """
    value = given.get(name, usual)
    try:
        return int(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ServiceError(f"The address gives {value!r} for {name}; give a whole number.") from error


def _one_of(given: Mapping[str, Any], name: str, choices: Sequence[str], usual: str) -> str:
    value = str(given.get(name) or usual)
    if value not in choices:
        raise ServiceError(f"There is no {name} {value!r}; choose one of {', '.join(c for c in choices if c)}.")
    return value


COLUMNS = (
    ("Line", "line", "n line", "Line in the file"),
    ("Prompt and continuation", "prompt", "text", "The prompt, and what was written so far; opens the session"),
    ("Group", "group", "group", "Group in the file"),
    ("Steps", "steps", "n", "Tokens written"),
    ("Certified", "certified_share", "n", "Share of the tokens that are certified"),
    ("Fallbacks", "fallbacks", "n", "Steps at which no token was certified"),
    ("Overruled", "overruled", "n", "Steps at which the likeliest token was refused and another one was certified"),
    ("Mean log-ratio", "mean_log_ratio", "n", "How much the attribute changes a token’s probability, on average"),
    ("Max log-ratio", "max_log_ratio", "n", "The same for the token where it changes most"),
    ("Least margin", "min_margin", "n", "How closely a token cleared the threshold, in nats"),
    ("Verdict", "verdict", "judged", "What reviewers said of the whole session"),
    ("State", "state", "state", "How far the row is"),
)  # fmt: skip
"""Title, what a click sorts by, classes, and what it means."""

FIRST_DOWN = (
    "steps", "certified_share", "fallbacks", "overruled", "mean_log_ratio", "max_log_ratio",
)  # fmt: skip
"""Orders that begin with the largest; a margin is telling where it is least."""

STATES = {
    "waiting": "waiting",
    "unfinished": "unfinished",
    "finished": "finished",
    "failed": "failed",
    "deleted": "session deleted",
}
NONE = '<span aria-hidden="true">–</span><span class="vh">none</span>'


def rows_message(view: BatchView, query: BatchQuery) -> Message:
    """The asked-for page of a batch's rows: markup, where it stands, and what the filters can be set to.

    Args:
        view: The batch with its rows in the asked-for order.
        query: What was asked for.
    """
    found = filtered(view.rows, query)
    shown, page, pages = page_of(found, query)
    return {
        "rows": rows_table(shown, query) if shown else nothing_found(),
        "where": _where(len(found), len(view.rows), (page - 1) * query.size, len(shown)),
        "page": page,
        "pages": pages,
        "groups": _group_choices(view.rows),
        "states": [(name, f"{STATES[name].capitalize()} ({count(view.counts[name])})") for name in view.counts],
    }


def rows_table(rows: Sequence[BatchRowView], query: BatchQuery) -> str:
    """A table of rows; the column that they are sorted by says so."""
    head = "".join(_head(*column, query) for column in COLUMNS)
    return (
        '<table class="batchrows"><caption class="vh">Rows of the batch</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(_row(row) for row in rows)}</tbody></table>"
    )


def nothing_found() -> str:
    """No row passes the filters."""
    return (
        '<div class="empty-list"><p class="sub">No row is like this.</p>'
        '<p><button type="button" class="btn" data-do="reset">Show all rows</button></p></div>'
    )


def columns_help() -> str:
    """What the columns mean."""
    items = "".join(f"<div><dt>{title}</dt><dd>{meaning}.</dd></div>" for title, _, _, meaning in COLUMNS)
    return f'<dl class="finger columnhelp">{items}</dl>'


def number(value: float | None, digits: int = 2) -> str:
    """A measure in a cell; a dash where there is none, and ∞ where nothing limits it."""
    if value is None:
        return NONE
    if math.isinf(value):
        return '<span title="The thresholds let every token pass">∞</span>'
    return signed(value, digits).removeprefix("+")


def percent(value: float | None) -> str:
    """A share in a cell; only a whole one reads 100 %."""
    if value is None:
        return NONE
    rounded = round(100 * value)
    if rounded == 100 and value < 1:
        return ">99 %"
    return "<1 %".replace("<", "&lt;") if rounded == 0 and value > 0 else f"{rounded} %"


def _head(title: str, order: str, classes: str, meaning: str, query: BatchQuery) -> str:
    state, arrow, turn = "", "", order in FIRST_DOWN
    if query.order == order:
        state = f' aria-sort="{"descending" if query.descending else "ascending"}"'
        arrow, turn = "↓" if query.descending else "↑", not query.descending
    return (
        f'<th scope="col" class="{classes}"{state}><button type="button" class="sort" data-do="sort" '
        f'data-order="{order}" data-down="{str(turn).lower()}" title="{escape(meaning)}">{title}'
        f'<span aria-hidden="true">{arrow}</span></button></th>'
    )


def _row(row: BatchRowView) -> str:
    prompt, text = escape(beginning(row.prompt)), escape(beginning(row.text))
    opened = prompt
    if row.session_id is not None:
        opened = f'<a href="./?session={row.session_id}" title="Open the session">{prompt}</a>'
    written = f'<span class="cut sub">{text}</span>' if text else ""
    wrong = f'<span class="caution why">{escape(row.error)}</span>' if row.error else ""
    return (
        f'<tr data-line="{row.line}"><td class="n line">{count(row.line)}</td>'
        f'<th scope="row" class="text"><span class="cut">{opened}</span>{written}{wrong}</th>'
        f'<td class="group"><span class="cut">{NONE if row.group is None else escape(row.group)}</span></td>'
        f'<td class="n">{count(row.steps)}</td><td class="n">{percent(row.certified_share)}</td>'
        f'<td class="n">{_whole(row.fallbacks)}</td><td class="n">{_whole(row.overruled)}</td>'
        f'<td class="n">{number(row.mean_log_ratio)}</td><td class="n">{number(row.max_log_ratio)}</td>'
        f'<td class="n">{number(row.min_margin)}</td><td class="judged">{_verdict(row)}</td>'
        f'<td class="state">{_state(row)}</td></tr>'
    )


def _whole(value: int | None) -> str:
    return NONE if value is None else count(value)


def _verdict(row: BatchRowView) -> str:
    if row.verdict:
        return escape(row.verdict)
    return f'<span class="hint">{count(row.verdicts)} on parts</span>' if row.verdicts else NONE


def _state(row: BatchRowView) -> str:
    mark = icon("tri") if row.state in ("failed", "deleted") else icon("tick") if row.state == "finished" else ""
    return f'<span class="rowstate {row.state}">{mark}{STATES[row.state]}</span>'


def _group_choices(rows: Sequence[BatchRowView]) -> list[tuple[str, str]]:
    sizes: dict[str | None, int] = {}
    for row in sorted(rows, key=lambda row: row.line):
        sizes[row.group] = sizes.get(row.group, 0) + 1
    return [
        (group_value(group), f"{'No group' if group is None else group} ({count(n)})") for group, n in sizes.items()
    ]


def _where(found: int, total: int, before: int, shown: int) -> str:
    of = plural(total, "row") if found == total else f"{plural(found, 'row')} of {count(total)}"
    return of if shown == found else f"{count(before + 1)}–{count(before + shown)} of {of}"


DELETED = "The summary goes for good. Its sessions stay in the library."
NO_BATCH = (
    '<p class="sub">No batch yet. Upload prompts or take a sample, choose the settings, and run: every prompt becomes '
    "a session of its own, and the first batch is listed here.</p>"
)


def batch_message(view: BatchView, query: BatchQuery, said: str = "") -> Message:
    """A batch as the page shows it.

    Args:
        view: The batch with its rows in the asked-for order.
        query: Which rows are asked for.
        said: What an action has done, in words.
    """
    return {
        "kind": "batch",
        "batch": view.id,
        "name": view.name,
        "head": batch_head(view),
        "status": batch_status(view),
        "progress": job_said(view.job),
        "running": is_running(view),
        "finished": view.counts.get("finished", 0),
        "notes": _notes(view),
        "said": said,
        **rows_message(view, query),
    }


def is_running(view: BatchView) -> bool:
    """Whether a job is at work on it."""
    return view.job is not None and view.job.active


def batch_head(view: BatchView) -> str:
    """Name, file, settings, and what can be done with the whole batch."""
    name = escape(view.name)
    delete = (
        ""
        if is_running(view)
        else f'<button type="button" class="btn danger" data-do="delete" data-id="{view.id}" data-name="{name}" '
        f'data-what="{DELETED}">Delete</button>'
    )
    return (
        f'<div class="bar batchbar"><h2 tabindex="-1">{name}</h2>{_certificates(view)}<span class="end">'
        f'<button type="button" class="btn" data-do="export" data-kind="rows">{icon("down")}Rows as CSV</button>'
        f'<a class="btn" href="./sessions?batch={view.id}">Its sessions</a>{delete}</span></div>'
        f'<p class="sub tnum">{escape(view.filename)}, {plural(len(view.rows), "prompt")}, {day(view.created_at)}</p>'
        f'<p class="hint tnum">{settings_line(view.request)}</p>'
    )


def settings_line(request: BatchRequest) -> str:
    """The settings of every session in one line."""
    own = request.settings
    info = info_of(own.policy)
    policy = [escape(own.model), escape(info.name), *([escape(line)] if (line := parameters_line(own)) else [])]
    policy += [f"λ {own.lam:.2f}"] if info.fuses else []
    policy += [f"α {level(own.alpha)}"] if info.certifies else []
    if len(info.layouts) > 1:
        policy.append("one mask for each family" if own.mask_layout == "factorized" else "one mask")
    drawn = "greedy" if own.greedy else f"temperature {own.temperature:g}, top-p {own.top_p:g}"
    top_k = f", top-k {own.top_k}" if own.top_k and not own.greedy else ""
    seeds = "the same for all" if request.same_seed else "counted up by context"
    by_group = ["each row under its own group’s thresholds"] if request.group_thresholds else []
    length = f"{plural(own.max_new_tokens, 'step')} at most"
    return ", ".join([*policy, f"{drawn}{top_k}", length, f"seed {own.seed}, {seeds}", *by_group])


def batch_status(view: BatchView) -> str:
    """How far it is, with the button that stops it or goes on."""
    if is_running(view):
        button = '<button type="button" class="btn" data-do="cancel">Cancel</button>'
        return f'<div class="batchrun">{job_status(view.job)}{button}</div>'
    sentence, stopped = _sentence(view)
    text = (
        f'<ul class="cautions"><li>{icon("tri")}<span>{sentence}</span></li></ul>'
        if stopped
        else f'<p class="sub batchdone">{icon("tick")}<span>{sentence}</span></p>'
    )
    if not view.resumable:
        return text
    return (
        f'<div class="batchrun">{text}<button type="button" class="btn primary" data-do="resume">Resume</button></div>'
    )


def _sentence(view: BatchView) -> tuple[str, bool]:
    """How it ended, and whether something is left."""
    done = f"{count(view.counts.get('finished', 0))} of {plural(len(view.rows), 'prompt')} finished"
    failed = view.counts.get("failed", 0)
    more = f", {count(failed)} failed; the rows say why" if failed else ""
    job = view.job
    if job is not None and job.status in ENDED:
        why = f" {escape(job.error)}" if job.error else ""
        return f"The run {ENDED[job.status]}: {done}{more}.{why} What is done is kept.", True
    return f"{done}{more}.", bool(failed) or view.resumable


def _certificates(view: BatchView) -> str:
    """What may be claimed of the sessions, once for each claim."""
    found: dict[str, int] = {}
    for row in view.rows:
        if row.certificate:
            found[row.certificate] = found.get(row.certificate, 0) + 1
    parts = [
        badge(
            "calibrated" if text == "certified" else "uninformative",
            text if len(found) == 1 else f"{text} ({count(number)})",
        )
        for text, number in found.items()
    ]
    return "".join(parts)


def _notes(view: BatchView) -> str:
    return "".join(f'<p class="hint">{escape(note)}</p>' for note in view.notes)


def estimate_line(found: BatchEstimate) -> str:
    """What a batch will take."""
    groups = f", {plural(found.groups, 'group')}" if found.groups else ", no groups"
    return (
        f'<div class="estimate"><p class="sub tnum"><strong>{plural(found.prompts, "prompt")}, '
        f"{plural(found.contexts, 'context')}{groups}</strong>: {plural(found.prompts, 'session')} with "
        f"{count(found.tokens)} tokens at most.</p>"
        f'<p class="sub tnum">The model takes {duration(found.seconds)} for them here if every text runs to its last '
        "step, judged by a trial with one prompt.</p></div>"
    )


def batches_list(found: Sequence[BatchSummary]) -> str:
    """All batches, newest first."""
    return f'<ul class="runlist">{"".join(_listed(item) for item in found)}</ul>' if found else NO_BATCH


def _listed(item: BatchSummary) -> str:
    name, job = escape(item.name), item.job
    running = job is not None and job.active
    delete = (
        '<span class="hint">running</span>'
        if running
        else f'<button type="button" class="btn small quiet" data-do="delete" data-id="{item.id}" data-name="{name}" '
        f'data-what="{DELETED}" aria-label="Delete {name}">Delete</button>'
    )
    state = ""
    if job is not None:
        part = f"{round(100 * job.progress)} %"
        state = f", {part}" if running else f", {ENDED[job.status]} at {part}" if job.status in ENDED else ", finished"
    return (
        f'<li><a class="link" href="./batches?batch={item.id}" data-do="open" data-id="{item.id}">{name}</a>{delete}'
        f'<span class="hint tnum">{plural(item.rows, "prompt")}{state}, {day(item.created_at)}</span></li>'
    )


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


ROW_HEIGHT = 30
FRAME_HEIGHT = 58
LONGEST_NAME = 22
CHARACTER_WIDTH = 6.5
INTERVALS, DOTS = 2, 3
"""Places of both traces in the template."""


def totals_figure(groups: Sequence[GroupTotals], measure: str) -> go.Figure:
    """A dot for each group's mean and a line for its interval; a mean without an interval is an open square.

    Args:
        groups: Totals by group, drawn from the top.
        measure: Which of their means.
    """
    names = [_short(group_name(group.group)) for group in groups]
    left = 16 + CHARACTER_WIDTH * max((len(name) for name in names), default=4)
    figure = go.Figure(layout=plain_layout(figure_height(len(groups)), {"l": round(left), "r": 16, "t": 8, "b": 40}))
    empty = {"x": [], "y": [], "hoverinfo": "skip"}
    for trace in (go.Scatter(empty), go.Scatter(empty), _intervals(groups, measure), _dots(groups, measure)):
        figure.add_trace(trace)
    share = measure == "certified_share"
    figure.update_xaxes(
        title={"text": MEASURES[measure], "standoff": 6}, tickformat=".0%" if share else None, nticks=6, showgrid=True,
        range=_share_range(groups) if share else None,
    )  # fmt: skip
    figure.update_yaxes(
        tickmode="array", tickvals=list(range(len(names))), ticktext=names, showgrid=False, zeroline=False,
        range=[len(names) - 0.5, -0.5],
    )  # fmt: skip
    return figure


def figure_height(groups: int) -> int:
    """Height in pixels for a number of groups."""
    return FRAME_HEIGHT + ROW_HEIGHT * max(1, groups)


def _share_range(groups: Sequence[GroupTotals]) -> list[float]:
    """From a little below the lowest value to 100 %, beyond which no share goes."""
    found = [chosen(group, "certified_share") for group in groups]
    least = min((value for item in found for value in (item.low, item.mean) if value is not None), default=0.0)
    return [max(0.0, least - 0.05), 1.02]


def _intervals(groups: Sequence[GroupTotals], measure: str) -> go.Scatter:
    x: list[float | None] = []
    y: list[float | None] = []
    for place, group in enumerate(groups):
        item = chosen(group, measure)
        if item.low is not None and item.high is not None:
            x += [item.low, item.high, None]
            y += [place, place, None]
    return go.Scatter(
        x=x, y=y, mode="lines+markers", line={"width": 1.6}, hoverinfo="skip",
        marker={"symbol": "line-ns-open", "size": 9, "line": {"width": 1.6}},
    )  # fmt: skip


def _dots(groups: Sequence[GroupTotals], measure: str) -> go.Scatter:
    found = [(place, chosen(group, measure), group) for place, group in enumerate(groups)]
    known = [(place, item, group) for place, item, group in found if item.mean is not None]
    return go.Scatter(
        x=[item.mean for _, item, _ in known],
        y=[place for place, _, _ in known],
        mode="markers",
        marker={
            "size": 9, "line": {"width": 1.6},
            "symbol": ["circle" if item.low is not None else "square-open" for _, item, _ in known],
        },
        hovertext=[_told(group_name(group.group), item.mean, item.low, item.high) for _, item, group in known],
        hovertemplate="%{hovertext}<extra></extra>",
        cliponaxis=False,
    )  # fmt: skip


def _told(name: str, mean: float | None, low: float | None, high: float | None) -> str:
    between = "no interval" if low is None or high is None else f"{low:.3g} to {high:.3g}"
    return f"{name}: {mean:.3g} ({between})"


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
