"""What is kept of an audit session beside its steps: records, and their tables."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from coft_core.types import Span
from db.tables import METADATA, Rewritten, change_row, columns, fields_in, find, numbered_table, project_table
from db.types import (
    AnyText,
    CalibrationDeletedError,
    ConflictError,
    ImportedSessionError,
    JsonObject,
    NotFoundError,
    UtcDateTime,
    utc_now,
)


@dataclass(frozen=True, slots=True)
class BatchPlace:
    """Where a session is in a batch: the batch and the line of its prompt set."""

    batch_id: int
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFields:
    """What the caller says of an audit session."""

    name: str
    prompt: str
    model: str
    model_revision: str
    policy: str
    policy_settings: JsonObject
    lam: float | None
    alpha: float | None
    temperature: float
    top_p: float
    top_k: int
    greedy: bool
    seed: int
    max_new_tokens: int
    fingerprint: JsonObject
    fingerprint_digest: str
    certificate: str
    calibration_id: int | None = None
    calibration_label: str = ""
    warnings: tuple[str, ...] = ()
    status: str = "open"
    batch: BatchPlace | None = None
    footprint: JsonObject | None = None
    rendering: JsonObject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord(SessionFields):
    """A stored audit session with its spans, in the order given."""

    id: int
    created_at: datetime
    updated_at: datetime
    active_branch_id: int
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """One row of the list of sessions; ``steps`` is the length of the active branch's chain."""

    id: int
    name: str
    prompt: str
    model: str
    policy: str
    steps: int
    certificate: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchRecord:
    """A branch of a session."""

    id: int
    session_id: int
    parent_id: int | None
    fork_step: int | None
    path: str
    name: str
    created_at: datetime
    finished: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOrigin:
    """Where an imported session came from."""

    source_session_id: int
    source_file: str
    bundle_digest: str
    signers: tuple[str, ...]
    program: str
    imported_at: datetime


sessions = project_table(
    "audit_sessions",
    "audit session",
    *columns(
        SessionRecord,
        batch=None,
        spans=None,
        seed=sa.BigInteger(),
        warnings=Rewritten(list, tuple),
        calibration_id=sa.ForeignKey("calibration_runs.id", ondelete="SET NULL"),
        # The session and its branches point at each other, so this key is added after both tables exist.
        active_branch_id=sa.Column(
            "active_branch_id", sa.Integer, sa.ForeignKey("branches.id", ondelete="SET NULL", use_alter=True)
        ),
    ),
    sa.Column("archived_at", UtcDateTime),
    sa.Index(None, "updated_at"),
    sa.Index(None, "calibration_id"),
    sa.Index(None, "active_branch_id"),
)

