"""Background jobs: run in threads, their rows kept true, looked up, and asked to stop, whichever server runs them."""

from __future__ import annotations

import logging
import math
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from threading import Event, RLock, Thread
from types import TracebackType
from typing import Any, Self

from app.hosting.limits import DiskRoom, require_room_for_job
from app.jobs.processes import JobProcess
from app.settings import Settings
from app.shared.errors import JobCancelled, ServiceError
from app.shared.visitors import is_own, owner_words, present
from app.shared.wiring import Services
from coft_core.model.server_client import checking
from db.database import Database
from db.jobs import INTERRUPTED, RESUMED_AS, UNFINISHED, JobRecord, JobsRepository, JobStatus
from db.prompt_sets import PromptSetsRepository
from db.scope import Scope, counted_account, counted_to, in_every_project, in_project, present_project
from db.tables import field_values
from db.types import JsonObject, StoreError, utc_now

ACTIVE = UNFINISHED
"""States of a job that is not over."""
RESUMABLE = ("cancelled", "failed", "interrupted")
ENDED = {"failed": "failed", "cancelled": "was cancelled", "interrupted": "was interrupted"}
"""What a sentence says of a job that did not finish."""

CALIBRATION_JOB = "calibration"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView(JobRecord):
    """A background job with what only the process that runs it can tell."""

    seconds_left: float | None = None
    resumable: bool = False
    own: bool = True

    @property
    def active(self) -> bool:
        """Whether it is at work or waits for its turn."""
        return self.status in ACTIVE


LEAST_DONE = 0.03
"""Share done below which nothing is said: the first steps of a job are seldom typical."""

WINDOW_SECONDS = 60.0
"""Reports that count: a job whose phases differ, or that was resumed, is judged by what it does now."""


class Rate:
    """Reports of one job's progress, and the time left that follows from them."""

    def __init__(self) -> None:
        self._reports: deque[tuple[float, float]] = deque()

    def note(self, now: float, fraction: float) -> None:
        """Take note of the share done at a moment, in monotonic seconds."""
        if self._reports and self._reports[-1][1] == fraction:
            return
        self._reports.append((now, fraction))
        # The newest report older than the window stays, so that a slow job has two to compare.
        while len(self._reports) > 2 and self._reports[1][0] <= now - WINDOW_SECONDS:
            self._reports.popleft()

    def restart(self, now: float, fraction: float) -> None:
        """Forget all reports: what comes next goes at another speed."""
        self._reports = deque([(now, fraction)])

    def seconds_left(self, now: float) -> float | None:
        """Estimated seconds left at a moment; None while too little is known, or when nothing is left."""
        # A copy, since the job's own thread may report at the same time.
        reports = tuple(self._reports)
        if len(reports) < 2:
            return None
        (began, before), (last, done) = reports[0], reports[-1]
        if not LEAST_DONE <= done < 1.0 or done <= before or last <= began:
            return None
        return max((1.0 - done) * (last - began) / (done - before) - (now - last), 0.0)


PROGRESS_SECONDS = 0.2
"""Least time between two progress writes of one job: five a second show as smooth on a page."""

FOR_MEMORY = ", waiting for memory"


