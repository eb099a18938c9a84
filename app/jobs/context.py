"""What a job's function is given: its payload, a way to report progress, and its own cancel flag."""

from __future__ import annotations

import math
from collections.abc import Callable
from threading import Event

from app.jobs.rate import Rate
from app.services.errors import JobCancelled
from db.records import JsonObject
from db.repositories import JobsRepository

PROGRESS_SECONDS = 0.2
"""Least time between two progress writes of one job: five a second show as smooth on a page."""

HEARTBEAT_SECONDS = 5.0
"""Least time between two signs of life of a job that reports no progress."""


class JobContext:
    """One job as its own function sees it; used by the job's thread alone, except for reading.

    Attributes:
        job_id: The job's id.
        payload: What the job was asked.
    """

    def __init__(
        self,
        job_id: int,
        payload: JsonObject,
        jobs: JobsRepository,
        stop: Event,
        clock: Callable[[], float],
    ) -> None:
        """Made by the runner.

        Args:
            job_id: The job's id.
            payload: What the job was asked.
            jobs: Where progress is written.
            stop: Set when the job has to end early.
            clock: Monotonic seconds.
        """
        self.job_id = job_id
        self.payload = payload
        self._jobs = jobs
        self._stop = stop
        self._clock = clock
        self._state = (0.0, "")
        self._reported_at = -math.inf
        self._alive_at = -math.inf
        self._rate = Rate()

    @property
    def state(self) -> tuple[float, str]:
        """The share done and the message as last reported, written to the store or not yet."""
        return self._state

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds left, from the speed of the last minute; None while nothing is known."""
        return self._rate.seconds_left(self._clock())

    def begin_phase(self, fraction: float, message: str) -> None:
        """Report where a phase of the job begins; the time left is then judged by this phase's own speed.

        Args:
            fraction: Share of the whole job done, 0 to 1.
            message: What the job is doing.

        Raises:
            ValueError: The share is outside 0 to 1.
        """
        self.progress(fraction, message)
        self._rate.restart(self._clock(), fraction)

    def progress(self, fraction: float, message: str | None = None) -> None:
        """Report how far the job is; cheap enough for an inner loop, since few reports are written.

        Args:
            fraction: Share done, 0 to 1.
            message: What the job is doing; None keeps the last message.

        Raises:
            ValueError: The share is outside 0 to 1.
        """
        if not 0.0 <= fraction <= 1.0:
            raise ValueError(f"A job's progress is a share from 0 to 1, not {fraction}.")
        self._state = (fraction, self._state[1] if message is None else message)
        now = self._clock()
        self._rate.note(now, fraction)
        if now - self._reported_at >= PROGRESS_SECONDS:
            self._reported_at = self._alive_at = now
            self._jobs.set_progress(self.job_id, *self._state)

    def keep(self, result: JsonObject) -> None:
        """Keep what the job has made so far; it stays if the job ends early, and gives way to what the job returns.

        Args:
            result: JSON; finite numbers only.

        Raises:
            UnstorableValueError: The result is not JSON.
        """
        self._jobs.set_result(self.job_id, result)

    def check_cancelled(self) -> None:
        """End the job here if it was cancelled; call it wherever stopping is safe.

        Raises:
            JobCancelled: The job was cancelled, or the program is shutting down.
        """
        if self._stop.is_set():
            raise JobCancelled
        now = self._clock()
        if now - self._alive_at >= HEARTBEAT_SECONDS:
            self._alive_at = now
            self._jobs.set_progress(self.job_id, *self._state)
