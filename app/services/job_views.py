"""Background jobs as pages see them."""

from __future__ import annotations

from app.jobs import JobRunner
from app.services.errors import ServiceError
from app.services.views import JobView
from db.records import JobRecord
from db.repositories import JobsRepository


class JobService:
    """Looks jobs up and asks them to stop."""

    def __init__(self, runner: JobRunner, jobs: JobsRepository) -> None:
        """Wire the service to the runner of this process and to the rows of all."""
        self._runner = runner
        self._jobs = jobs

    def get(self, job_id: int) -> JobView:
        """A job's state."""
        return job_view(self._runner.get(job_id))

    def list(self, kind: str | None = None, limit: int = 20) -> tuple[JobView, ...]:
        """Jobs, newest first."""
        return tuple(job_view(record) for record in self._runner.list(kind, limit=limit))

    def cancel(self, job_id: int) -> None:
        """Ask a job to stop; it stops at its next check.

        Raises:
            ServiceError: The job runs in another process.
        """
        if not self._runner.cancel(job_id) and self._jobs.get(job_id).status in ("queued", "running"):
            raise ServiceError(f"Job {job_id} runs in another process; cancel it there.")

    def wait(self, job_id: int, timeout: float | None = None) -> JobView:
        """Wait until a job has ended."""
        return job_view(self._runner.wait(job_id, timeout))


def job_view(record: JobRecord) -> JobView:
    """A job's row for a page."""
    return JobView(
        id=record.id,
        kind=record.kind,
        title=record.title,
        status=record.status,
        progress=record.progress,
        message=record.message,
        error=record.error,
        result=record.result,
    )
