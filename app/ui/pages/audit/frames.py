"""What a run shows at a time: the steps that came since the page was last told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from app.services.views import Step

FRAME_SECONDS = 0.1
"""A run tells the page of its tokens at most this often; the first one is told at once."""


def frames(
    steps: Iterator[Step], seconds: float = FRAME_SECONDS, clock: Callable[[], float] = time.monotonic
) -> Iterator[tuple[Step, ...]]:
    """Group steps by time, each step once; the last group ends with the last step.

    Args:
        steps: Steps as they are written.
        seconds: Shortest time between two groups.
        clock: Seconds that never go back.
    """
    frame: list[Step] = []
    told_at: float | None = None
    for step in steps:
        frame.append(step)
        if told_at is None or clock() - told_at >= seconds:
            yield tuple(frame)
            frame, told_at = [], clock()
    if frame:
        yield tuple(frame)