class JobContext:
    """One job as its own function sees it; used by the job's thread only, except for reading."""

    def __init__(self, job_id: int, payload: JsonObject, jobs: JobsRepository, clock: Callable[[], float]) -> None:
        self.job_id = job_id
        self.payload = payload
        self.stop = Event()
        self._jobs = jobs
        self._clock = clock
        self.state = (0.0, "")
        self._reported_at = -math.inf
        self._rate = Rate()

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds left, from the speed of the last minute; None while nothing is known."""
        return self._rate.seconds_left(self._clock())

    def begin_phase(self, fraction: float, message: str) -> None:
        """Report where a phase of the job begins; the time left is then judged by this phase's own speed."""
        self.progress(fraction, message)
        self._rate.restart(self._clock(), fraction)

    def progress(self, fraction: float, message: str | None = None) -> None:
        """Report how far the job is; cheap enough for an inner loop, since few reports are written."""
        if not 0.0 <= fraction <= 1.0:
            raise ValueError(f"A job's progress is a share from 0 to 1, not {fraction}.")
        self.state = (fraction, self.state[1] if message is None else message)
        now = self._clock()
        if now - self._reported_at >= PROGRESS_SECONDS:
            self._reported_at = now
            self._rate.note(now, fraction)
            self._jobs.set_progress(self.job_id, *self.state)

    def waiting(self, waits: bool) -> None:
        """Say on the progress line whether the job waits for memory; the wait ends where the job was cancelled."""
        self.check_cancelled()
        share, message = self.state
        before = message.removesuffix(FOR_MEMORY)
        if waits == (message == before):
            self.progress(share, f"{before}{FOR_MEMORY}" if waits else before)

    def keep(self, result: JsonObject) -> None:
        """Keep what the job has made so far; it stays if the job ends early, and gives way to what the job returns."""
        self._jobs.set_result(self.job_id, result)

    def complete(self, result: JsonObject) -> None:
        """Write that the job is done, in the transaction that keeps what it made; it returns the same afterwards."""
        self._jobs.finish(self.job_id, "done", progress=1.0, message=self.state[1], result=result)

    def check_cancelled(self) -> None:
        """End the job here if it was cancelled; call it wherever stopping is safe."""
        if self.stop.is_set():
            raise JobCancelled


logger = logging.getLogger(__name__)

JobFunction = Callable[[JobContext], Mapping[str, Any] | None]
"""A job's work: takes its context and returns a JSON object, or None."""


@dataclass(slots=True, eq=False)
class _Handle:
    """A job of this process that has not ended yet."""

    context: JobContext
    project: Scope = None
    account: int | None = None
    cancelled: bool = False
    lost: bool = False
    ended: Event = field(default_factory=Event)
    future: Future[None] | None = None


LEASE = timedelta(minutes=2)
"""How long a sign of life holds: a job without one for so long is left behind, unless its process is seen to live.

Servers judge by their own clocks, which must therefore agree within a minute.
"""

RENEWAL_SECONDS = 2.0
"""Time between two signs of life that a server gives for all its jobs, whatever these are doing or waiting for."""


