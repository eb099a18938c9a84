"""The run: begun, watched, cancelled, resumed, and found again after a reload."""

from __future__ import annotations

from typing import Any

import gradio as gr

from app.bootstrap import Services
from app.services.views import JobView
from app.ui.components.calibration_form import CalibrationForm
from app.ui.events import EVENT
from app.ui.job_watch import JobKind, JobPart, JobWatch, wire_job
from app.ui.pages.calibrate.common import asked
from app.ui.pages.calibrate.prompts import PromptHandlers, PromptPart


class CalibrationRuns:
    """What a run is made of, and which one the page shows at first."""

    def __init__(self, services: Services) -> None:
        """Keep the services."""
        self._calibrations = services.calibrations

    @property
    def kind(self) -> JobKind:
        """The runs as jobs that the page follows."""
        return JobKind("calibration", self._begin, _made, self._first, self._calibrations.resume)

    def _begin(self, path: str | None, accept: bool, *values: Any) -> int:
        what = asked(self._calibrations, path, accept, values)
        return self._calibrations.submit(what.prompts, what.request)

    def _first(self, request: gr.Request) -> int | None:
        """The run that the address names, else the newest."""
        found = [item.id for item in self._calibrations.list()]
        asked_for = str(request.query_params.get("run", ""))
        wanted = int(asked_for) if asked_for.isdigit() else None
        return wanted if wanted in found else next(iter(found), None)


def _made(job: JobView) -> int:
    return int(str((job.result or {})["calibration_id"]))


def wire_jobs(
    app: gr.Blocks,
    services: Services,
    part: JobPart,
    prompts: PromptPart,
    form: CalibrationForm,
    check: PromptHandlers,
) -> None:
    """Connect everything about runs; a refused run names the rows that refuse it."""
    inputs = [prompts.file, *prompts.columns, *form.inputs]
    watch = JobWatch(services.jobs, CalibrationRuns(services).kind)
    begun = wire_job(app, watch, part, [prompts.file, prompts.accept, *inputs[1:]])
    begun.failure(check.check, inputs, [prompts.errors, prompts.accept], **EVENT)
