"""What the calibrate page says of a prompt set: its columns, what is wrong with it, and how it will be masked."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from app.shared.audits import FAMILY_NAMES, CalibrationSummary
from app.shared.jobs import JobView
from app.shared.markup import badge, icon, table
from app.shared.prompt_sets import (
    CalibrationEstimate,
    ParsedPromptSet,
    PromptPreview,
    RowError,
    SamplePromptSet,
    grouping_note,
)
from app.shared.step_words import count, day, duration, level, plural
from coft_core.conformal.drift import DriftReport
from coft_core.types import Span

SHOWN_PROMPT = 120
"""Characters of a prompt that a table shows."""

WORDS = {
    "fresh": "fresh",
    "watch": "watch",
    "recalibrate": "calibrate again",
    "unknown": "unknown",
}
"""Statuses in words; the mark before them has another shape for each."""


def drift_head(report: DriftReport) -> str:
    """Badge and sentence."""
    mark = badge(f"drift-{report.status}", WORDS.get(report.status, report.status))
    facts = ""
    if report.two_sample_p is not None:
        facts = (
            f'<p class="hint tnum">The martingale stands at {report.martingale:.3g} now; without drift it reaches 100 '
            "in at most 1 of 100 cases.</p>"
        )
    todo = (
        ""
        if report.baseline
        else '<p class="hint">Calibrate on rollouts, or tick “Record chains”, so that audits have something to be '
        "compared with.</p>"
    )
    return (
        f'<div class="bar"><h2>Does it still fit?</h2>{mark}</div>'
        f'<p class="sub">{escape(report.sentence)}</p>{facts}{todo}'
    )


def drift_foot(report: DriftReport) -> str:
    """What the picture shows, and which audits it leaves out."""
    if not report.p_values:
        return _left_out(report)
    return (
        f'<p class="hint">Each dot is an audit: its place between 0 and 1 among the {report.baseline} chains that this '
        "calibration recorded. Without drift the dots lie evenly. Many low dots: the model now writes tokens with less "
        f"support in both views.</p>{_left_out(report)}"
    )


def _left_out(report: DriftReport) -> str:
    """The audits that were not compared, each with its reason, folded away."""
    if not report.left_out:
        return ""
    rows = [
        [
            f'<a href="./?session={own.session_id}">{own.session_id}</a>',
            escape(own.prompt if len(own.prompt) <= SHOWN_PROMPT else f"{own.prompt[:SHOWN_PROMPT]}…"),
            escape(own.why),
        ]
        for own in report.left_out
    ]
    listed = table([("Audit", "n"), ("Prompt", ""), ("Why it does not count", "")], rows, "plain", "Audits left out")
    count = len(report.left_out)
    return (
        f'<details class="meanings"><summary>{icon("chev", "chev")}{plural(count, "audit")} '
        f'{"is" if count == 1 else "are"} left out</summary><div class="scrolls" tabindex="0" role="region" '
        f'aria-label="Audits left out, table">{listed}</div></details>'
    )


ENDED = {"failed": "failed", "cancelled": "was cancelled", "interrupted": "was interrupted"}

KEPT = "If you cancel, what is done is kept: the run can be resumed."

SOURCES = {"reference": "references", "rollout": "rollouts"}
LAYOUTS = {"joint": "", "factorized": "one mask a family, "}
ESTIMATOR_NAMES = {"hierarchical": "hierarchical", "one_per_context": "one per context", "pooled": "pooled"}


def job_status(job: JobView | None, cancelled: str = KEPT) -> str:
    """A job: progress while it runs, one sentence when it ended.

    Args:
        job: The job.
        cancelled: What becomes of a run that is cancelled, in a sentence.
    """
    if job is None:
        return ""
    title = escape(job.title)
    if job.active:
        percent = round(100 * job.progress)
        left = f", {duration(job.seconds_left)} left" if job.seconds_left is not None else ""
        return (
            f'<div class="run"><span>{title}<span class="hint tnum">{escape(job.message)}{left}</span></span>'
            f'<span class="hint tnum">{percent} %</span><div class="progress" role="progressbar" aria-valuemin="0" '
            f'aria-valuemax="100" aria-valuenow="{percent}" aria-label="{title}">'
            f'<i style="width:{percent}%"></i></div><span class="hint wide">{cancelled}</span></div>'
        )
    if job.status == "done":
        return f'<p class="hint">{title}: finished, shown as the result.</p>'
    why = f" {escape(job.error)}" if job.error else ""
    kept = " What was done is kept." if job.resumable else ""
    sentence = f"{title} {ENDED.get(job.status, job.status)}.{why}{kept}"
    return f'<ul class="cautions"><li>{icon("tri")}<span>{sentence}</span></li></ul>'


def job_said(job: JobView | None) -> str:
    """The same for a screen reader, in steps of a quarter, so that it is not told of every change."""
    if job is None:
        return ""
    if job.active:
        return f"{escape(job.title)}: {25 * int(4 * job.progress)} % done."
    return f"{escape(job.title)} {ENDED.get(job.status, 'is finished')}."


def resumable_jobs(jobs: Sequence[JobView]) -> str:
    """Runs that ended before they were done, and can go on."""
    items = "".join(
        f'<li><span>{escape(job.title)}<br><span class="hint tnum">{ENDED.get(job.status, job.status)} at '
        f"{round(100 * job.progress)} %{': ' + escape(job.error) if job.error else ''}</span></span>"
        f'<button type="button" class="btn small" data-do="resume" data-id="{job.id}" '
        f'aria-label="Resume {escape(job.title)}">Resume</button></li>'
        for job in jobs
        if job.resumable and not job.active and job.status != "done"
    )
    return f'<div class="bar"><h3>Not finished</h3></div><ul class="unfinished">{items}</ul>' if items else ""


def runs_list(found: Sequence[CalibrationSummary], shown: int | None) -> str:
    """Past runs, newest first."""
    if not found:
        return '<p class="sub">No calibration yet. The first one that you make is listed here.</p>'
    return f'<ul class="runlist">{"".join(_run(item, item.id == shown) for item in found)}</ul>'


def _run(item: CalibrationSummary, current: bool) -> str:
    what = "The calibration goes for good. Audits that used it keep their results and its name."
    name = escape(item.name)
    delete = (
        '<span class="hint">comes with the program</span>'
        if item.embedded
        else f'<button type="button" class="btn small quiet" data-do="delete" data-id="{item.id}" '
        f'data-name="{name}" data-what="{what}" aria-label="Delete {name}">Delete</button>'
    )
    return (
        f'<li{" aria-current=true" if current else ""}><button type="button" class="link" data-do="show" '
        f'data-id="{item.id}">{name}</button>{delete}<span class="hint tnum">{run_facts(item)}</span></li>'
    )


def run_facts(item: CalibrationSummary) -> str:
    """Model, source and settings of a run in one line."""
    kind = LAYOUTS.get(item.mask_layout, "") if item.certified_in == "both" else "factual reading alone, "
    lam = f"λ {item.lam:.2f}, " if item.certified_in == "both" else ""
    return (
        f"{escape(item.model)}, {SOURCES.get(item.source, item.source)}, {kind}"
        f"{ESTIMATOR_NAMES.get(item.estimator, item.estimator)}, {lam}α {level(item.alpha)}, "
        f"{plural(item.contexts, 'context')}, {day(item.created_at)}"
    )


MOST_ERRORS = 5000
"""Rows of the table of errors; a browser cannot lay out many more."""

FIELD_HELP = {
    "prompt": "required",
    "reference": "its true continuation",
    "spans": "JSON list of [start, end, family]",
    "group": "whom the prompt is about",
    "context": "what belongs together and counts as one",
    "weight": "how likely in use",
}
"""What each field of a prompt set holds, in a few words."""

UNMAPPED = '<p class="sub">Choose the column that holds the prompts.</p>'


def prompt_set(parsed: ParsedPromptSet) -> str:
    """An uploaded prompt set: its name, size and format, and the columns that were not read."""
    kilobytes = max(1, round(parsed.size / 1024))
    ignored = (
        f'<p class="hint">Not read: {escape(", ".join(parsed.ignored_columns))}.</p>' if parsed.ignored_columns else ""
    )
    choose = "" if "prompt" in dict(parsed.mapping) else UNMAPPED
    grouped = f'<p class="hint">{escape(grouping)}</p>' if (grouping := grouping_note(parsed)) else ""
    return (
        f'<p class="sub tnum"><strong>{escape(parsed.filename)}</strong>, {plural(parsed.total, "row")}, '
        f"{count(kilobytes)} KB, {escape(parsed.format)}</p>{ignored}{choose}{grouped}"
    )


def samples_list(samples: Sequence[SamplePromptSet]) -> str:
    """Buttons that load a prompt set which comes with the program."""
    if not samples:
        return ""
    buttons = "".join(
        f'<button type="button" class="btn small" data-do="sample" data-id="{place}" '
        f'title="{escape(item.description)}">{escape(item.title)}<span class="hint tnum">{count(item.rows)}</span>'
        "</button>"
        for place, item in enumerate(samples)
    )
    return f'<div class="samples"><span class="hint">Or try a sample:</span>{buttons}</div>'


def needs_mapping(parsed: ParsedPromptSet) -> bool:
    """Whether a reader should look at the columns: one that matters was not found, and others were left over."""
    found = dict(parsed.mapping)
    return "prompt" not in found or ("reference" not in found and bool(parsed.ignored_columns))


def column_choices(parsed: ParsedPromptSet) -> list[tuple[str, str]]:
    """The file's columns for a menu; the empty one reads a field from none."""
    return [("none", ""), *((column, column) for column in parsed.columns)]


