"""Records of background jobs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from db.records.common import JsonObject

JobStatus = Literal["queued", "running", "done", "failed", "cancelled", "interrupted"]
"""The life of a job; ``interrupted`` means that its process ended before it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A background job.

    Attributes:
        id: Its id.
        kind: What sort of work, e.g. ``"calibrate"``.
        title: What a list shows.
        status: Where it stands.
        progress: Share done, 0 to 1.
        message: What it is doing.
        error: Why it failed, one sentence.
        payload: What it was asked, enough to start it again.
        result: What it returned.
        created_at: When it was submitted.
        started_at: When it began to run.
        finished_at: When it ended, however it ended.
        heartbeat_at: When it last gave a sign of life.
    """

    id: int
    kind: str
    title: str
    status: JobStatus
    progress: float
    message: str
    error: str | None
    payload: JsonObject
    result: JsonObject | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    heartbeat_at: datetime | None
