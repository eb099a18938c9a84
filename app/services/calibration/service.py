"""Prompt sets and calibration runs: what pages and commands ask of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from app.services.calibration.drift import drift_since
from app.services.calibration.estimates import Trial
from app.services.calibration.jobs import CalibrationJobs
from app.services.calibration.readings import CalibrationReadings
from app.services.calibration.shift import estimated_weights, weighted
from app.services.calibration.store import AnyCalibration, CalibrationStore, groups_of, parts_of, renamed
from app.services.calibration.summaries import summary_of
from app.services.detection import Detectors
from app.services.errors import ServiceError
from app.services.model_host import ModelHost
from app.services.prompting import prompted
from app.services.prompts.checks import NOTHING_MASKED, nothing_masked, preview_rows, usable_rows
from app.services.prompts.files import row_from
from app.services.prompts.reading import PromptSetReader
from app.services.prompts.samples import listed_samples, sample_of
from app.services.views import (
    CalibrationEstimate,
    CalibrationRequest,
    CalibrationSummary,
    CalibrationView,
    DriftReport,
    ParsedPromptSet,
    PromptPreview,
    ReadingRequest,
    RowError,
    SamplePromptSet,
)
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.split import context_numbers
from db.records import CalibrationRecord
from db.repositories import PromptSetsRepository, SessionsRepository

DEMO_SAMPLE = {
    "file": "calibration_demo.jsonl",
    "title": "Demo prompts",
    "description": "What the embedded calibration was made with; a prompt and a reference in each row.",
}


class CalibrationService(PromptSetReader):
    """Prompt sets and calibration runs."""

    def __init__(
        self,
        store: CalibrationStore,
        jobs: CalibrationJobs,
        prompt_sets: PromptSetsRepository,
        sessions: SessionsRepository,
        host: ModelHost,
        detectors: Detectors,
        max_upload_bytes: int = 20_000_000,
    ) -> None:
        """Wire the service.

        Args:
            store: Finished calibrations.
            jobs: Starts calibrations.
            prompt_sets: The store of prompt sets.
            sessions: The store of audits, against which drift is measured.
            host: Owner of the models.
            detectors: Find spans where a row names none.
            max_upload_bytes: Largest prompt set that is read.
        """
        super().__init__(max_upload_bytes)
        self._store = store
        self._jobs = jobs
        self._prompt_sets = prompt_sets
        self._sessions = sessions
        self._host = host
        self._detectors = detectors
        self._readings = CalibrationReadings(store)

    def samples(self) -> tuple[SamplePromptSet, ...]:
        """Prompt sets that come with the program, to calibrate on."""
        return (*listed_samples("calibration"), sample_of(DEMO_SAMPLE))

    def row_errors(self, prompts: ParsedPromptSet, request: CalibrationRequest) -> tuple[RowError, ...]:
        """All that is wrong with a prompt set for a request, in the order of lines; loads the model."""
        rows, errors = usable_rows(prompts, request, prompted(self._host.get(request.model), request))
        if rows and nothing_masked(rows, request, self._detectors.choose(request)):
            errors = tuple(sorted((*errors, RowError(rows[0].line, "spans", NOTHING_MASKED)), key=lambda e: e.line))
        return errors

    def preview(
        self, prompts: ParsedPromptSet, request: CalibrationRequest, limit: int = 12
    ) -> tuple[PromptPreview, ...]:
        """The first rows with the spans that will be masked; needs no model."""
        return preview_rows(prompts, request, self._detectors.choose(request), limit)

    def estimate(self, prompts: ParsedPromptSet, request: CalibrationRequest) -> CalibrationEstimate:
        """How long the calibration will take, from a trial of about two seconds; loads the model."""
        # Tokenizing the upload and looking for spans need no turn of the model; only the trial's forwards do.
        trial = Trial(replace(self._jobs.work(prompts, request), room=self._host.memory.room()))
        with self._host.turn():
            return trial.estimate()

    def submit(self, prompts: ParsedPromptSet, request: CalibrationRequest) -> int:
        """Store the prompt set, start the calibration as a job, and return the job's id."""
        return self._jobs.submit(prompts, request)

    def resume(self, job_id: int) -> int:
        """Start a cancelled, failed or interrupted calibration again, from what it had done; the new job's id."""
        return self._jobs.resume(job_id)

    def list(self, model: str | None = None) -> tuple[CalibrationSummary, ...]:
        """Finished calibrations, newest first."""
        return tuple(summary_of(record) for record in self._store.list(model))

    def view(self, calibration_id: int, reading: ReadingRequest | None = None) -> CalibrationView:
        """A calibration read as asked (as it was calibrated by default); needs no model."""
        return self._readings.view(calibration_id, reading)

    def load(self, calibration_id: int) -> AnyCalibration:
        """The calibration itself, values included."""
        return self._store.load(calibration_id)

    def reweight(self, calibration_id: int, deployment: tuple[str, ...], name: str) -> int:
        """Store a calibration anew with weights estimated for other prompts; needs no model. The new one's id.

        Raises:
            ServiceError: Its own prompts are not stored, or an earlier version counted them otherwise.
            InvalidInputError: There are too few prompts, or the weights leave too few contexts.
            NotFoundError: There is no such calibration.
        """
        record, stored = self._store.get(calibration_id), self._store.load(calibration_id)
        if record.prompt_set_id is None:
            raise ServiceError(
                f"The prompts of the calibration “{record.name}” are not stored, so its weights cannot be estimated; "
                "calibrate on a prompt set and ask for weights."
            )
        examples = [row_from(row).example for row in self._prompt_sets.rows(record.prompt_set_id)]
        numbers = context_numbers(examples, by_group=bool(groups_of(stored)))
        if any(_counted_otherwise(part, numbers) for part in parts_of(stored)):
            raise ServiceError(
                f"The calibration “{record.name}” was made by an earlier version, which counted rows of one group as "
                "one context; calibrate again to estimate weights."
            )
        weights = estimated_weights([example.prompt for example in examples], numbers, deployment)
        made = renamed(weighted(stored, weights), name.strip() or f"{record.name}, weighted")
        return self._store.add(made, record.prompt_set_id).id

    def drift(self, calibration_id: int) -> DriftReport:
        """What the audits that used a calibration say against it."""
        return drift_since(self._store.load(calibration_id), calibration_id, self._sessions)

    def export(self, calibration_id: int, folder: Path) -> Path:
        """Write a calibration as a file that the library and the command line load, and return its path."""
        path = folder / f"calibration-{calibration_id}.zip"
        self._store.load(calibration_id).save(path)
        return path

    def delete(self, calibration_id: int) -> None:
        """Delete a calibration; sessions that used it keep its label."""
        self._store.delete(calibration_id)

    def install_embedded(self, path: Path) -> CalibrationRecord | None:
        """Store the calibration that comes with the embedded model, once per version of it."""
        return self._store.install_embedded(path)


def _counted_otherwise(part: Calibration, numbers: Sequence[int]) -> bool:
    """Whether the contexts of a calibration's rows, which are counted from 1, are others than these numbers say."""
    return any(
        number != context
        for values in (part.values, part.verification)
        # Files of the first version name no rows; the values of a context then stand for a row of its number.
        if not np.array_equal(values.rows, values.contexts)
        for number, context in zip(np.array(numbers)[values.rows - 1], values.contexts, strict=True)
    )
