"""The prompts that a stored calibration was made of, for bundles."""

from __future__ import annotations

from dataclasses import replace

from app.services.calibration.fingerprint_parts import detector_parts
from app.services.calibration.requests import request_from_json
from app.services.errors import ServiceError
from app.services.prompts.files import row_from
from app.services.reporting.prompts import CalibrationPrompts, prompts_file
from app.services.word_lists.service import UserListService
from db.errors import NotFoundError
from db.records import CalibrationRecord, SessionRecord
from db.repositories import CalibrationsRepository, JobsRepository, PromptSetsRepository


class PromptsOfCalibrations:
    """Finds what calibrations were made of."""

    def __init__(
        self,
        runs: CalibrationsRepository,
        jobs: JobsRepository,
        prompt_sets: PromptSetsRepository,
        user_lists: UserListService,
    ) -> None:
        """Wire to the store."""
        self._runs, self._jobs = runs, jobs
        self._prompt_sets, self._user_lists = prompt_sets, user_lists

    def file(self, record: SessionRecord) -> bytes:
        """The prompts of a session's calibration as a bundle holds them.

        Raises:
            ServiceError: There is no calibration, or its prompts or what was asked are not stored.
        """
        if record.calibration_id is None:
            raise ServiceError(
                f"Session {record.id} has no calibration whose prompts could be exported; choose the bundle without."
            )
        run = self._runs.get(record.calibration_id)
        try:
            return self._file(run)
        except NotFoundError as error:
            raise ServiceError(
                f"The prompts of the calibration “{run.name}” are no longer stored; choose the bundle without them."
            ) from error

    def _file(self, run: CalibrationRecord) -> bytes:
        job = None if run.job_id is None else self._jobs.get(run.job_id)
        if job is None or run.prompt_set_id is None or "request" not in job.payload:
            raise ServiceError(
                f"The calibration “{run.name}” was not made here from a prompt set, so its prompts are not stored; "
                "choose the bundle without them."
            )
        parts = detector_parts(str(run.fingerprint["detector"]))
        request = request_from_json(job.payload["request"])
        # The program's own choice of families may be another one by now.
        request = request if parts is None else replace(request, masked_families=parts.masked_families)
        listed = None if request.user_list_id is None else self._user_lists.load(request.user_list_id)
        rows = tuple(row_from(row) for row in self._prompt_sets.rows(run.prompt_set_id))
        return prompts_file(CalibrationPrompts(request, rows, listed), self._prompt_sets.get(run.prompt_set_id))
