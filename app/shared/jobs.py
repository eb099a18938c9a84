"""Runs jobs in threads and keeps their rows true: queued, running, and however they ended."""

from __future__ import annotations

import logging
import math
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from threading import Event, RLock, Thread
from types import TracebackType
from typing import Any, Self

from app.settings import Settings
from app.shared.errors import JobCancelled, ServiceError
from app.shared.limits import DiskRoom, require_room_for_job
from app.shared.processes import JobProcess
from app.shared.visitors import is_own, owner_words, present
from app.shared.wiring import Services
from db.database import Database
from db.jobs import INTERRUPTED, RESUMED_AS, JobRecord, JobsRepository, JobStatus
from db.prompt_sets import PromptSetsRepository
from db.scope import Scope, counted_account, counted_to, in_every_project, in_project, present_project
from db.tables import field_values
from db.types import JsonObject, StoreError, utc_now

ACTIVE = ("queued", "running")
"""States of a job that is not over."""


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

SPACING_SECONDS = 0.5
"""Least time between two reports that are kept, the newest one aside."""


class Rate:
    """Reports of one job's progress, and the time left that follows from them."""

    def __init__(self) -> None:
        self._reports: deque[tuple[float, float]] = deque()

    def note(self, now: float, fraction: float) -> None:
        """Take note of the share done at a moment, in monotonic seconds."""
        if self._reports and self._reports[-1][1] == fraction:
            return
        if len(self._reports) > 1 and now - self._reports[-2][0] < SPACING_SECONDS:
            self._reports.pop()
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

HEARTBEAT_SECONDS = 5.0
"""Least time between two signs of life that a job gives itself where it reports no progress."""


class JobContext:
    """One job as its own function sees it; used by the job's thread alone, except for reading."""

    def __init__(
        self,
        job_id: int,
        payload: JsonObject,
        jobs: JobsRepository,
        stop: Event,
        clock: Callable[[], float],
    ) -> None:
        self.job_id = job_id
        self.payload = payload
        self._jobs = jobs
        self._stop = stop
        self._clock = clock
        self.state = (0.0, "")
        self._reported_at = -math.inf
        self._alive_at = -math.inf
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
        self._rate.note(now, fraction)
        if now - self._reported_at >= PROGRESS_SECONDS:
            self._reported_at = self._alive_at = now
            self._jobs.set_progress(self.job_id, *self.state)

    def keep(self, result: JsonObject) -> None:
        """Keep what the job has made so far; it stays if the job ends early, and gives way to what the job returns."""
        self._jobs.set_result(self.job_id, result)

    def complete(self, result: JsonObject) -> None:
        """Write that the job is done, in the transaction that keeps what it made; it returns the same afterwards."""
        self._jobs.finish(self.job_id, "done", progress=1.0, message=self.state[1], result=result)

    def check_cancelled(self) -> None:
        """End the job here if it was cancelled; call it wherever stopping is safe."""
        if self._stop.is_set():
            raise JobCancelled
        now = self._clock()
        if now - self._alive_at >= HEARTBEAT_SECONDS:
            self._alive_at = now
            self._jobs.set_progress(self.job_id, *self.state)


logger = logging.getLogger(__name__)

JobFunction = Callable[[JobContext], Mapping[str, Any] | None]
"""A job's work: takes its context and returns a JSON object, or None."""


@dataclass(slots=True, eq=False)
class _Handle:
    """A job of this process that has not ended yet."""

    context: JobContext
    stop: Event
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

RENEWAL_SECONDS = 20.0
"""Time between two signs of life that a server gives for all its jobs, whatever these are doing or waiting for."""


HEED_SECONDS = 2.0
"""Time between two looks for jobs of this process that were asked on another server to cancel."""


