"""A background job on a page: begun, watched, cancelled, resumed, and found again after a reload."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component
from gradio.events import Dependency
from starlette.requests import Request

from app.jobs.long_run import LongRun
from app.jobs.service import ENDED, JobView
from app.shared.components import listing, markup
from app.shared.errors import ServiceError
from app.shared.events import EVENT, MULTIPLE, shown, shown_to
from app.shared.markup import html, laid_out
from app.shared.needs import READ

POLL_SECONDS = 0.7

OF_ANOTHER = "Another reviewer began this run, and only they can cancel and resume it."


def job_status(job: JobView | None, cancelled: str = LongRun.kept) -> str:
    """A job: progress while it runs, one sentence when it ended; ``cancelled`` says what becomes of a cancelled run."""
    if job is None:
        return ""
    return laid_out(
        "shared/job_status.html",
        job=job,
        percent=round(100 * job.progress),
        cancelled=cancelled,
        ended=ENDED,
    )


def job_said(job: JobView | None) -> str:
    """The same for a screen reader, in steps of a quarter, so that it is not told of every change."""
    if job is None:
        return ""
    if job.active:
        return html("{{ title }}: {{ done }} % done.", title=job.title, done=25 * int(4 * job.progress))
    return html("{{ title }} {{ ended }}.", title=job.title, ended=ENDED.get(job.status, "is finished"))


def resumable_jobs(jobs: Sequence[JobView]) -> str:
    """Runs that ended before they were done, and can go on."""
    return laid_out(
        "shared/resumable_jobs.html",
        jobs=[job for job in jobs if job.resumable and not job.active and job.status != "done"],
        ended=ENDED,
    )


def asked_number(request: gr.Request | Request, name: str) -> int | None:
    """A number that the address names; None where there is none, or something else in its place."""
    text = str(request.query_params.get(name, ""))
    return int(text) if text.isdecimal() and len(text) < LONGEST_NUMBER else None


LONGEST_NUMBER = 19
"""Digits of a number that no store can have."""


@dataclass(frozen=True, slots=True)
class JobPart:
    """The controls of a job: the ids of the followed one and of the shown result, and how far it is."""

    job: gr.State
    shown_id: gr.State
    timer: gr.Timer
    run: gr.Button
    cancel: gr.Button
    status: gr.HTML
    said: gr.HTML
    unfinished: gr.HTML | None

    @property
    def watched(self) -> list[Component]:
        """What a look at the job changes."""
        always: list[Component] = [self.job, self.shown_id, self.status, self.said, self.timer, self.cancel]
        return always if self.unfinished is None else [*always, self.unfinished]


class JobWatch:
    """What a page asks about its long runs; every method answers one event."""

    def __init__(self, run: LongRun, begin: Callable[..., int], resume: Callable[[int], int] | None = None) -> None:
        """``begin`` starts a job with the values of the page's form, ``resume`` goes on with one that ended early."""
        self._run, self._begin, self._resume = run, begin, resume

    @shown
    def begin(self, shown_id: int | None, *values: Any) -> list[Any]:
        """Begin a job with the values of the form."""
        return self._watched(self._begin(*values), shown_id)

    @shown_to(READ)
    def poll(self, job_id: int | None, shown_id: int | None) -> list[Any]:
        """Look at the followed job; when it ends, show what it made."""
        return self._watched(job_id, shown_id)

    @shown
    def cancel(self, job_id: int | None) -> None:
        """Ask the job to stop."""
        if job_id is not None:
            self._run.jobs.cancel(job_id)

    @shown
    def resume(self, event: gr.EventData, shown_id: int | None) -> list[Any]:
        """Go on with a job from what it had done."""
        return self._watched(None if self._resume is None else self._resume(int(event.id)), shown_id)

    @shown_to(READ)
    def opened(self, request: gr.Request) -> list[Any]:
        """What the page shows at first, and a job that is still at work."""
        return self._watched(self._at_work(), self._asked(request))

    def _asked(self, request: gr.Request) -> int | None:
        """The run that the address names, or that the job it names has made, else the newest."""
        runs = [run.id for run in self._run.list()]
        asked, job = asked_number(request, self._run.parameter), asked_number(request, "job")
        if job is not None:
            jobs = self._run.jobs.list(self._run.kind, self._run.most_listed)
            asked = next((self._run.made(own) for own in jobs if own.id == job and self._shows(own)), None)
        return asked if asked in runs else next(iter(runs), None)

    def _at_work(self) -> int | None:
        return next((job.id for job in self._own() if job.active), None)

    def _shows(self, job: JobView) -> bool:
        """Whether a job has something to be shown."""
        return job.status == "done" or (self._run.shows_parts and not job.active and job.result is not None)

    def _own(self) -> list[JobView]:
        """A page follows and resumes only what its visitor began."""
        return [job for job in self._run.jobs.list(self._run.kind) if job.own]

    def _watched(self, job_id: int | None, shown_id: int | None) -> list[Any]:
        """The values of :attr:`JobPart.watched`."""
        job = None if job_id is None else self._run.jobs.get(job_id)
        running = job is not None and job.active
        result_id = self._run.made(job) if job is not None and self._shows(job) else shown_id
        following = job_id if running else self._at_work()
        busy = following is not None
        watched = [
            following, result_id, job_status(job, self._run.kept), job_said(job), gr.Timer(active=busy),
            gr.Button(visible=busy),
        ]  # fmt: skip
        if self._resume is not None:
            watched.append(gr.skip() if running else resumable_jobs(self._own()))
        return watched


