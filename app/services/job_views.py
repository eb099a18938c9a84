"""Background jobs as pages see them."""

from __future__ import annotations

from collections.abc import Sequence

from app.jobs import JobRunner
from app.services.errors import ServiceError
from app.services.views import JobView
from app.services.views.jobs import ACTIVE
from db.records import JobRecord
from db.repositories import JobsRepository, PromptSetsRepository

CALIBRATION_JOB = "calibration"
RESUMABLE = ("cancelled", "failed", "interrupted")
RESUMED_AS = "resumed_as"
"""Key in a job's result: the job that took up what it had done."""


class JobService:
    """Looks jobs up and asks them to stop."""

    def __init__(self, runner: JobRunner, jobs: JobsRepository, prompt_sets: PromptSetsRepository) -> None:
        """Wire the service to the runner of this process, to the rows of all, and to what jobs work on."""
        self._runner = runner
        self._jobs = jobs
        self._prompt_sets = prompt_sets

    def get(self, job_id: int) -> JobView:
        """A job's state."""
        return self._views([self._runner.get(job_id)])[0]

    def find(self, job_id: int | None) -> JobView | None:
        """A job's state, or None for what has no job."""
        return None if job_id is None else self.get(job_id)

    def list(self, kind: str | None = None, limit: int = 20) -> tuple[JobView, ...]:
        """Jobs, newest first."""
        return self._views(self._runner.list(kind, limit=limit))

    def cancel(self, job_id: int) -> None:
        """Ask a job to stop; it stops at its next check.

        Raises:
            ServiceError: The job runs in another process.
        """
        if not self._runner.cancel(job_id) and self._jobs.get(job_id).status in ACTIVE:
            raise ServiceError(f"Job {job_id} runs in another process; cancel it there.")

    def wait(self, job_id: int, timeout: float | None = None) -> JobView:
        """Wait until a job has ended."""
        return self._views([self._runner.wait(job_id, timeout)])[0]

    def _views(self, records: Sequence[JobRecord]) -> tuple[JobView, ...]:
        asked = {number for record in records if isinstance(number := record.payload.get("prompt_set_id"), int)}
        stored = self._prompt_sets.existing(asked) if asked else set()
        return tuple(
            _view(record, self._runner.seconds_left(record.id), is_resumable(record, stored)) for record in records
        )


def _view(record: JobRecord, seconds_left: float | None, resumable: bool) -> JobView:
    return JobView(
        id=record.id,
        kind=record.kind,
        title=record.title,
        status=record.status,
        progress=record.progress,
        message=record.message,
        error=record.error,
        result=record.result,
        seconds_left=seconds_left,
        resumable=resumable,
    )


def is_resumable(record: JobRecord, prompt_sets: set[int]) -> bool:
    """Whether a job is a calibration that can be resumed.

    Args:
        record: The job.
        prompt_sets: Ids of stored prompt sets.
    """
    ended = record.kind == CALIBRATION_JOB and record.status in RESUMABLE and RESUMED_AS not in (record.result or {})
    return ended and record.payload.get("prompt_set_id") in prompt_sets