class JobRunner:
    """A queue of background jobs for one process.

    Example:
        >>> runner = JobRunner(database)  # doctest: +SKIP
        >>> job_id = runner.submit("calibrate", "Calibrate on BBQ", work, {"prompt_set_id": 3})
        >>> runner.wait(job_id).status
    """

    def __init__(
        self,
        database: Database,
        workers: int = 1,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = utc_now,
        settings: Settings | None = None,
        room: DiskRoom | None = None,
    ) -> None:
        """Make a runner of so many jobs at once; the others wait in the order of submission."""
        self._settings = settings
        self._room = room
        self._database = database
        self._jobs = JobsRepository(database)
        self._clock, self._now = clock, now
        self._process = JobProcess.of(os.getpid())
        self._ending = Event()
        self._executor = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="job")
        self._lock = RLock()
        self._handles: dict[int, _Handle] = {}
        self._closed = False

    @classmethod
    def wired(cls, services: Services) -> JobRunner:
        """Closed with the services; jobs that an ended process left behind are found at once."""
        runner = services.closing.enter_context(
            cls(services.database, settings=services.settings, room=services[DiskRoom])
        )
        runner.recover(services.owns_store)
        Thread(target=runner.keep_leases, name="leases", daemon=True).start()
        return runner

    def keep_leases(self) -> None:
        """Renew the leases of this process's jobs from time to time, and heed what other servers ask of them.

        It ends when the runner is shut down.
        """
        renewed = self._clock()
        while not self._ending.wait(HEED_SECONDS):
            due = self._clock() - renewed >= RENEWAL_SECONDS
            renewed = self._clock() if due else renewed
            for step in (self.heed, self.renew) if due else (self.heed,):
                try:
                    step()
                except Exception:
                    # A store that is away for less than a lease costs nothing, and the other step is still due.
                    logger.exception("Jobs could not be watched")

    def heed(self) -> Sequence[int]:
        """Cancel those jobs of this process that somebody has asked another server to cancel."""
        with self._lock:
            held = [key for key, handle in self._handles.items() if handle.future is not None and not handle.cancelled]
        with in_every_project():
            asked = self._jobs.asked_to_cancel(held) if held else ()
        return [key for key in sorted(asked) if self.cancel(key)]

    def renew(self) -> Sequence[int]:
        """Give a sign of life for each job of this process; one that another server has taken for dead is stopped.

        That is after a pause longer than :data:`LEASE`, as of a computer that slept. The job may be resumed elsewhere
        by then, so that this one stops at its next check, and leaves the row as it is.
        """
        # Others have no row yet that anybody sees.
        with self._lock:
            begun = {key: handle for key, handle in self._handles.items() if handle.future is not None}
        if not begun:
            return []
        with in_every_project():
            held = self._jobs.renew(begun, self._process.json)
        with self._lock:
            lost = sorted(key for key in begun if key not in held and key in self._handles)
        for key in lost:
            begun[key].lost = True
            self._stop(begun[key])
        return lost

    def recover(self, owns_store: bool = False) -> Sequence[int]:
        """Mark the jobs that an ended process left queued or running as interrupted; call it at start-up.

        A process of this computer is asked for: its jobs are left behind once it is gone, and not before. Those of
        other computers are when they gave no sign of life for :data:`LEASE`.
        """
        # Whoever submits holds the lock until a job's handle is there.
        with in_every_project():
            with self._lock:
                left = [job for job in self._jobs.unfinished() if job.id not in self._handles]
            return self._interrupt([job for job in left if self._left_behind(job, owns_store)], owns_store)

    def _interrupt(self, left: Sequence[JobRecord], owns_store: bool = False) -> Sequence[int]:
        """Mark jobs as left behind, but for those whose server gives a sign of life at this very moment."""
        silent = [job.id for job in left if _by_lease(job, owns_store)]
        gone = [job.id for job in left if job.id not in silent]
        marked = [*self._jobs.mark_interrupted(gone)] if gone else []
        if silent:
            marked += self._jobs.mark_interrupted(silent, silent_since=self._now() - LEASE)
        return sorted(marked)

    def _left_behind(self, record: JobRecord, owns_store: bool = False) -> bool:
        """Whether the process of a job that is not this runner's has ended, as far as can be told."""
        if not _by_lease(record, owns_store):
            process = JobProcess.read(record.process)
            return process is None or process.own or process.gone
        return record.heartbeat_at is None or self._now() - record.heartbeat_at > LEASE

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
            stop = Event()
            context = JobContext(record.id, record.payload, self._jobs, stop, self._clock)
            handle = _Handle(context, stop, present_project(), counted_account())
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

    def cancel(self, job_id: int) -> bool:
        """Ask a job to stop: a queued one never starts, a running one stops at its next check."""
        with self._lock:
            handle = self._handles.get(job_id)
            if handle is None:
                return False
            handle.cancelled = True
        self._stop(handle)
        return True

    def get(self, job_id: int) -> JobRecord:
        """Return a job with its newest progress, written yet or not; it is interrupted if its process is gone."""
        return self._live(self._jobs.get(job_id))

    def seconds_left(self, job_id: int) -> float | None:
        """Estimated seconds that a running job of this process still takes; None where nothing is known."""
        with self._lock:
            handle = self._handles.get(job_id)
        return None if handle is None else handle.context.seconds_left

    def state(self, job_id: int) -> tuple[float, str] | None:
        """Share done and message of a job of this process as last reported; None for all others."""
        with self._lock:
            handle = self._handles.get(job_id)
        return None if handle is None else handle.context.state

    def list(self, kind: str | None = None, limit: int | None = 100) -> Sequence[JobRecord]:
        """Jobs of all processes, newest first; all of them without a limit."""
        return [self._live(record) for record in self._jobs.list(kind, limit=limit)]

    def wait(self, job_id: int, timeout: float | None = None) -> JobRecord:
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
        handle.stop.set()
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
            if handle.stop.is_set():
                raise JobCancelled
            self._jobs.start(context.job_id)
            result = function(context)
            if handle.lost:
                raise JobCancelled
            stored = None if result is None else dict(result)
            self._jobs.finish(context.job_id, "done", progress=1.0, message=context.state[1], result=stored)
        except JobCancelled:
            self._end_stopped(handle)
        except (Exception, SystemExit) as error:
            logger.exception("Job %d failed", context.job_id)
            self._end(handle, "failed", _one_line(error))
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

    def _live(self, record: JobRecord) -> JobRecord:
        with self._lock:
            handle = self._handles.get(record.id)
        if handle is None and record.status in ACTIVE and self._left_behind(record):
            self._interrupt([record])
            return self._jobs.get(record.id)
        if handle is None or record.status != "running":
            return record
        progress, message = handle.context.state
        return replace(record, progress=progress, message=message)


