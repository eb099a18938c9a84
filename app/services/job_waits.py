"""What a background job says while it waits for memory."""

from __future__ import annotations

from app.jobs import JobContext

FOR_MEMORY = ", waiting for memory"


class MemoryWait:
    """Puts on a job's progress line that it waits for memory, and ends the wait where the job was cancelled."""

    def __init__(self, context: JobContext) -> None:
        """Speak for one job."""
        self._context = context
        self._said = ""

    def __call__(self, waits: bool) -> None:
        """Say that the job waits, or that it goes on.

        Raises:
            JobCancelled: The job was cancelled.
        """
        self._context.check_cancelled()
        share, message = self._context.state
        if waits and not self._said:
            self._said = message
            self._context.progress(share, f"{message}{FOR_MEMORY}")
        elif not waits and self._said:
            self._context.progress(share, self._said)
            self._said = ""
