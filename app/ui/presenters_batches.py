"""What the batches page says of a batch: its settings, how far it is, and the list of all batches."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from app.services.policy_words import info_of, parameters_line
from app.services.views.batches import BatchEstimate, BatchRequest, BatchSummary, BatchView
from app.ui.components.markup import badge, icon
from app.ui.presenters_batch_query import BatchQuery
from app.ui.presenters_batch_rows import rows_message
from app.ui.presenters_calibrate import ENDED, job_said, job_status
from app.ui.presenters_format import count, day, duration, level, plural
from app.ui.presenters_library import Message

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
