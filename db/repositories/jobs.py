"""Background jobs as rows, so that a page sees their progress and a restart what was left unfinished."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import or_, select, update

from db.database import Database
from db.errors import NotFoundError
from db.mapping import to_record
from db.models import Job
from db.records import JobRecord, JobStatus, JsonObject
from db.repositories.common import find
from db.types import mended, utc_now

UNFINISHED: tuple[JobStatus, ...] = ("queued", "running")
INTERRUPTED = "The program ended before this job did; resume it, or start it again."


class JobsRepository:
    """Keeps the rows of jobs; it runs nothing itself."""

    def __init__(self, database: Database) -> None:
        """Work on an open store."""
        self._database = database

    def add(self, kind: str, title: str, payload: JsonObject | None = None) -> JobRecord:
        """Store a new job as ``queued``.

        Args:
            kind: What sort of work.
            title: What a list shows.
            payload: What it is asked, enough to start it again.
        """
        now = utc_now()
        with self._database.session() as session:
            row = Job(
                kind=kind,
                title=title,
                status="queued",
                progress=0.0,
                message="",
                payload=payload or {},
                created_at=now,
                heartbeat_at=now,
            )
            session.add(row)
            session.flush()
            return to_record(JobRecord, row)

    def get(self, job_id: int) -> JobRecord:
        """Return a job.

        Raises:
            NotFoundError: There is none with this id.
        """
        with self._database.reading() as session:
            return to_record(JobRecord, find(session, Job, job_id))

    def list(
        self,
        kind: str | None = None,
        statuses: Collection[JobStatus] | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[JobRecord]:
        """Return jobs, newest first, of one kind or of some statuses if asked."""
        query = select(Job).order_by(Job.id.desc()).limit(limit).offset(offset)
        if kind is not None:
            query = query.where(Job.kind == kind)
        if statuses is not None:
            query = query.where(Job.status.in_(statuses))
        with self._database.reading() as session:
            return [to_record(JobRecord, row) for row in session.scalars(query)]

    def start(self, job_id: int) -> None:
        """Mark a job as running from now on, whatever another process believed of it.

        Raises:
            NotFoundError: There is none with this id.
        """
        now = utc_now()
        self._update(job_id, status="running", error=None, started_at=now, finished_at=None, heartbeat_at=now)

    def set_progress(self, job_id: int, progress: float, message: str) -> None:
        """Write how far a job is: a share from 0 to 1 and what it is doing; also a sign of life.

        Raises:
            NotFoundError: There is none with this id.
            ConflictError: The share is outside 0 to 1.
        """
        self._update(job_id, progress=progress, message=message, heartbeat_at=utc_now())

    def heartbeat(self, job_id: int) -> None:
        """Write a sign of life.

        Raises:
            NotFoundError: There is none with this id.
        """
        self._update(job_id, heartbeat_at=utc_now())

    def finish(
        self,
        job_id: int,
        status: JobStatus,
        *,
        progress: float,
        message: str,
        error: str | None = None,
        result: JsonObject | None = None,
    ) -> None:
        """Write how a job ended.

        Args:
            job_id: The job.
            status: ``done``, ``failed``, ``cancelled`` or ``interrupted``.
            progress: How far it came, 0 to 1.
            message: What it last did.
            error: Why it failed, one sentence.
            result: What it returned; finite numbers only. None leaves what was kept of it before.

        Raises:
            NotFoundError: There is none with this id.
            UnstorableValueError: The result is not JSON.
        """
        now = utc_now()
        returned: dict[str, object] = {} if result is None else {"result": result}
        self._update(
            job_id,
            status=status,
            progress=progress,
            message=message,
            # A sentence may quote what was typed; the job must end whatever that was.
            error=None if error is None else mended(error),
            finished_at=now,
            heartbeat_at=now,
            **returned,
        )

    def set_result(self, job_id: int, result: JsonObject) -> None:
        """Write what is kept of a job so far, or what became of one that has ended already.

        Raises:
            NotFoundError: There is none with this id.
            UnstorableValueError: The result is not JSON.
        """
        self._update(job_id, result=result)

    def mark_interrupted(self, silent_since: datetime | None = None, excluding: Collection[int] = ()) -> Sequence[int]:
        """Mark queued and running jobs, whose process is gone, as interrupted.

        Args:
            silent_since: Only jobs without a sign of life since this moment. A process that alone
                owns the store leaves it out; one that shares the store with another must not.
            excluding: Jobs that are known to be alive.

        Returns:
            The ids of the jobs marked, in order.
        """
        dead = Job.status.in_(UNFINISHED) & Job.id.not_in(excluding)
        if silent_since is not None:
            dead &= or_(Job.heartbeat_at.is_(None), Job.heartbeat_at < silent_since)
        with self._database.session() as session:
            ids = list(session.scalars(select(Job.id).where(dead).order_by(Job.id)))
            session.execute(
                update(Job)
                .where(Job.id.in_(ids))
                .values(status="interrupted", error=INTERRUPTED, finished_at=utc_now())
            )
            return ids

    def _update(self, job_id: int, **columns: object) -> None:
        with self._database.session() as session:
            query = update(Job).where(Job.id == job_id).values(**columns).returning(Job.id)
            if session.scalar(query) is None:
                raise NotFoundError(f"There is no job with the id {job_id}; it may have been deleted.")