session_spans = sa.Table(
    "session_spans",
    METADATA,
    sa.Column("session_id", sa.Integer, sa.ForeignKey("audit_sessions.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    *columns(Span),
    sa.CheckConstraint('"start" >= 0', name="start_in_text"),
    sa.CheckConstraint('"end" > "start"', name="not_empty"),
)

batch_rows = sa.Table(
    "batch_rows",
    METADATA,
    sa.Column("batch_id", sa.Integer, sa.ForeignKey("batches.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("line", sa.Integer, primary_key=True),
    sa.Column("session_id", sa.Integer, sa.ForeignKey("audit_sessions.id", ondelete="SET NULL")),
    sa.Column("begun_at", UtcDateTime),
    sa.Column("error", AnyText),
    sa.UniqueConstraint("session_id"),
)
"""What became of the rows of batches; one that has begun and has no session lost it to a deletion."""

branches = numbered_table(
    "branches",
    "branch",
    *columns(
        BranchRecord,
        session_id=sa.ForeignKey("audit_sessions.id", ondelete="CASCADE"),
        parent_id=sa.ForeignKey("branches.id", ondelete="CASCADE"),
    ),
    sa.UniqueConstraint("session_id", "path"),
    sa.Index(None, "parent_id"),
    sa.CheckConstraint("(parent_id IS NULL) = (fork_step IS NULL)", name="fork_has_parent"),
    sa.CheckConstraint("fork_step >= 0", name="fork_in_chain"),
)

imported_sessions = sa.Table(
    "imported_sessions",
    METADATA,
    sa.Column("session_id", sa.Integer, sa.ForeignKey("audit_sessions.id", ondelete="CASCADE"), primary_key=True),
    *columns(SessionOrigin, signers=Rewritten(list, tuple)),
    # As it was imported, so that it can be handed on and still verifies; read only where it is asked for.
    sa.Column("bundle", sa.LargeBinary, nullable=False),
    # A bundle is imported once into a project; another one may have it too.
    sa.Index(None, "bundle_digest"),
)


def session_record(connection: sa.Connection, session_id: int) -> SessionRecord:
    """A session with its spans and its place in a batch."""
    row = find(connection, sessions, session_id)._mapping
    spans = sa.select(*fields_in(Span, session_spans)).where(session_spans.c.session_id == session_id)
    place = sa.select(batch_rows.c.batch_id, batch_rows.c.line).where(batch_rows.c.session_id == session_id)
    found = connection.execute(place).one_or_none()
    return SessionRecord(
        **{column.name: row[column] for column in fields_in(SessionRecord, sessions)},
        batch=None if found is None else BatchPlace(*found),
        spans=tuple(Span(*span) for span in connection.execute(spans.order_by(session_spans.c.position))),
    )


def branch_record(connection: sa.Connection, branch_id: int) -> BranchRecord:
    """A branch."""
    return BranchRecord(**find(connection, branches, branch_id)._asdict())


def active_branch_record(connection: sa.Connection, session_id: int) -> BranchRecord:
    """The branch with which a session reopens."""
    return branch_record(connection, find(connection, sessions, session_id).active_branch_id)


def own_branch(connection: sa.Connection, session_id: int, branch_id: int) -> BranchRecord:
    """A branch of a session."""
    branch = branch_record(connection, branch_id)
    if branch.session_id != session_id:
        raise ConflictError(f"Branch {branch_id} is not a branch of audit session {session_id}.")
    return branch


def touch(connection: sa.Connection, session_id: int) -> None:
    """Write that a session changes now."""
    change_row(connection, sessions, session_id, updated_at=utc_now())


def claim_row(connection: sa.Connection, place: BatchPlace, session_id: int) -> None:
    """Write in the transaction that makes a session that it belongs to a row of a batch."""
    batch_row = (batch_rows.c.batch_id == place.batch_id) & (batch_rows.c.line == place.line)
    row = connection.execute(sa.select(batch_rows).where(batch_row).with_for_update()).one_or_none()
    if row is None:
        raise NotFoundError(f"Batch {place.batch_id} has no line {place.line}; it may have been deleted.")
    if row.begun_at is not None:
        raise ConflictError(f"Line {place.line} of this batch has had a session already; open that one.")
    connection.execute(
        sa.update(batch_rows).where(batch_row).values(session_id=session_id, begun_at=utc_now(), error=None)
    )


def session_origin(connection: sa.Connection, session_id: int) -> SessionOrigin | None:
    """Where a session came from; None where it was made here."""
    query = sa.select(*fields_in(SessionOrigin, imported_sessions)).where(imported_sessions.c.session_id == session_id)
    row = connection.execute(query).one_or_none()
    return None if row is None else SessionOrigin(**row._asdict())


def require_own(connection: sa.Connection, session_id: int) -> None:
    """Refuse to change what was imported."""
    if session_origin(connection, session_id) is not None:
        raise ImportedSessionError(session_id)


def require_calibration(calibration_id: int | None, label: str) -> None:
    """Refuse to go on with a session whose calibration is gone: what is in memory may still hold its thresholds."""
    if label and calibration_id is None:
        raise CalibrationDeletedError(label)