class JobService:
    """The background jobs of all servers, of which this process runs its own."""

    def __init__(
        self,
        database: Database,
        workers: int = 1,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = utc_now,
        settings: Settings | None = None,
        room: DiskRoom | None = None,
    ) -> None:
        """Run so many jobs at once; the others wait in the order of submission."""
        self._settings = settings
        self._room = room
        self._database = database
        self._jobs = JobsRepository(database)
        self._prompt_sets = PromptSetsRepository(database)
        self._clock, self._now = clock, now
        self._process = JobProcess.of(os.getpid())
        self._ending = Event()
        self._executor = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="job")
        self._lock = RLock()
        self._handles: dict[int, _Handle] = {}
        self._closed = False

    @classmethod
    def wired(cls, services: Services) -> JobService:
        """Closed with the services; jobs that an ended process left behind are found at once."""
        jobs = services.closing.enter_context(
            cls(services.database, settings=services.settings, room=services[DiskRoom])
        )
        jobs.recover(services.owns_store)
        Thread(target=jobs.keep_leases, name="leases", daemon=True).start()
        return jobs

    def keep_leases(self) -> None:
        """Renew the leases of this process's jobs until the service is shut down."""
        while not self._ending.wait(RENEWAL_SECONDS):
            try:
                self.renew()
            except Exception:
                # A store that is away for less than a lease costs nothing.
                logger.exception("Jobs could not be watched")

    def renew(self) -> Sequence[int]:
        """Give a sign of life for each job of this process; the jobs that are stopped instead."""
        # Others have no row yet that anybody sees.
        with self._lock:
            begun = {key: handle for key, handle in self._handles.items() if handle.future is not None}
        if not begun:
            return []
        with in_every_project():
            cancelled = self._jobs.renew(begun, self._process.json)
        with self._lock:
            stopped = sorted(key for key in begun if cancelled.get(key, True) and key in self._handles)
        for key in stopped:
            begun[key].lost = key not in cancelled
            begun[key].cancelled |= key in cancelled
            self._stop(begun[key])
        return stopped

    def recover(self, owns_store: bool = False) -> Sequence[int]:
        """Mark the jobs that an ended process left queued or running as interrupted; call it at start-up."""
        # Whoever submits holds the lock until a job's handle is there.
        with in_every_project():
            with self._lock:
                left = [job for job in self._jobs.unfinished() if job.id not in self._handles]
            return self._interrupt(left, owns_store)

    def _interrupt(self, jobs: Sequence[JobRecord], owns_store: bool = False) -> Sequence[int]:
        """Mark those of some jobs that were left behind; one that gives a sign of life at this moment is spared."""
        since = self._now() - LEASE
        gone, silent = [], []
        for job in jobs:
            process = JobProcess.read(job.process)
            if process is not None and process.visible and not process.own:
                gone += [job.id] if process.gone else []
            elif owns_store and (process is None or process.own):
                gone.append(job.id)
            elif job.heartbeat_at is None or job.heartbeat_at < since:
                silent.append(job.id)
        marked = [*self._jobs.mark_interrupted(gone)] if gone else []
        return sorted([*marked, *self._jobs.mark_interrupted(silent, since)] if silent else marked)

    def submit(
        self,
        kind: str,
        title: str,
        function: JobFunction,
        payload: JsonObject | None = None,
        prepare: Callable[[int], None] | None = None,
    ) -> int:
        """Queue a job; it belongs to the visitor who is being answered."""
        # Who submits several jobs at once holds the store before this lock, so everybody does.
        with self._database.together(), self._lock:
            if self._closed:
                raise RuntimeError("The job was not started because the program is shutting down.")
            visitor = present()
            if self._room is not None:
                self._room.require()
            owner, process = None if visitor is None else visitor.owner, self._process.json
            if visitor is not None and self._settings is not None:
                require_room_for_job(self._jobs.unfinished_of(owner), self._settings)
            record = self._jobs.add(kind, title, payload, owner=owner, process=process)
            if prepare is not None:
                prepare(record.id)
            context = JobContext(record.id, record.payload, self._jobs, self._clock)
            handle = _Handle(context, present_project(), counted_account())
            self._handles[record.id] = handle
            self._database.afterwards(partial(self._begin, handle, function), partial(self._forget, handle))
        return record.id

    def _begin(self, handle: _Handle, function: JobFunction) -> None:
        try:
            handle.future = self._executor.submit(self._run, handle, function)
        except RuntimeError:
            # The program shuts down since its row was written; as such it can be resumed.
            self._end_stopped(handle)
            self._forget(handle)

    def cancel(self, job_id: int) -> None:
        """Ask a job to stop: a queued one never starts, a running one stops at its next check."""
        require_own(self._jobs.get(job_id))
        with self._lock:
            handle = self._handles.get(job_id)
        if handle is None:
            self._jobs.ask_to_cancel(job_id)
            return
        handle.cancelled = True
        self._stop(handle)

    def get(self, job_id: int) -> JobView:
        """A job with its newest progress, written yet or not; it is interrupted if its process is gone."""
        return self._views([self._jobs.get(job_id)])[0]

    def find(self, job_id: int | None) -> JobView | None:
        """A job's state, or None for what has no job."""
        return None if job_id is None else self.get(job_id)

    def list(
        self, kind: str | None = None, limit: int | None = 20, statuses: Collection[JobStatus] | None = None
    ) -> tuple[JobView, ...]:
        """Jobs of all servers, newest first; all of them without a limit."""
        return self._views(self._jobs.list(kind, statuses, limit))

    def live(self, job_id: int) -> JobContext | None:
        """What a job of this process says of itself; None for all others."""
        with self._lock:
            handle = self._handles.get(job_id)
        return None if handle is None else handle.context

    def wait(self, job_id: int, timeout: float | None = None) -> JobView:
        """Wait until a job of this process has ended."""
        with self._lock:
            handle = self._handles.get(job_id)
        if handle is not None and not handle.ended.wait(timeout):
            raise TimeoutError(f"Job {job_id} did not end within {timeout} seconds; it goes on.")
        return self.get(job_id)

    def shutdown(self, wait: bool = True) -> None:
        """Stop all jobs and take no more, and wait until they stopped; jobs stopped this way become ``interrupted``."""
        self._ending.set()
        with self._lock:
            self._closed = True
            handles = list(self._handles.values())
        for handle in handles:
            self._stop(handle)
        self._executor.shutdown(wait=wait)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def _stop(self, handle: _Handle) -> None:
        handle.context.stop.set()
        if handle.future is not None and handle.future.cancel():
            self._end_stopped(handle)
            self._forget(handle)

    def _run(self, handle: _Handle, function: JobFunction) -> None:
        # A thread of its own knows nothing of who is answered; the job sees the project that it was begun in, and
        # what it makes is counted to who began it.
        with in_project(handle.project), counted_to(handle.account):
            self._do(handle, function)

    def _do(self, handle: _Handle, function: JobFunction) -> None:
        context = handle.context
        try:
            if context.stop.is_set():
                raise JobCancelled
            self._jobs.start(context.job_id)
            with checking(context.check_cancelled):
                result = function(context)
            if handle.lost:
                raise JobCancelled
            stored = None if result is None else dict(result)
            self._jobs.finish(context.job_id, "done", progress=1.0, message=context.state[1], result=stored)
        except JobCancelled:
            self._end_stopped(handle)
        except (Exception, SystemExit) as error:
            logger.exception("Job %d failed", context.job_id)
            self._end(handle, "failed", " ".join(str(error).split()) or type(error).__name__)
        finally:
            self._forget(handle)

    def _end(self, handle: _Handle, status: JobStatus, error: str | None = None) -> None:
        if handle.lost:
            # Another server has written how it ended, and may have resumed it.
            logger.warning("Job %d was taken for left behind by another server", handle.context.job_id)
            return
        progress, message = handle.context.state
        try:
            with in_project(handle.project):
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

    def _views(self, records: Sequence[JobRecord]) -> tuple[JobView, ...]:
        with self._lock:
            live = {record.id: self._handles.get(record.id) for record in records}
        left = [record for record in records if live[record.id] is None and record.status in ACTIVE]
        changed = {key: self._jobs.get(key) for key in self._interrupt(left)} if left else {}
        asked = {number for record in records if isinstance(number := record.payload.get("prompt_set_id"), int)}
        stored = self._prompt_sets.existing(asked) if asked else set()
        return tuple(_view(changed.get(record.id, record), live[record.id], stored) for record in records)


