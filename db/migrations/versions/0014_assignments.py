"""Assignments of reviews, who was shown what others said, and comments in the verdict log."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

KNOWN_KIND = "ck_annotations_known_kind"
KINDS = ("verdict", "adjudication", "review_started", "review_finished")


def upgrade() -> None:
    """Add the tables, and let the log take comments; entries that are there stay as they are, digests included."""
    _create(
        "assignments",
        sa.Column("lead", sa.String(), nullable=False),
        sa.Column("due_on", sa.Date(), nullable=True),
        sa.Column("assigned_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index(op.f("ix_assignments_reviewer"), "assignments", ["reviewer"])
    _create(
        "verdict_readings",
        sa.Column("entry", sa.Integer(), nullable=False),
        sa.Column("shown_at", sa.DateTime(timezone=True), nullable=False),
    )
    _allow((*KINDS, "comment"))


def downgrade() -> None:
    """Remove them again; a log that had comments then shows that entries are missing."""
    guards = _unguard()
    op.execute("DELETE FROM annotations WHERE kind = 'comment'")
    _guard(guards)
    _allow(KINDS)
    op.drop_table("verdict_readings")
    op.drop_table("assignments")


def _create(table: str, *further: sa.Column[Any]) -> None:
    """A table of what a reviewer has to do with a session."""
    op.create_table(
        table,
        sa.Column("session_id", sa.Integer(), nullable=False),
        sa.Column("reviewer", sa.String(), nullable=False),
        *further,
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["audit_sessions.id"],
            name=op.f(f"fk_{table}_session_id_audit_sessions"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("session_id", "reviewer", name=op.f(f"pk_{table}")),
    )


def _allow(kinds: tuple[str, ...]) -> None:
    """Let the log take entries of these kinds; SQLite makes the table anew for it, and forgets its triggers."""
    condition = f"kind IN ({', '.join(repr(kind) for kind in kinds)})"
    guards = _unguard() if _sqlite() else []
    with op.batch_alter_table("annotations", table_kwargs={"sqlite_autoincrement": True} if _sqlite() else {}) as batch:
        batch.drop_constraint(op.f(KNOWN_KIND), type_="check")
        batch.create_check_constraint(op.f(KNOWN_KIND), condition)
    if _sqlite():
        _guard(guards)


def _sqlite() -> bool:
    return op.get_context().dialect.name == "sqlite"


def _unguard() -> list[str]:
    """Let entries be changed; gives what puts the guards back."""
    if not _sqlite():
        # Whoever owns the database may have removed the guard; there is nothing to disable then.
        named = "tgrelid = 'annotations'::regclass AND tgname = 'annotations_keep'"
        if not op.get_bind().scalar(sa.text(f"SELECT count(*) FROM pg_trigger WHERE {named}")):
            return []
        op.execute("ALTER TABLE annotations DISABLE TRIGGER annotations_keep")
        return ["ALTER TABLE annotations ENABLE TRIGGER annotations_keep"]
    query = sa.text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'annotations'")
    found = op.get_bind().execute(query).all()
    for name, _ in found:
        op.execute(f"DROP TRIGGER {name}")
    return [definition for _, definition in found]


def _guard(guards: list[str]) -> None:
    for definition in guards:
        op.execute(definition)
