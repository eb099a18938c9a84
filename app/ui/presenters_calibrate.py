"""What the calibrate page says of prompt sets, jobs and past runs, as markup."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from app.services.views import CalibrationSummary, JobView, ParsedPromptSet
from app.ui.components.markup import icon, table
from app.ui.presenters_format import count, day, level, plural

SHOWN_ERRORS = 8
SHOWN_ROWS = 3


def prompt_set(parsed: ParsedPromptSet) -> str:
    """An uploaded prompt set: its size, what is wrong with it, and its first rows."""
    kilobytes = max(1, round(parsed.size / 1024))
    ignored = (
        f'<p class="hint">Not read: {escape(", ".join(parsed.ignored_columns))}.</p>' if parsed.ignored_columns else ""
    )
    return (
        f'<p class="sub tnum"><strong>{escape(parsed.filename)}</strong>, {plural(parsed.total, "row")}, '
        f"{count(kilobytes)} KB, {escape(parsed.format)}</p>{ignored}{row_errors(parsed)}{first_rows(parsed)}"
    )


def row_errors(parsed: ParsedPromptSet) -> str:
    """The rows that cannot be used: line, column, and what is wrong."""
    if not parsed.errors:
        return ""
    rows = [[str(error.line), escape(error.column), escape(error.message)] for error in parsed.errors[:SHOWN_ERRORS]]
    rest = parsed.errors[SHOWN_ERRORS:]
    more = ""
    if rest:
        lines = ", ".join(str(error.line) for error in rest[:12]) + (", …" if len(rest) > 12 else "")
        more = f'<p class="hint">{count(len(rest))} more, at line {lines}.</p>'
    head = [("Line", "n"), ("Column", ""), ("What is wrong", "")]
    return (
        f'<div class="bar"><h3>Rows that can’t be used</h3><span class="hint tnum">{count(len(parsed.errors))} of '
        f"{count(parsed.total)}</span></div>{table(head, rows, 'errors', 'Rows that cannot be used')}{more}"
    )


def first_rows(parsed: ParsedPromptSet) -> str:
    """A preview of the first usable rows."""
    if not parsed.rows:
        return '<p class="sub">No row can be used.</p>'
    rows = [
        [
            str(line),
            f'<td class="cut" title="{escape(example.prompt)}">{escape(example.prompt)}</td>',
            f'<td class="cut" title="{escape(example.reference or "")}">{escape(example.reference or "–")}</td>',
            escape(example.group or "–"),
        ]
        for line, example in parsed.rows[:SHOWN_ROWS]
    ]
    head = [("Line", "n"), ("Prompt", ""), ("Reference", ""), ("Group", "")]
    return f'<div class="bar"><h3>First rows</h3></div>{table(head, rows, "preview", "First rows")}'


def accept_label(parsed: ParsedPromptSet) -> str:
    """The words beside the choice to leave bad rows out."""
    return f"Go on with the {plural(len(parsed.rows), 'good row')}"


def job_status(job: JobView | None) -> str:
    """A calibration job: progress while it runs, one sentence when it ended badly."""
    if job is None:
        return ""
    title = escape(job.title)
    if job.status in ("queued", "running"):
        percent = round(100 * job.progress)
        return (
            f'<div class="run"><span>{title}<br><span class="hint tnum">{escape(job.message)}</span></span>'
            f'<span class="hint tnum">{percent} %</span><div class="progress" role="progressbar" aria-valuemin="0" '
            f'aria-valuemax="100" aria-valuenow="{percent}" aria-label="{title}">'
            f'<i style="width:{percent}%"></i></div></div>'
        )
    if job.status == "done":
        return f'<p class="hint">{title}: finished, shown as the result.</p>'
    words = {"failed": "failed", "cancelled": "was cancelled", "interrupted": "was interrupted"}
    why = f" {escape(job.error)}" if job.error else ""
    sentence = f"{title} {words.get(job.status, job.status)}.{why}"
    return f'<ul class="cautions"><li>{icon("tri")}<span>{sentence}</span></li></ul>'


def runs_list(found: Sequence[CalibrationSummary], shown: int | None) -> str:
    """Past runs, newest first."""
    if not found:
        return '<p class="sub">No calibration yet. The first one that you make is listed here.</p>'
    rows = []
    for item in found:
        what = "The calibration goes for good. Audits that used it keep their results and its name."
        delete = (
            '<span class="hint">comes with the program</span>'
            if item.embedded
            else f'<button type="button" class="btn small quiet" data-do="delete" data-id="{item.id}" '
            f'data-name="{escape(item.name)}" data-what="{what}" '
            f'aria-label="Delete {escape(item.name)}">Delete</button>'
        )
        current = ' aria-current="true"' if item.id == shown else ""
        rows.append(
            f'<li{current}><button type="button" class="link" data-do="show" data-id="{item.id}">{escape(item.name)}'
            f'</button>{delete}<span class="hint tnum">{escape(item.model)}, {escape(item.estimator)}, '
            f"λ {item.lam:.2f}, α {level(item.alpha)}, {plural(item.contexts, 'context')}, "
            f"{day(item.created_at)}</span></li>"
        )
    return f'<ul class="runlist">{"".join(rows)}</ul>'
