"""Long work: begun, followed, cancelled, resumed and deleted alike, whatever one unit of it is."""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from app.hosting.model_host import ModelHost
from app.jobs.service import JobContext, JobFunction, JobService, JobView, require_own, whereabouts
from app.jobs.workers import WorkerPool
from app.shared.errors import ServiceError
from app.shared.wiring import Services
from db.jobs import JobRecord, JobStatus
from db.types import JsonObject, NotFoundError

ENDED: tuple[JobStatus, ...] = ("done", "cancelled", "interrupted", "failed")


class LongRun(ABC):
    """Long work of one kind, each of whose runs is a job; pages follow it by :class:`app.jobs.watch.JobWatch`."""

    kind: ClassVar[str]
    """Kind of its jobs."""
    kept: ClassVar[str] = "If you cancel, what is done is kept: the run can be resumed."
    """What becomes of a cancelled run, as its page says."""
    parameter: ClassVar[str] = "run"
    """What the address of its page calls the run to show."""
    most_listed: ClassVar[int] = 1000
    """Past runs that are listed; older ones are found by their number."""
    shows_parts: ClassVar[bool] = False
    """Whether what a job made is shown where it ended early, too."""

    def __init__(self, services: Services) -> None:
        self.jobs, self.host, self.workers = services[JobService], services[ModelHost], services[WorkerPool]

    @abstractmethod
    def list(self) -> Sequence[Any]:
        """Its runs, newest first; each has an ``id``."""

    @abstractmethod
    def made(self, job: JobRecord) -> int:
        """The number of the run that a job made."""


Found = TypeVar("Found")


class RunOfJobs(LongRun, Generic[Found]):
    """Long work whose jobs are all that is stored of it: the payload says what was asked, the result what was found."""

    shows_parts = True

    @abstractmethod
    def work(self, context: JobContext) -> JsonObject:
        """Do all of it."""

    @abstractmethod
    def has_found(self, result: JsonObject) -> bool:
        """Whether a result is worth showing."""

    @abstractmethod
    def found(self, job: JobRecord) -> Found:
        """What a job with such a result has found."""

    def begin(self, title: str, payload: JsonObject, work: JobFunction | None = None) -> int:
        """Start a run as a job; its number."""
        return self.jobs.submit(self.kind, title, work or self.work, payload)

    def made(self, job: JobRecord) -> int:
        """A job is its own run."""
        return job.id

    def list(self) -> tuple[Found, ...]:
        """Runs that have ended and found something, newest first; those that ended early say so."""
        return tuple(self.found(job) for job in self.ended())

    def view(self, run_id: int) -> Found:
        """A run that has found something; one that is still at work as far as it has come."""
        job = self.jobs.get(run_id)
        if job.kind != self.kind or not self.has_found(job.result or {}):
            raise NotFoundError(f"There is no run {run_id} that has found anything; choose one from the list.")
        return self.found(job)

    def ended(self, statuses: tuple[JobStatus, ...] = ENDED) -> builtins.list[JobView]:
        """Jobs that have ended and found something, newest first."""
        jobs = self.jobs.list(self.kind, self.most_listed, statuses)
        return [job for job in jobs if self.has_found(job.result or {})]


class Row(Protocol):
    """A row of the store that names the last job that ran it."""

    @property
    def id(self) -> int:
        """Its number."""

    @property
    def name(self) -> str:
        """What the reviewer calls it."""

    @property
    def job_id(self) -> int | None:
        """The last job that ran it, if it is still known."""


AnyRow = TypeVar("AnyRow", bound=Row)


class Rows(Protocol[AnyRow]):
    """A repository of such rows."""

    def get(self, key: int, /) -> AnyRow:
        """One of them."""

    def begin(self, key: int, job_id: int, /) -> AnyRow:
        """Make a job the one that runs a row, and no other."""

    def delete(self, key: int, /) -> None:
        """Delete one."""

    def together(self) -> AbstractContextManager[None]:
        """One transaction."""


class RunOfRows(LongRun, Generic[AnyRow]):
    """Long work with a row of its own in the store, which any number of jobs take up one after the other."""

    def __init__(self, services: Services, rows: Rows[AnyRow]) -> None:
        super().__init__(services)
        self.rows = rows

    @abstractmethod
    def is_left(self, row: AnyRow) -> bool:
        """Whether something of a row is not done."""

    @abstractmethod
    def work(self, row: AnyRow, context: JobContext) -> JsonObject:
        """Do what is left of a row; what the job says at its end beside the row's number."""

    def about(self, row: AnyRow) -> JsonObject:
        """What the jobs of a row say that it is part of."""
        return {}

    def job(self, row: Row) -> JobView | None:
        """The last job that ran a row."""
        return self.jobs.find(row.job_id)

    def at_work(self, row: Row) -> bool:
        """Whether a job is at work on a row, or waits for its turn."""
        job = self.job(row)
        return job is not None and job.active

    def made(self, job: JobRecord) -> int:
        """The row that a job was about."""
        return int(job.payload[f"{self.kind}_id"])

    def cancel(self, number: int) -> None:
        """Ask the run to stop where it can; what is done stays, and it can be resumed."""
        job_id = self.rows.get(number).job_id
        if job_id is not None:
            self.jobs.cancel(job_id)

    def resume(self, number: int, **about: Any) -> int:
        """Go on with what is not done, the job saying what it is part of; the new job's number."""
        row = self.rows.get(number)
        if not self.is_left(row):
            raise ServiceError(f"Everything of “{row.name}” is done, so there is nothing to resume.")
        return self.begin(row, **about)

    def delete(self, number: int) -> None:
        """Delete a row that no job is at work on."""
        row = self.rows.get(number)
        if self.at_work(row):
            raise ServiceError(f"The {self.kind} “{row.name}” is running; cancel it first.")
        self.rows.delete(number)

    def begin(self, row: AnyRow, **about: Any) -> int:
        """Run what is left of a row as a job; its number."""
        with self.rows.together():
            if (last := self.job(row)) is not None:
                require_own(last)
                if last.active:
                    raise ServiceError(f"The {self.kind} “{row.name}” {whereabouts(last)}.")
            payload = {**self.about(row), **about, f"{self.kind}_id": row.id}
            job_id = self.jobs.submit(self.kind, row.name, partial(self._run, row.id), payload)
            self.rows.begin(row.id, job_id)
        return job_id

    def _run(self, number: int, context: JobContext) -> JsonObject:
        row = self.rows.begin(number, context.job_id)
        return {f"{self.kind}_id": number, **self.work(row, context)}
