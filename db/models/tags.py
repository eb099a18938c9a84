"""Tags by which reviewers order their sessions."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from db.models.base import Base


class SessionTag(Base):
    """One tag of one session."""

    __tablename__ = "session_tags"
    __table_args__ = (Index(None, "tag"),)

    session_id: Mapped[int] = mapped_column(ForeignKey("audit_sessions.id", ondelete="CASCADE"), primary_key=True)
    tag: Mapped[str] = mapped_column(primary_key=True)
