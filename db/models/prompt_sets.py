"""Tables of uploaded prompt sets."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from db.models.base import NEVER_REUSED, Base, Key


class PromptSet(Base):
    """One uploaded set of calibration or evaluation prompts."""

    __tablename__ = "prompt_sets"
    __table_args__ = (Index(None, "digest"), NEVER_REUSED)

    id: Mapped[Key]
    name: Mapped[str]
    filename: Mapped[str]
    digest: Mapped[str]
    created_at: Mapped[datetime]
    row_count: Mapped[int]


class PromptRow(Base):
    """One row of a prompt set, known by its line in the uploaded file."""

    __tablename__ = "prompt_rows"

    prompt_set_id: Mapped[int] = mapped_column(ForeignKey("prompt_sets.id", ondelete="CASCADE"), primary_key=True)
    line: Mapped[int] = mapped_column(primary_key=True)
    prompt: Mapped[str]
    reference: Mapped[str | None]
    spans: Mapped[list[Any] | None]
    group: Mapped[str | None]
    context: Mapped[str | None]
    weight: Mapped[float | None]