def _by_lease(record: JobRecord, owns_store: bool) -> bool:
    """Whether nothing but its signs of life can tell if a job goes on that is not this runner's."""
    process = JobProcess.read(record.process)
    if process is None or process.own:
        return not owns_store
    return not process.visible


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


CALIBRATION_JOB = "calibration"
RESUMABLE = ("cancelled", "failed", "interrupted")


class JobService:
    """Looks jobs up and asks them to stop."""

    def __init__(self, runner: JobRunner, jobs: JobsRepository, prompt_sets: PromptSetsRepository) -> None:
        self._runner = runner
        self._jobs = jobs
        self._prompt_sets = prompt_sets

    @classmethod
    def wired(cls, services: Services) -> JobService:
        """Built from the program's services."""
        return cls(services[JobRunner], services[JobsRepository], services[PromptSetsRepository])

    def get(self, job_id: int) -> JobView:
        """A job's state."""
        return self._views([self._runner.get(job_id)])[0]

    def find(self, job_id: int | None) -> JobView | None:
        """A job's state, or None for what has no job."""
        return None if job_id is None else self.get(job_id)

    def whereabouts(self, job: JobView) -> str:
        """Where a job that has not ended runs, and what to do about it, to end a sentence that begins with its name."""
        process = JobProcess.read(job.process)
        if process is not None and process.own:
            return "is running already; wait for it, or cancel it"
        if process is not None and process.visible:
            return (
                f"is being run by another process of this computer (number {process.number}); wait for it, or "
                "cancel it, and then resume"
            )
        where = "another process" if process is None else f"a process on {process.host}"
        last = job.heartbeat_at or job.created_at
        return (
            f"is being run by {where}, which gave its last sign of life at {last.astimezone(UTC):%H:%M:%S} UTC; "
            "whether it has ended cannot be told from here: wait for it, or, if it has, resume after "
            f"{(last + LEASE).astimezone(UTC):%H:%M:%S} UTC"
        )

    def list(self, kind: str | None = None, limit: int | None = 20) -> tuple[JobView, ...]:
        """Jobs, newest first; all of them without a limit."""
        return self._views(self._runner.list(kind, limit=limit))

    def cancel(self, job_id: int) -> None:
        """Ask a job to stop; it stops at its next check, and one of another server a few seconds later."""
        require_own(self._runner.get(job_id))
        if not self._runner.cancel(job_id):
            self._jobs.ask_to_cancel(job_id)

    def wait(self, job_id: int, timeout: float | None = None) -> JobView:
        """Wait until a job has ended."""
        return self._views([self._runner.wait(job_id, timeout)])[0]

    def _views(self, records: Sequence[JobRecord]) -> tuple[JobView, ...]:
        asked = {number for record in records if isinstance(number := record.payload.get("prompt_set_id"), int)}
        stored = self._prompt_sets.existing(asked) if asked else set()
        return tuple(
            JobView(
                **field_values(record, JobRecord),
                seconds_left=self._runner.seconds_left(record.id),
                resumable=is_resumable(record, stored),
                own=is_own(record.owner),
            )
            for record in records
        )


def require_own(job: JobRecord) -> None:
    """Refuse to stop a job, or to go on with it, where another reviewer began it."""
    if not is_own(job.owner):
        raise ServiceError(
            f"“{job.title}” was begun by {owner_words(job.owner)}, who alone can cancel and resume it; start one of "
            "your own."
        )


def is_resumable(record: JobRecord, prompt_sets: set[int]) -> bool:
    """Whether a job is a calibration that can be resumed, by the ids of the stored prompt sets."""
    ended = record.kind == CALIBRATION_JOB and record.status in RESUMABLE and RESUMED_AS not in (record.result or {})
    return ended and record.payload.get("prompt_set_id") in prompt_sets
