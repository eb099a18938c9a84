"""Tables of batches: many prompts audited with the same settings."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from db.models.base import NEVER_REUSED, Base, Key


class Batch(Base):
    """One batch; its prompts are the rows of its prompt set, which cannot be deleted before it."""

    __tablename__ = "batches"
    __table_args__ = (Index(None, "prompt_set_id"), Index(None, "job_id"), NEVER_REUSED)

    id: Mapped[Key]
    name: Mapped[str]
    prompt_set_id: Mapped[int] = mapped_column(ForeignKey("prompt_sets.id", ondelete="RESTRICT"))
    request: Mapped[dict[str, Any]]
    job_id: Mapped[int | None] = mapped_column(ForeignKey("jobs.id", ondelete="SET NULL"))
    created_at: Mapped[datetime]


class BatchRow(Base):
    """What became of one row of a batch's prompt set; a row that has begun and has no session lost it to a deletion."""

    __tablename__ = "batch_rows"
    __table_args__ = (UniqueConstraint("session_id"),)

    batch_id: Mapped[int] = mapped_column(ForeignKey("batches.id", ondelete="CASCADE"), primary_key=True)
    line: Mapped[int] = mapped_column(primary_key=True)
    session_id: Mapped[int | None] = mapped_column(ForeignKey("audit_sessions.id", ondelete="SET NULL"))
    begun_at: Mapped[datetime | None]
    error: Mapped[str | None]
