"""Tables of calibration runs and their position bins."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column, relationship

from db.models.base import NEVER_REUSED, Base, Key


class CalibrationRun(Base):
    """One calibration with its values, so that another alpha or estimator needs no model."""

    __tablename__ = "calibration_runs"
    __table_args__ = (
        Index(None, "prompt_set_id"),
        Index(None, "job_id"),
        Index(None, "fingerprint_digest"),
        NEVER_REUSED,
    )

    id: Mapped[Key]
    name: Mapped[str]
    prompt_set_id: Mapped[int | None] = mapped_column(ForeignKey("prompt_sets.id", ondelete="SET NULL"))
    model: Mapped[str]
    model_revision: Mapped[str]
    alpha: Mapped[float]
    lam: Mapped[float]
    estimator: Mapped[str]
    source: Mapped[str]
    bin_width: Mapped[int]
    max_position: Mapped[int]
    mask_layout: Mapped[str]
    fingerprint_digest: Mapped[str]
    fingerprint: Mapped[dict[str, Any]]
    values: Mapped[bytes] = mapped_column(deferred=True)
    verification: Mapped[dict[str, Any] | None]
    context_count: Mapped[int]
    token_count: Mapped[int]
    coverage: Mapped[dict[str, Any] | None]
    created_at: Mapped[datetime]
    status: Mapped[str]
    job_id: Mapped[int | None] = mapped_column(ForeignKey("jobs.id", ondelete="SET NULL"))
    embedded: Mapped[bool]

    bins: Mapped[list[CalibrationBin]] = relationship(
        order_by="CalibrationBin.position",
        lazy="selectin",
        passive_deletes=True,
        cascade="all, delete-orphan",
    )


class CalibrationBin(Base):
    """One position bin of a calibration run."""

    __tablename__ = "calibration_bins"
    __table_args__ = (CheckConstraint("last_step >= first_step", name="steps_in_order"),)

    run_id: Mapped[int] = mapped_column(ForeignKey("calibration_runs.id", ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    first_step: Mapped[int]
    last_step: Mapped[int | None]
    log_tau: Mapped[float]
    state: Mapped[str]
    contexts: Mapped[int]
    rank: Mapped[int | None]
    low: Mapped[float | None]
    high: Mapped[float | None]
