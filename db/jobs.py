"""Background jobs as rows, so that a page sees their progress and a restart what was left unfinished."""

from __future__ import annotations

import builtins
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Literal, get_args

import sqlalchemy as sa

from db.scope import WHOLE
from db.tables import (
    METADATA,
    NEVER_REUSED,
    Repository,
    Store,
    add_row,
    change_row,
    columns,
    counted_columns,
    fields_in,
    find,
    project_column,
)
from db.types import CompressedBytes, ConflictError, JsonObject, UtcDateTime, mended, utc_now

JobStatus = Literal["queued", "running", "done", "failed", "cancelled", "interrupted"]
"""The life of a job; ``interrupted`` means that its process ended before it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A background job."""

    id: int
    kind: str
    title: str
    status: JobStatus
    progress: float
    message: str
    error: str | None
    payload: JsonObject
    result: JsonObject | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    heartbeat_at: datetime | None
    owner: str | None = None
    process: JsonObject | None = None


SUBJECTS = ("batch_id", "evaluation_id", "comparison_id", "comparison", "experiment")
"""What a job's payload may name that it is about; the rest of it is long, and nobody is told of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNotice:
    """What the owner of a job is told of it."""

    id: int
    kind: str
    title: str
    status: JobStatus
    progress: float
    message: str
    error: str | None
    finished_at: datetime | None
    seen_at: datetime | None
    subject: JsonObject


UNFINISHED: tuple[JobStatus, ...] = ("queued", "running")
RESUMED_AS = "resumed_as"
"""Key in a job's result: the job that took up what it had done."""
INTERRUPTED = "The program ended before this job did; resume it, or start it again."

jobs = sa.Table(
    "jobs",
    METADATA,
    *columns(JobRecord),
    sa.Column("cancel_asked_at", UtcDateTime, nullable=True),
    sa.Column("seen_at", UtcDateTime, nullable=True),
    sa.Column("dismissed_at", UtcDateTime, nullable=True),
    project_column(),
    *counted_columns(),
    sa.Index(None, "status"),
    sa.Index(None, "created_at"),
    sa.Index(None, "owner"),
    sa.CheckConstraint(
        "status IN ('queued', 'running', 'done', 'failed', 'cancelled', 'interrupted')", name="known_status"
    ),
    sa.CheckConstraint("progress >= 0 AND progress <= 1", name="progress_is_share"),
    info={"called": "job"},
    **NEVER_REUSED,
)

