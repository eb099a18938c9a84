"""Background jobs as the services give them."""

from __future__ import annotations

from dataclasses import dataclass

ACTIVE = ("queued", "running")
"""States of a job that is not over."""


@dataclass(frozen=True, slots=True)
class JobView:
    """A background job.

    Attributes:
        id: Database id.
        kind: ``"calibration"``.
        title: What it does, for a person.
        status: ``queued``, ``running``, ``done``, ``failed``, ``cancelled`` or ``interrupted``.
        progress: 0 to 1.
        message: What it is doing.
        error: One sentence, if it failed.
        result: What it made, e.g. ``{"calibration_id": 3}``.
        seconds_left: Estimated time left; None where nothing is known yet, or nothing is left.
        resumable: Whether what is done of it was kept, so that it can be resumed.
    """

    id: int
    kind: str
    title: str
    status: str
    progress: float
    message: str
    error: str | None
    result: dict[str, object] | None
    seconds_left: float | None = None
    resumable: bool = False

    @property
    def active(self) -> bool:
        """Whether it is at work or waits for its turn."""
        return self.status in ACTIVE
