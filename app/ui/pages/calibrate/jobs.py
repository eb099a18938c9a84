"""The run: begun, watched, cancelled, resumed, and found again after a reload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from app.services.ports import Services
from app.ui.components.calibration_form import CalibrationForm, markup
from app.ui.errors import shown
from app.ui.pages.calibrate.common import EVENT, asked
from app.ui.pages.calibrate.prompts import PromptHandlers, PromptPart
from app.ui.presenters_calibrate import ACTIVE, job_said, job_status, resumable_jobs

POLL_SECONDS = 0.7


@dataclass(frozen=True, slots=True)
class JobPart:
    """The controls of a run."""

    job: gr.State
    shown_id: gr.State
    timer: gr.Timer
    run: gr.Button
    cancel: gr.Button
    status: gr.HTML
    said: gr.HTML
    unfinished: gr.HTML

    @property
    def watched(self) -> list[Any]:
        """What a look at the job changes."""
        return [self.job, self.shown_id, self.status, self.said, self.timer, self.cancel, self.unfinished]


class JobHandlers:
    """What the page asks of the services about runs."""

    def __init__(self, services: Services) -> None:
        """Keep the services."""
        self._calibrations = services.calibrations
        self._jobs = services.jobs

    @shown
    def submit(self, shown_id: int | None, path: str | None, accept: bool, *values: Any) -> list[Any]:
        """Begin a calibration job."""
        what = asked(self._calibrations, path, accept, values)
        return self._watched(self._calibrations.submit(what.prompts, what.request), shown_id)

    @shown
    def poll(self, number: int | None, shown_id: int | None) -> list[Any]:
        """Look at the running job; when it ends, show what it made."""
        return self._watched(number, shown_id)

    @shown
    def cancel(self, number: int | None) -> None:
        """Ask the job to stop."""
        if number is not None:
            self._jobs.cancel(number)

    @shown
    def resume(self, event: gr.EventData, shown_id: int | None) -> list[Any]:
        """Go on with a run from what it had done."""
        return self._watched(self._calibrations.resume(int(event.id)), shown_id)

    @shown
    def opened(self, request: gr.Request) -> list[Any]:
        """The run that the address names, else the newest; and a job that is still at work."""
        found = [item.id for item in self._calibrations.list()]
        asked_for = str(request.query_params.get("run", ""))
        wanted = int(asked_for) if asked_for.isdigit() else None
        return self._watched(self._at_work(), wanted if wanted in found else next(iter(found), None))

    def _at_work(self) -> int | None:
        return next((job.id for job in self._jobs.list("calibration") if job.status in ACTIVE), None)

    def _watched(self, number: int | None, shown_id: int | None) -> list[Any]:
        job = None if number is None else self._jobs.get(number)
        running = job is not None and job.status in ACTIVE
        made = job.result if job is not None and job.status == "done" else None
        seen = int(str(made["calibration_id"])) if made else shown_id
        following = number if running else self._at_work()
        busy = following is not None
        return [
            following, seen, job_status(job), job_said(job), gr.Timer(active=busy), gr.Button(visible=busy),
            gr.skip() if running else resumable_jobs(self._jobs.list("calibration")),
        ]  # fmt: skip


def run_button() -> tuple[gr.Button, gr.Button]:
    """Place what begins and what ends a run."""
    with gr.Row(elem_classes=["go"]):
        run = gr.Button("Run", variant="primary", interactive=False, elem_id="run")
        cancel = gr.Button("Cancel", visible=False, elem_id="cancel")
    return run, cancel


def job_part(run: gr.Button, cancel: gr.Button) -> JobPart:
    """Place what is said of a run, and the runs that can be resumed."""
    job, shown_id = gr.State(None), gr.State(None)
    timer = gr.Timer(POLL_SECONDS, active=False)
    status = markup("", "job")
    said = gr.HTML("", apply_default_css=False, elem_id="job-said", elem_classes=["coft", "said-only"])
    unfinished = gr.HTML(
        js_on_load="coft.list.mount(element, trigger); /* 'resume' */",
        apply_default_css=False,
        elem_id="unfinished",
        elem_classes=["coft"],
    )
    return JobPart(job, shown_id, timer, run, cancel, status, said, unfinished)


def wire_jobs(
    app: gr.Blocks,
    handlers: JobHandlers,
    part: JobPart,
    prompts: PromptPart,
    form: CalibrationForm,
    check: PromptHandlers,
) -> None:
    """Connect everything about runs; a refused run names the rows that refuse it."""
    inputs = [prompts.file, *prompts.columns, *form.inputs]
    begun = part.run.click(
        handlers.submit, [part.shown_id, prompts.file, prompts.accept, *inputs[1:]], part.watched, **EVENT
    )
    begun.failure(check.check, inputs, [prompts.errors, prompts.accept], **EVENT)
    part.timer.tick(handlers.poll, [part.job, part.shown_id], part.watched, **EVENT)
    part.cancel.click(handlers.cancel, part.job, None, **EVENT)
    part.unfinished.resume(handlers.resume, part.shown_id, part.watched, **EVENT)
    app.load(handlers.opened, None, part.watched, **EVENT)