ledgers = sa.Table(
    "job_ledgers",
    METADATA,
    sa.Column("job_id", sa.Integer, sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("prompt_set_id", sa.Integer, sa.ForeignKey("prompt_sets.id", ondelete="CASCADE"), nullable=False),
    sa.Column("data", CompressedBytes, nullable=False),
    sa.Column("saved_at", UtcDateTime, nullable=False),
    sa.Index(None, "prompt_set_id"),
)
"""What unfinished jobs have worked out so far, so that they can be resumed."""


def give_to_job(connection: sa.Connection, table: sa.Table, key: int, job_id: int) -> None:
    """Make a job the one that runs what a row is about, unless another one still does."""
    row = find(connection, table, key, lock=True)
    find(connection, jobs, job_id)
    if row.job_id not in (None, job_id) and find(connection, jobs, row.job_id).status in UNFINISHED:
        called = table.info["called"]
        raise ConflictError(f"The {called} “{row.name}” is being run already; wait for it, or cancel it.")
    change_row(connection, table, key, job_id=job_id)


class JobsRepository(Repository[JobRecord]):
    """Keeps the rows of jobs; it runs nothing itself."""

    _table, _kind = jobs, JobRecord
    _query = sa.select(*fields_in(JobRecord, jobs))

    def add(
        self,
        kind: str,
        title: str,
        payload: JsonObject | None = None,
        *,
        owner: str | None = None,
        process: JsonObject | None = None,
    ) -> JobRecord:
        """Store a new job as ``queued``."""
        now = utc_now()
        told: dict[str, object] = {"kind": kind, "title": title, "payload": payload or {}}
        told |= {"owner": owner, "process": process, "created_at": now, "heartbeat_at": now}
        with self._database.writing() as connection:
            key = add_row(connection, jobs, **told, status="queued", progress=0.0, message="")
            return self._one(connection, key)

    def list(
        self,
        kind: str | None = None,
        statuses: Collection[JobStatus] | None = None,
        limit: int | None = 100,
        offset: int = 0,
    ) -> list[JobRecord]:
        """Return jobs, newest first, of one kind or of some statuses if asked; all of them without a limit."""
        query = self._query.order_by(jobs.c.id.desc()).limit(limit).offset(offset)
        if kind is not None:
            query = query.where(jobs.c.kind == kind)
        if statuses is not None:
            query = query.where(jobs.c.status.in_(statuses))
        return self._listed(query)

    def notices(self, owners: Collection[str] | None, limit: int = 50) -> builtins.list[JobNotice]:
        """What owners are told of their jobs, newest first, without those they dismissed; None is all jobs."""
        told = [jobs.c[field.name] for field in fields(JobNotice) if field.name in jobs.c]
        subjects = [jobs.c.payload[name].label(name) for name in SUBJECTS]
        query = sa.select(*told, *subjects)
        if owners is not None:
            query = query.where(jobs.c.owner.in_(owners), jobs.c.dismissed_at.is_(None))
        with self._database.reading() as connection:
            rows = [row._asdict() for row in connection.execute(query.order_by(jobs.c.id.desc()).limit(limit))]
        return [
            JobNotice(**row, subject={name: value for name, value in named.items() if value is not None})
            for row in rows
            for named in [{name: row.pop(name) for name in SUBJECTS}]
        ]

    def mark_seen(self, job_ids: Collection[int], owners: Collection[str]) -> None:
        """Note that their owners saw that jobs have ended; of those that go on, or belong to others, nothing."""
        self._mark("seen_at", job_ids, owners)

    def dismiss(self, job_ids: Collection[int], owners: Collection[str]) -> None:
        """Tell their owners of jobs no more; of those that go on, or belong to others, nothing changes."""
        self._mark("dismissed_at", job_ids, owners)

    def _mark(self, column: str, job_ids: Collection[int], owners: Collection[str]) -> None:
        ended = jobs.c.id.in_(job_ids) & jobs.c.owner.in_(owners) & jobs.c.status.not_in(UNFINISHED)
        self._run(sa.update(jobs).where(ended, jobs.c[column].is_(None)).values(**{column: utc_now()}))

    def start(self, job_id: int) -> None:
        """Mark a job as running from now on, whatever another process believed of it."""
        now = utc_now()
        self._change(job_id, status="running", error=None, started_at=now, finished_at=None, heartbeat_at=now)

    def set_progress(self, job_id: int, progress: float, message: str) -> None:
        """Write how far a job is: a share from 0 to 1 and what it is doing; also a sign of life."""
        self._change(job_id, progress=progress, message=message, heartbeat_at=utc_now())

    def take_up(self, job_id: int, heir: int) -> None:
        """Note that another job goes on with what one that ended early had done; of several, only one ever does."""
        with self._database.writing() as connection:
            # The second one waits here for the first one's transaction, and sees what it wrote.
            row = find(connection, jobs, job_id, lock=True)
            if row.status in UNFINISHED:
                raise ConflictError(f"Job {job_id} is at work again; wait for it, or cancel it.")
            if first := (row.result or {}).get(RESUMED_AS):
                raise ConflictError(f"Job {job_id} was resumed as job {first} already; look at that one.")
            connection.execute(sa.update(jobs).where(jobs.c.id == job_id).values(result={RESUMED_AS: heir}))

    def ask_to_cancel(self, job_id: int) -> None:
        """Ask whichever process runs a job to cancel it; one that has ended stays as it is."""
        unfinished = (jobs.c.id == job_id) & jobs.c.status.in_(UNFINISHED)
        self._run(sa.update(jobs).where(unfinished).values(cancel_asked_at=utc_now()))

    def renew(self, job_ids: Collection[int], process: JsonObject) -> dict[int, bool]:
        """Give signs of life for jobs, in one transaction; those that the process still runs, and which to cancel."""
        held = jobs.c.id.in_(job_ids) & jobs.c.status.in_(UNFINISHED)
        query = sa.select(jobs.c.id, jobs.c.process, jobs.c.cancel_asked_at).where(held)
        with self._database.writing() as connection:
            rows = connection.execute(query).all()
            own = {row.id: row.cancel_asked_at is not None for row in rows if row.process == process}
            if own:
                connection.execute(sa.update(jobs).where(jobs.c.id.in_(own)).values(heartbeat_at=utc_now()))
            return own

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
        """Write how a job ended."""
        now = utc_now()
        ended: dict[str, object] = {} if result is None else {"result": result}
        ended |= {"status": status, "progress": progress, "message": message, "finished_at": now, "heartbeat_at": now}
        # A sentence may quote what was typed; the job must end whatever that was.
        ended["error"] = None if error is None else mended(error)
        self._change(job_id, **ended)

    def set_result(self, job_id: int, result: JsonObject) -> None:
        """Write what is kept of a job so far, or what became of one that has ended already."""
        self._change(job_id, result=result)

    def counts(self) -> dict[JobStatus, int]:
        """Return how many jobs of all projects there are in each state."""
        query = sa.select(jobs.c.status, sa.func.count()).group_by(jobs.c.status).execution_options(**WHOLE)
        with self._database.reading() as connection:
            found = {status: int(number) for status, number in connection.execute(query)}
        return {status: found.get(status, 0) for status in get_args(JobStatus)}

    def unfinished_of(self, owner: str | None) -> int:
        """Return how many jobs of an owner, in all projects, are queued or running; those of nobody are all's."""
        query = sa.select(sa.func.count()).where(
            jobs.c.status.in_(UNFINISHED), jobs.c.owner.is_not_distinct_from(owner)
        )
        query = query.execution_options(**WHOLE)
        return self._scalar(int, query) or 0

    def unfinished(self) -> Sequence[JobRecord]:
        """Return the jobs that are queued or running, in order."""
        return self._listed(self._query.where(jobs.c.status.in_(UNFINISHED)).order_by(jobs.c.id))

    def mark_interrupted(self, ids: Collection[int], silent_since: datetime | None = None) -> Sequence[int]:
        """Mark jobs whose process is gone as interrupted, or as cancelled where somebody had asked for that.

        Those that ended meanwhile stay as they are.
        """
        dead = jobs.c.status.in_(UNFINISHED) & jobs.c.id.in_(ids)
        if silent_since is not None:
            dead &= jobs.c.heartbeat_at.is_(None) | (jobs.c.heartbeat_at < silent_since)
        cancelled = jobs.c.cancel_asked_at.is_not(None)
        status, error = (
            sa.case((cancelled, "cancelled"), else_="interrupted"),
            sa.case((cancelled, None), else_=INTERRUPTED),
        )
        ended = {"status": status, "error": error, "finished_at": utc_now()}
        with self._database.writing() as connection:
            return sorted(connection.scalars(sa.update(jobs).where(dead).values(**ended).returning(jobs.c.id)))


class LedgersRepository(Store):
    """Keeps at most one ledger a job; it goes with the job and with the prompt set that it is about."""

    def save(self, job_id: int, prompt_set_id: int, data: bytes) -> None:
        """Store a job's ledger, about a prompt set, in the place of its last one, whole or not at all."""
        values = {"job_id": job_id, "prompt_set_id": prompt_set_id, "data": data, "saved_at": utc_now()}
        with self._database.writing() as connection:
            connection.execute(sa.delete(ledgers).where(ledgers.c.job_id == job_id))
            connection.execute(sa.insert(ledgers).values(**values))

    def load(self, job_id: int) -> bytes | None:
        """Return a job's ledger; None if it has none."""
        return self._scalar(bytes, sa.select(ledgers.c.data).where(ledgers.c.job_id == job_id))

    def move(self, job_id: int, to_job_id: int) -> None:
        """Give a job's ledger, if it has one, to another job that has none."""
        with self._database.writing() as connection:
            if connection.execute(sa.select(ledgers.c.job_id).where(ledgers.c.job_id == to_job_id)).first() is not None:
                raise ConflictError(f"Job {to_job_id} has a ledger of its own; resume that job instead.")
            connection.execute(sa.update(ledgers).where(ledgers.c.job_id == job_id).values(job_id=to_job_id))

    def delete(self, job_id: int) -> None:
        """Delete a job's ledger, if it has one."""
        self._run(sa.delete(ledgers).where(ledgers.c.job_id == job_id))
