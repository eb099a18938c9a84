"""Tables of background jobs and of what they have done so far."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from db.models.base import NEVER_REUSED, Base, Key


class Job(Base):
    """One piece of background work and how far it has come."""

    __tablename__ = "jobs"
    __table_args__ = (
        Index(None, "status"),
        Index(None, "created_at"),
        CheckConstraint(
            "status IN ('queued', 'running', 'done', 'failed', 'cancelled', 'interrupted')",
            name="known_status",
        ),
        CheckConstraint("progress >= 0 AND progress <= 1", name="progress_is_share"),
        NEVER_REUSED,
    )

    id: Mapped[Key]
    kind: Mapped[str]
    title: Mapped[str]
    status: Mapped[str]
    progress: Mapped[float]
    message: Mapped[str]
    error: Mapped[str | None]
    payload: Mapped[dict[str, Any]]
    result: Mapped[dict[str, Any] | None]
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    heartbeat_at: Mapped[datetime | None]


class JobLedger(Base):
    """What an unfinished job has worked out so far, so that it can be resumed; goes with its prompt set."""

    __tablename__ = "job_ledgers"
    __table_args__ = (Index(None, "prompt_set_id"),)

    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    prompt_set_id: Mapped[int] = mapped_column(ForeignKey("prompt_sets.id", ondelete="CASCADE"))
    data: Mapped[bytes]
    saved_at: Mapped[datetime]