def _view(record: JobRecord, handle: _Handle | None, prompt_sets: set[int]) -> JobView:
    fields = field_values(record, JobRecord)
    if handle is not None and record.status == "running":
        fields["progress"], fields["message"] = handle.context.state
    left = None if handle is None else handle.context.seconds_left
    ended = record.kind == CALIBRATION_JOB and record.status in RESUMABLE and RESUMED_AS not in (record.result or {})
    resumable = ended and record.payload.get("prompt_set_id") in prompt_sets
    return JobView(**fields, seconds_left=left, resumable=resumable, own=is_own(record.owner))


def whereabouts(job: JobView) -> str:
    """Where a job that has not ended runs, and what to do about it, to end a sentence that begins with its name."""
    process = JobProcess.read(job.process)
    if process is not None and process.visible:
        return "is running already; wait for it, or cancel it"
    where = "another process" if process is None else f"a process on {process.host}"
    last = (job.heartbeat_at or job.created_at).astimezone(UTC)
    return (
        f"is being run by {where}, which gave its last sign of life at {last:%H:%M:%S} UTC; wait for it, or, if it has "
        f"ended, resume after {last + LEASE:%H:%M:%S} UTC"
    )


def require_own(job: JobRecord) -> None:
    """Refuse to stop a job, or to go on with it, where another reviewer began it."""
    if not is_own(job.owner):
        raise ServiceError(
            f"“{job.title}” was begun by {owner_words(job.owner)}, and only they can cancel and resume it; start "
            "one of your own."
        )