@shown_to(READ)
def _show(event: gr.EventData) -> int:
    """Show another run."""
    return int(event.id)


def past_runs(shown_id: gr.State, *events: str) -> gr.HTML:
    """Place the list of past runs, in which the one to show is chosen; ``events`` are further ones of a run."""
    with gr.Column(elem_classes=["group"]):
        markup('<div class="bar"><h2>Past runs</h2></div>')
        runs = listing("runs", "show", *events)
    runs.show(_show, None, shown_id, **MULTIPLE)
    return runs


def chosen(shown_id: int | None) -> int:
    """The run that a page shows."""
    if shown_id is None:
        raise ServiceError("No run is shown; choose one from the list.")
    return shown_id


def run_buttons() -> tuple[gr.Button, gr.Button]:
    """Place what begins and what ends a job."""
    with gr.Row(elem_classes=["go"]):
        run = gr.Button("Run", variant="primary", interactive=False, elem_id="run")
        cancel = gr.Button("Cancel", visible=False, elem_id="cancel")
    return run, cancel


def job_part(run: gr.Button, cancel: gr.Button, resumable: bool) -> JobPart:
    """Place how far a job is, and the jobs that can be resumed where the page resumes them."""
    job, shown_id = gr.State(None), gr.State(None)
    timer = gr.Timer(POLL_SECONDS, active=False)
    status = markup("", "job")
    said = gr.HTML("", apply_default_css=False, elem_id="job-said", elem_classes=["coft", "said-only"])
    unfinished = listing("unfinished", "resume") if resumable else None
    return JobPart(job, shown_id, timer, run, cancel, status, said, unfinished)


def wire_job(app: gr.Blocks, watch: JobWatch, part: JobPart, inputs: Sequence[Component]) -> Dependency:
    """Connect everything about a page's jobs."""
    begun: Dependency = part.run.click(watch.begin, [part.shown_id, *inputs], part.watched, **EVENT)
    begun.success(None, None, None, js="() => coft.bell.look()")
    wire_watched(app, watch, part)
    return begun


def wire_watched(app: gr.Blocks, watch: JobWatch, part: JobPart) -> None:
    """Connect everything about a page's jobs but what begins one."""
    part.timer.tick(watch.poll, [part.job, part.shown_id], part.watched, **EVENT)
    part.cancel.click(watch.cancel, part.job, None, **EVENT)
    if part.unfinished is not None:
        part.unfinished.resume(watch.resume, part.shown_id, part.watched, **EVENT)
    app.load(watch.opened, None, part.watched, **EVENT)
