"""Tables of comparisons over prompt sets: several batches of the same prompts, each with settings of its own."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from db.models.base import NEVER_REUSED, Base, Key


class Comparison(Base):
    """One comparison; its prompts are the rows of its prompt set, which all of its batches share."""

    __tablename__ = "comparisons"
    __table_args__ = (Index(None, "prompt_set_id"), NEVER_REUSED)

    id: Mapped[Key]
    name: Mapped[str]
    prompt_set_id: Mapped[int] = mapped_column(ForeignKey("prompt_sets.id", ondelete="RESTRICT"))
    created_at: Mapped[datetime]


class ComparisonColumn(Base):
    """One column of a comparison: the batch that audits the prompts with the column's settings."""

    __tablename__ = "comparison_columns"
    __table_args__ = (UniqueConstraint("batch_id"),)

    comparison_id: Mapped[int] = mapped_column(ForeignKey("comparisons.id", ondelete="CASCADE"), primary_key=True)
    place: Mapped[int] = mapped_column(primary_key=True)
    batch_id: Mapped[int] = mapped_column(ForeignKey("batches.id", ondelete="CASCADE"))
