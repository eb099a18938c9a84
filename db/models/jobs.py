"""Table of background jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, Index
from sqlalchemy.orm import Mapped

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