def bad_rows(errors: Sequence[RowError]) -> int:
    """Rows with something wrong."""
    return len({error.line for error in errors})


def row_errors(errors: Sequence[RowError], total: int) -> str:
    """The rows that cannot be used: line, column, and what is wrong."""
    if not errors:
        return ""
    rows = [[str(error.line), escape(error.column), escape(error.message)] for error in errors[:MOST_ERRORS]]
    rest = len(errors) - len(rows)
    more = f'<p class="hint">{count(rest)} more; correct these first.</p>' if rest else ""
    head = [("Line", "n"), ("Column", ""), ("What is wrong", "")]
    return (
        f'<div class="bar"><h3>Rows that can’t be used</h3><span class="hint tnum">{count(bad_rows(errors))} of '
        f'{count(total)}</span></div><div class="scroller" role="region" tabindex="0" '
        f'aria-label="Rows that cannot be used">{table(head, rows, "errors", "Rows that cannot be used")}</div>{more}'
    )


def accept_label(good: int) -> str:
    """The words beside the choice to leave bad rows out."""
    return f"Go on with the {plural(good, 'good row')}"


def preview_rows(rows: Sequence[PromptPreview], total: int) -> str:
    """The first rows with their spans marked, and whether these were found or given."""
    if not rows:
        return '<p class="sub">No row can be used.</p>'
    items = "".join(_preview_row(row) for row in rows)
    shown = f"first {count(len(rows))} of {count(total)}" if total > len(rows) else plural(total, "row")
    return (
        f'<div class="bar"><h3>As they will be masked</h3><span class="hint tnum">{shown}</span></div>'
        f'<div class="scroller" role="region" tabindex="0" aria-label="First rows with their spans">'
        f'<ol class="preview">{items}</ol></div>'
    )


