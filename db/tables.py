"""Tables of audit sessions: spans, branches, steps, candidates and annotations."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from sqlalchemy import JSON, BigInteger, CheckConstraint, ForeignKey, Index, LargeBinary, MetaData, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from db.types import AnyText, CompressedBytes, RealNumber, UtcDateTime

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}

NEVER_REUSED = {"sqlite_autoincrement": True}
"""Table option: without it SQLite hands a deleted row's id out again, and an old link opens a stranger."""

Key = Annotated[int, mapped_column(primary_key=True)]
BigInt = Annotated[int, mapped_column(BigInteger)]


class Base(DeclarativeBase):
    """Base of all mapped classes; the annotation map fixes one column type per Python type."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy's own declaration
        str: AnyText,
        float: RealNumber,
        datetime: UtcDateTime,
        bytes: CompressedBytes,
        dict[str, Any]: JSON(none_as_null=True),
        list[Any]: JSON(none_as_null=True),
    }


class SessionTag(Base):
    """One tag of one session."""

    __tablename__ = "session_tags"
    __table_args__ = (Index(None, "tag"),)

    session_id: Mapped[int] = mapped_column(ForeignKey("audit_sessions.id", ondelete="CASCADE"), primary_key=True)
    tag: Mapped[str] = mapped_column(primary_key=True)


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
