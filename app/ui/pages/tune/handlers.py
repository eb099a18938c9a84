"""What the tuning page asks of the services."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import gradio as gr

from app.bootstrap import Services
from app.services.errors import ServiceError
from app.services.views import AuditSettings, JobView
from app.services.views.tuning import TuningRequest
from app.ui.errors import shown
from app.ui.figures_tune import tuning_figure
from app.ui.job_watch import JobKind
from app.ui.presenters_tune import EMPTY, read_set, run_details, runs_list

SAMPLING = ("max_new_tokens", "temperature", "top_p", "top_k")
"""Controls of the page beside model and methods, in their order."""

LEFT = "A run that is cancelled keeps the points that are measured, and chooses none."


class TuneHandlers:
    """Files, runs and their results."""

    def __init__(self, services: Services) -> None:
        """Keep the services, and a folder for samples and downloads that lives as long as the page."""
        self._tunings = services.tunings
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

    @property
    def runs(self) -> JobKind:
        """The runs as jobs that the page follows; a finished job is the record of its run."""
        return JobKind("tuning", self._begin, _run, self._newest, cancelled=LEFT, keeps_parts=True)

    def _begin(
        self, path: str | None, name: str, model: str, policies: list[str], on: str | None, source: str, *sampling: Any
    ) -> int:
        if path is None:
            raise ServiceError("No set is chosen: upload one, or take the sample.")
        controls = dict(zip(SAMPLING, sampling, strict=True))
        if any(value is None for value in controls.values()):
            raise ServiceError("A sampling control is empty; give it a number.")
        settings = AuditSettings(
            model=model,
            temperature=float(controls["temperature"]),
            top_p=float(controls["top_p"]),
            top_k=int(controls["top_k"]),
            max_new_tokens=int(controls["max_new_tokens"]),
        )
        request = TuningRequest(name.strip() or Path(path).stem, tuple(policies), settings, calibration_source=source)
        tuning_set = self._tunings.read(Path(path), Path(path).name)
        return self._tunings.submit(tuning_set, request, None if on is None else Path(on))

    def _newest(self, request: gr.Request) -> int | None:
        return next((run.id for run in self._tunings.list()), None)

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


def _run(job: JobView) -> int:
    return job.id
