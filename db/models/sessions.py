"""Tables of audit sessions: spans, branches, steps, candidates and annotations."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, LargeBinary, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from db.models.base import NEVER_REUSED, Base, BigInt, Key
from db.models.batches import BatchRow


class AuditSession(Base):
    """One audit of one prompt under one policy."""

    __tablename__ = "audit_sessions"
    __table_args__ = (
        Index(None, "updated_at"),
        Index(None, "calibration_id"),
        Index(None, "active_branch_id"),
        NEVER_REUSED,
    )

    id: Mapped[Key]
    name: Mapped[str]
    prompt: Mapped[str]
    model: Mapped[str]
    model_revision: Mapped[str]
    policy: Mapped[str]
    policy_settings: Mapped[dict[str, Any]]
    lam: Mapped[float | None]
    alpha: Mapped[float | None]
    temperature: Mapped[float]
    top_p: Mapped[float]
    top_k: Mapped[int]
    greedy: Mapped[bool]
    seed: Mapped[BigInt]
    max_new_tokens: Mapped[int]
    calibration_id: Mapped[int | None] = mapped_column(ForeignKey("calibration_runs.id", ondelete="SET NULL"))
    calibration_label: Mapped[str]
    fingerprint: Mapped[dict[str, Any]]
    fingerprint_digest: Mapped[str]
    certificate: Mapped[str]
    warnings: Mapped[list[Any]]
    status: Mapped[str]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    archived_at: Mapped[datetime | None]
    footprint: Mapped[dict[str, Any] | None]
    rendering: Mapped[dict[str, Any] | None]
    # The session and its branches point at each other, so this key is added after both tables exist.
    active_branch_id: Mapped[int | None] = mapped_column(ForeignKey("branches.id", ondelete="SET NULL", use_alter=True))

    spans: Mapped[list[SessionSpan]] = relationship(
        order_by="SessionSpan.position", lazy="selectin", passive_deletes=True, cascade="all, delete-orphan"
    )
    batch_row: Mapped[BatchRow | None] = relationship(viewonly=True, lazy="selectin")


class SessionSpan(Base):
    """One sensitive span of a session's prompt, as the reviewer left it."""

    __tablename__ = "session_spans"
    __table_args__ = (
        CheckConstraint('"start" >= 0', name="start_in_text"),
        CheckConstraint('"end" > "start"', name="not_empty"),
    )

    session_id: Mapped[int] = mapped_column(ForeignKey("audit_sessions.id", ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    start: Mapped[int]
    end: Mapped[int]
    category: Mapped[str]
    source: Mapped[str]
    detail: Mapped[str]
    kept: Mapped[bool]
    score: Mapped[float | None]
    suggested: Mapped[bool]


class Branch(Base):
    """A chain of steps, or the part of one that departs from its parent at ``fork_step``."""

    __tablename__ = "branches"
    __table_args__ = (
        UniqueConstraint("session_id", "path"),
        Index(None, "parent_id"),
        CheckConstraint("(parent_id IS NULL) = (fork_step IS NULL)", name="fork_has_parent"),
        CheckConstraint("fork_step >= 0", name="fork_in_chain"),
        NEVER_REUSED,
    )

    id: Mapped[Key]
    session_id: Mapped[int] = mapped_column(ForeignKey("audit_sessions.id", ondelete="CASCADE"))
    parent_id: Mapped[int | None] = mapped_column(ForeignKey("branches.id", ondelete="CASCADE"))
    fork_step: Mapped[int | None]
    path: Mapped[str]
    name: Mapped[str]
    created_at: Mapped[datetime]
    finished: Mapped[str | None]


class Step(Base):
    """One step of a branch, with everything that a page or report shows of it."""

    __tablename__ = "steps"
    __table_args__ = (
        UniqueConstraint("branch_id", "index"),
        CheckConstraint('"index" >= 0', name="index_in_chain"),
    )

    id: Mapped[Key]
    branch_id: Mapped[int] = mapped_column(ForeignKey("branches.id", ondelete="CASCADE"))
    index: Mapped[int]
    token_id: Mapped[int]
    token: Mapped[str]
    log_p_factual: Mapped[float]
    log_p_masked: Mapped[float]
    log_p_fused: Mapped[float]
    log_tau: Mapped[float]
    certified: Mapped[bool]
    set_size: Mapped[int]
    certified_mass: Mapped[float]
    fallback: Mapped[bool]
    forced: Mapped[bool]
    policy_token_id: Mapped[int]
    policy_token: Mapped[str]
    state: Mapped[str]
    entropy_factual: Mapped[float]
    entropy_masked: Mapped[float]
    entropy_fused: Mapped[float]
    kl_fused_masked: Mapped[float]
    tv_on_set: Mapped[float | None]
    tv_bound: Mapped[float | None]
    sensitivity: Mapped[float]
    log_ratio: Mapped[float]
    margin: Mapped[float]
    kl_fused_factual: Mapped[float | None]
    tv_fused_factual: Mapped[float | None]
    seconds: Mapped[float | None]
    peak_bytes: Mapped[BigInt | None]
    families: Mapped[list[Any] | None]
    certified_in: Mapped[str] = mapped_column(server_default="both")
    set_size_low: Mapped[int | None]
    set_size_high: Mapped[int | None]
    noise: Mapped[float | None]
    # Compressed already, and far larger than the rest of the row: read only where it is asked for.
    logits: Mapped[bytes | None] = mapped_column(LargeBinary, deferred=True)
    created_at: Mapped[datetime]


class Candidate(Base):
    """One row of a step's candidate table."""

    __tablename__ = "candidates"

    step_id: Mapped[int] = mapped_column(ForeignKey("steps.id", ondelete="CASCADE"), primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True)
    token_id: Mapped[int]
    token: Mapped[str]
    log_p_factual: Mapped[float]
    log_p_masked: Mapped[float]
    log_p_fused: Mapped[float]
    certified: Mapped[bool]
    refused_by: Mapped[list[Any] | None]


class Annotation(Base):
    """One entry of a session's verdict log; rows are only ever added, and triggers hold that."""

    __tablename__ = "annotations"
    __table_args__ = (
        Index(None, "session_id", "branch_id", "step_index"),
        Index(None, "branch_id"),
        UniqueConstraint("session_id", "entry"),
        CheckConstraint(
            "kind IN ('verdict', 'adjudication', 'review_started', 'review_finished')",
            name="known_kind",
        ),
        CheckConstraint("verdict IN ('fair', 'unfair', 'unclear')", name="known_verdict"),
        CheckConstraint("step_index IS NULL OR branch_id IS NOT NULL", name="step_has_branch"),
        CheckConstraint("(step_index IS NULL) = (last_step_index IS NULL)", name="span_has_ends"),
        CheckConstraint("last_step_index >= step_index", name="span_in_order"),
        NEVER_REUSED,
    )

    id: Mapped[Key]
    session_id: Mapped[int] = mapped_column(ForeignKey("audit_sessions.id", ondelete="CASCADE"))
    branch_id: Mapped[int | None] = mapped_column(ForeignKey("branches.id", ondelete="CASCADE"))
    step_index: Mapped[int | None]
    last_step_index: Mapped[int | None]
    verdict: Mapped[str | None]
    note: Mapped[str]
    tag: Mapped[str]
    reviewer: Mapped[str]
    created_at: Mapped[datetime]
    entry: Mapped[int]
    kind: Mapped[str]
    blind: Mapped[bool]
    previous: Mapped[str]
    digest: Mapped[str]
