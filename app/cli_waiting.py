"""Waiting for background jobs on the command line: progress, interruption, and how to go on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from app.bootstrap import Services
from app.services.errors import ServiceError
from app.services.views import JobView

POLL_SECONDS = 0.5
STOPPED = 130
"""Exit code of a program that was interrupted."""


def wait_for(wired: Services, job_id: int, quiet: bool) -> JobView:
    """Wait until a job has ended; on a terminal, say how far it is."""
    if quiet or not sys.stderr.isatty():
        return wired.jobs.wait(job_id)
    while True:
        try:
            job = wired.jobs.wait(job_id, POLL_SECONDS)
        except TimeoutError:
            job = wired.jobs.get(job_id)
            left = "" if job.seconds_left is None else f", about {_duration(job.seconds_left)} left"
            print(f"\r\x1b[K{job.progress:4.0%}  {job.message}{left}", end="", file=sys.stderr, flush=True)
            continue
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        return job


def wait_for_all(
    wired: Services, jobs: Sequence[int], cancel: Callable[[], None], resume: str, what: str, quiet: bool
) -> bool:
    """Wait for jobs that keep what is done when they are interrupted.

    Args:
        wired: The services.
        jobs: The jobs.
        cancel: Stops them all.
        resume: Command that goes on with them, without ``python -m app``.
        what: What one of them is, to begin a sentence with.
        quiet: Say nothing of their progress.

    Returns:
        Whether they are done; False after an interruption, which has been told.

    Raises:
        ServiceError: One ended otherwise.
    """
    try:
        ended = [wait_for(wired, job, quiet) for job in jobs]
    except KeyboardInterrupt:
        cancel()
        for job in jobs:
            wired.jobs.wait(job)
        print(f"\ncoft-audit: stopped; what is done is kept. Go on with: python -m app {resume}", file=sys.stderr)
        return False
    for job_view in ended:
        if job_view.status != "done":
            raise ServiceError(job_view.error or f"{what} was {job_view.status}; go on with: {resume}.")
    return True


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
