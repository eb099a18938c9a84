"""What unfinished jobs have worked out so far, kept so that they can be resumed."""

from __future__ import annotations

from sqlalchemy import delete, update

from db.database import Database
from db.errors import ConflictError
from db.models import JobLedger
from db.types import utc_now


class LedgersRepository:
    """Keeps at most one ledger a job; it goes with the job and with the prompt set that it is about."""

    def __init__(self, database: Database) -> None:
        """Work on an open store."""
        self._database = database

    def save(self, job_id: int, prompt_set_id: int, data: bytes) -> None:
        """Store a job's ledger in the place of its last one, whole or not at all.

        Args:
            job_id: The job.
            prompt_set_id: The prompt set that it works on.
            data: The ledger's own serialisation; kept compressed, returned as given.

        Raises:
            ConflictError: There is no such job or prompt set.
        """
        with self._database.session() as session:
            session.merge(JobLedger(job_id=job_id, prompt_set_id=prompt_set_id, data=data, saved_at=utc_now()))

    def load(self, job_id: int) -> bytes | None:
        """Return a job's ledger; None if it has none."""
        with self._database.reading() as session:
            row = session.get(JobLedger, job_id)
            return None if row is None else row.data

    def move(self, job_id: int, to_job_id: int) -> None:
        """Give a job's ledger, if it has one, to another job that has none.

        Raises:
            ConflictError: There is no such other job, or it has a ledger.
        """
        with self._database.session() as session:
            if session.get(JobLedger, to_job_id) is not None:
                raise ConflictError(f"Job {to_job_id} has a ledger of its own; resume that job instead.")
            session.execute(update(JobLedger).where(JobLedger.job_id == job_id).values(job_id=to_job_id))

    def delete(self, job_id: int) -> None:
        """Delete a job's ledger, if it has one."""
        with self._database.session() as session:
            session.execute(delete(JobLedger).where(JobLedger.job_id == job_id))