def marked_text(text: str, spans: Sequence[Span]) -> str:
    """A text with its spans marked as on the audit page; offsets count code points."""
    pieces, at = [], 0
    for span in sorted(spans):
        if span.start < at:
            continue
        name = FAMILY_NAMES.get(span.category, span.category)
        kept = " white" if span.kept else ""
        pieces.append(escape(text[at : span.start]))
        pieces.append(
            f'<span class="span f-{escape(span.category)}{kept}">{escape(text[span.start : span.end])}'
            f'<span class="vh">, </span><span class="fam">{escape(name)}{", kept" if span.kept else ""}</span></span>'
        )
        at = span.end
    return "".join([*pieces, escape(text[at:])])


def _preview_row(row: PromptPreview) -> str:
    masked = [span for span in row.spans if span.masked]
    if not masked:
        state = f'{icon("tri")}<span class="caution">nothing is masked</span>'
    else:
        state = f"{plural(len(masked), 'span')} {'detected' if row.detected else 'given in the file'}"
    more = "".join(
        f", {name} {escape(value)}" for name, value in (("group", row.group), ("context", row.context)) if value
    )
    reference = f' <span class="ref">{escape(row.reference)}</span>' if row.reference else ""
    return (
        f'<li><p class="hint tnum">Line {row.line}: {state}{more}</p>'
        f'<p class="marked">{marked_text(row.prompt, row.spans)}{reference}</p></li>'
    )


def _more_contexts(found: CalibrationEstimate) -> str:
    """What would give more contexts: other values of the column that merges rows, or more rows."""
    if found.contexts == found.prompts:
        return "Add prompts"
    return (
        f"{plural(found.prompts, 'row')} count as {count(found.contexts)}, because rows with the same context count "
        "once: give rows that do not belong together contexts of their own, add prompts"
    )


def estimate_panel(found: CalibrationEstimate, alpha: float, share: float) -> str:
    """What a calibration will take and whether its contexts suffice."""
    kept = round(found.contexts * (1 - share))
    lines = [
        f"<strong>{plural(found.prompts, 'prompt')}, {plural(found.contexts, 'context')}</strong>: about {count(kept)} "
        f"to calibrate, {count(found.contexts - kept)} kept apart. Alpha {level(alpha)} needs at least "
        f"{count(found.needed)}.",
        f"It takes {duration(found.seconds)} here, judged by a trial with {plural(found.tried, 'prompt')}.",
    ]
    cautions = []
    if kept < found.needed:
        cautions.append(f"Too few contexts: every token would pass. {_more_contexts(found)}, or choose a larger alpha.")
    if found.unmasked:
        verb = "masks" if found.unmasked == 1 else "mask"
        seen = "" if found.looked_at is None else f" of the {count(found.looked_at)} looked at"
        cautions.append(
            f"{plural(found.unmasked, 'prompt')}{seen} {verb} nothing, so both views are equal there. Give spans "
            "in the file, mask more families, or use a word list."
        )
    warned = "".join(f"<li>{icon('tri')}<span>{text}</span></li>" for text in cautions)
    body = "".join(f'<p class="sub tnum">{line}</p>' for line in lines)
    return f'<div class="estimate">{body}{f"<ul class=cautions>{warned}</ul>" if warned else ""}</div>'
