"""What the calibrate page says of jobs and past runs, as markup."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from app.services.views import CalibrationSummary, JobView
from app.ui.components.markup import icon
from app.ui.presenters_format import day, duration, level, plural

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
