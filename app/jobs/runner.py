"""Runs jobs in threads and keeps their rows true: queued, running, and however they ended."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from threading import Event, Lock
from types import TracebackType
from typing import Any, Self

from app.jobs.context import JobContext
from app.services.errors import JobCancelled
from db.database import Database
from db.errors import StoreError
from db.records import JobRecord, JobStatus, JsonObject
from db.repositories import JobsRepository
from db.repositories.jobs import INTERRUPTED

logger = logging.getLogger(__name__)

JobFunction = Callable[[JobContext], Mapping[str, Any] | None]
"""A job's work: takes its context and returns a JSON object, or None."""


@dataclass(slots=True, eq=False)
class _Handle:
    """A job of this process that has not ended yet."""

    context: JobContext
    stop: Event
    cancelled: bool = False
    ended: Event = field(default_factory=Event)
    future: Future[None] | None = None


class JobRunner:
    """A queue of background jobs for one process.

    Example:
        >>> runner = JobRunner(database)  # doctest: +SKIP
        >>> job_id = runner.submit("calibrate", "Calibrate on BBQ", work, {"prompt_set_id": 3})
        >>> runner.wait(job_id).status
    """

    def __init__(self, database: Database, workers: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        """Make a runner; nothing runs until a job is submitted.

        Args:
            database: The open store.
            workers: How many jobs run at once; the others wait in the order of submission.
            clock: Monotonic seconds; tests give their own.
        """
        self._jobs = JobsRepository(database)
        self._clock = clock
        self._executor = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="job")
        self._lock = Lock()
        self._handles: dict[int, _Handle] = {}
        self._closed = False

    def recover(self, silent_for: timedelta | None = None) -> Sequence[int]:
        """Mark the jobs that an ended process left queued or running as interrupted; call it at start-up.

        Args:
            silent_for: Only jobs without a sign of life for so long. The server, which owns the
                store, leaves it out; a command that may run beside a server gives a minute or more.

        Returns:
            The ids of the jobs marked.
        """
        since = None if silent_for is None else datetime.now(UTC) - silent_for
        with self._lock:
            own = tuple(self._handles)
        return self._jobs.mark_interrupted(silent_since=since, excluding=own)

    def submit(
        self,
        kind: str,
        title: str,
        function: JobFunction,
        payload: JsonObject | None = None,
        prepare: Callable[[int], None] | None = None,
    ) -> int:
        """Queue a job.

        Args:
            kind: What sort of work, e.g. ``"calibrate"``.
            title: What a list of jobs shows.
            function: The work; it reads the payload from its context.
            payload: What the job is asked, as JSON, enough to start it again.
            prepare: Called with the job's id before it can run; if it raises, the job has failed before it began.

        Returns:
            The job's id.

        Raises:
            RuntimeError: The runner is shut down.
            UnstorableValueError: The payload is not JSON.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError("The job was not started because the program is shutting down.")
            record = self._jobs.add(kind, title, payload)
            if prepare is not None:
                self._prepare(record.id, prepare)
            stop = Event()
            handle = _Handle(JobContext(record.id, record.payload, self._jobs, stop, self._clock), stop)
            self._handles[record.id] = handle
            handle.future = self._executor.submit(self._run, handle, function)
        return record.id

    def cancel(self, job_id: int) -> bool:
        """Ask a job to stop: a queued one never starts, a running one stops at its next check.

        Returns:
            False if the job has ended already or belongs to another process.
        """
        with self._lock:
            handle = self._handles.get(job_id)
            if handle is None:
                return False
            handle.cancelled = True
        self._stop(handle)
        return True

    def get(self, job_id: int) -> JobRecord:
        """Return a job with its newest progress, also where that is not written yet.

        Raises:
            NotFoundError: There is no such job.
        """
        return self._live(self._jobs.get(job_id))

    def seconds_left(self, job_id: int) -> float | None:
        """Estimated seconds that a running job of this process still takes; None where nothing is known."""
        with self._lock:
            handle = self._handles.get(job_id)
        return None if handle is None else handle.context.seconds_left

    def list(
        self,
        kind: str | None = None,
        statuses: Collection[JobStatus] | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> Sequence[JobRecord]:
        """Return jobs of all processes, newest first; see :meth:`db.repositories.JobsRepository.list`."""
        return [self._live(record) for record in self._jobs.list(kind, statuses, limit, offset)]

    def wait(self, job_id: int, timeout: float | None = None) -> JobRecord:
        """Wait until a job of this process has ended.

        Args:
            job_id: The job.
            timeout: Seconds; None waits for ever.

        Returns:
            The job as it ended. A job that is not of this process is returned as it stands.

        Raises:
            TimeoutError: It did not end in time; it goes on.
            NotFoundError: There is no such job.
        """
        with self._lock:
            handle = self._handles.get(job_id)
        if handle is not None and not handle.ended.wait(timeout):
            raise TimeoutError(f"Job {job_id} did not end within {timeout} seconds; it goes on.")
        return self._jobs.get(job_id)

    def shutdown(self, wait: bool = True) -> None:
        """Stop all jobs and take no more; jobs stopped this way become ``interrupted``.

        Args:
            wait: Return only when every running job has reached its next check and stopped.
        """
        with self._lock:
            self._closed = True
            handles = list(self._handles.values())
        for handle in handles:
            self._stop(handle)
        self._executor.shutdown(wait=wait)

    def __enter__(self) -> Self:
        """Return the runner."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Shut down."""
        self.shutdown()

    def _prepare(self, job_id: int, prepare: Callable[[int], None]) -> None:
        try:
            prepare(job_id)
        except Exception as error:
            self._jobs.finish(job_id, "failed", progress=0.0, message="", error=_one_line(error))
            raise

    def _stop(self, handle: _Handle) -> None:
        handle.stop.set()
        if handle.future is not None and handle.future.cancel():
            self._end_stopped(handle)
            self._forget(handle)

    def _run(self, handle: _Handle, function: JobFunction) -> None:
        context = handle.context
        try:
            if handle.stop.is_set():
                raise JobCancelled
            self._jobs.start(context.job_id)
            result = function(context)
            self._jobs.finish(
                context.job_id,
                "done",
                progress=1.0,
                message=context.state[1],
                result=None if result is None else dict(result),
            )
        except JobCancelled:
            self._end_stopped(handle)
        except (Exception, SystemExit) as error:
            logger.exception("Job %d failed", context.job_id)
            self._end(handle, "failed", _one_line(error))
        finally:
            self._forget(handle)

    def _end(self, handle: _Handle, status: JobStatus, error: str | None = None) -> None:
        progress, message = handle.context.state
        try:
            self._jobs.finish(handle.context.job_id, status, progress=progress, message=message, error=error)
        except StoreError:
            # The row keeps its old status; the next start-up marks it interrupted.
            logger.exception("Job %d ended as %s, which could not be stored", handle.context.job_id, status)

    def _end_stopped(self, handle: _Handle) -> None:
        if handle.cancelled:
            self._end(handle, "cancelled")
        else:
            self._end(handle, "interrupted", INTERRUPTED)

    def _forget(self, handle: _Handle) -> None:
        with self._lock:
            self._handles.pop(handle.context.job_id, None)
        handle.ended.set()

    def _live(self, record: JobRecord) -> JobRecord:
        with self._lock:
            handle = self._handles.get(record.id)
        if handle is None or record.status != "running":
            return record
        progress, message = handle.context.state
        return replace(record, progress=progress, message=message)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
