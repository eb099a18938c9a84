"""Tables of reviewers' word lists."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from db.models.base import NEVER_REUSED, Base, Key


class UserList(Base):
    """One named word list; its terms never change, so that what rests on it stays true."""

    __tablename__ = "user_lists"
    __table_args__ = (UniqueConstraint("name"), NEVER_REUSED)

    id: Mapped[Key]
    name: Mapped[str]
    digest: Mapped[str]
    created_at: Mapped[datetime]
    term_count: Mapped[int]


class UserTerm(Base):
    """One term of a word list, in the order of the uploaded file."""

    __tablename__ = "user_terms"

    user_list_id: Mapped[int] = mapped_column(ForeignKey("user_lists.id", ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    term: Mapped[str]
    family: Mapped[str]
    keep: Mapped[bool]
