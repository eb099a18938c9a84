"""What the tuning page asks of the services."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import gradio as gr

from app.services.errors import ServiceError
from app.services.ports import Services
from app.services.views import AuditSettings
from app.services.views.tuning import TuningRequest
from app.ui.errors import shown
from app.ui.figures_tune import tuning_figure
from app.ui.presenters_calibrate import ACTIVE, job_said, job_status
from app.ui.presenters_tune import EMPTY, read_set, run_details, runs_list

LEFT = "A run that is cancelled keeps nothing."


class TuneHandlers:
    """Files, runs and their results."""

    def __init__(self, services: Services) -> None:
        """Keep the services, and a folder for samples and downloads that lives as long as the page."""
        self._tunings = services.tunings
        self._jobs = services.jobs
        self.samples = services.tunings.samples()
        self._folder = tempfile.TemporaryDirectory(prefix="coft-tuning-")

    @shown
    def read(self, path: str | None) -> list[Any]:
        """Read an uploaded set and say what is in it."""
        if path is None:
            return ["", gr.Button(interactive=False)]
        return [read_set(self._tunings.read(Path(path), Path(path).name)), gr.Button(interactive=True)]

    @shown
    def sample(self, event: gr.EventData) -> str:
        """Take a sample as if it had been uploaded; from a folder that the browser may read."""
        found = self.samples[int(event.id)]
        return str(shutil.copy(found.path, Path(self._folder.name) / found.name))

    @shown
    def submit(
        self, shown_id: int | None, path: str | None, name: str, model: str, policies: list[str], on: str | None
    ) -> list[Any]:
        """Begin a run."""
        if path is None:
            raise ServiceError("No set is chosen: upload one, or take the sample.")
        request = TuningRequest(name.strip() or Path(path).stem, tuple(policies), AuditSettings(model=model))
        tuning_set = self._tunings.read(Path(path), Path(path).name)
        number = self._tunings.submit(tuning_set, request, None if on is None else Path(on))
        return self._watched(number, shown_id)

    @shown
    def poll(self, number: int | None, shown_id: int | None) -> list[Any]:
        """Look at the running job; when it ends, show what it found."""
        return self._watched(number, shown_id)

    @shown
    def cancel(self, number: int | None) -> None:
        """Ask the job to stop."""
        if number is not None:
            self._jobs.cancel(number)

    @shown
    def opened(self) -> list[Any]:
        """The newest run, and a job that is still at work."""
        found = self._tunings.list()
        return self._watched(self._at_work(), found[0].id if found else None)

    @shown
    def show(self, event: gr.EventData) -> int:
        """Show another run."""
        return int(event.id)

    @shown
    def result(self, shown_id: int | None) -> list[Any]:
        """A run's picture and figures, and the list of runs."""
        listed = runs_list(self._tunings.list(), shown_id)
        if shown_id is None:
            return [listed, EMPTY, gr.Plot(visible=False), "", gr.Button(visible=False)]
        view = self._tunings.view(shown_id)
        head, table = run_details(view)
        return [listed, head, gr.Plot(tuning_figure(view), visible=True), table, gr.Button(visible=True)]

    @shown
    def csv(self, shown_id: int | None) -> str:
        """Write the shown run for download."""
        if shown_id is None:
            raise ServiceError("No run is shown; choose one from the list.")
        return str(self._tunings.write_csv(shown_id, Path(self._folder.name)))

    def _at_work(self) -> int | None:
        return next((job.id for job in self._jobs.list("tuning") if job.status in ACTIVE), None)

    def _watched(self, number: int | None, shown_id: int | None) -> list[Any]:
        job = None if number is None else self._jobs.get(number)
        running = job is not None and job.status in ACTIVE
        seen = job.id if job is not None and job.status == "done" else shown_id
        following = number if running else self._at_work()
        busy = following is not None
        return [
            following, seen, job_status(job, LEFT), job_said(job), gr.Timer(active=busy), gr.Button(visible=busy),
        ]  # fmt: skip
