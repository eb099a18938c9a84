"""How fast a job goes, and how long it will still take."""

from __future__ import annotations

from collections import deque

LEAST_DONE = 0.03
"""Share done below which nothing is said: the first steps of a job are seldom typical."""

WINDOW_SECONDS = 60.0
"""Reports that count: a job whose phases differ, or that was resumed, is judged by what it does now."""

SPACING_SECONDS = 0.5
"""Least time between two reports that are kept, the newest one aside."""


class Rate:
    """Reports of one job's progress, and the time left that follows from them."""

    def __init__(self) -> None:
        """Begin without any report."""
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
