"""Annotations become a hash-chained log of verdicts on tokens, spans and sessions, which the store itself guards."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from alembic import op

from db.types import unescape_text
from db.verdicts import FIRST, entry_digest

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

REFUSED = "The verdict log is append-only: add an entry instead of changing one."
UNIQUE = "uq_annotations_session_id_entry"
CHECKS = (
    ("span_has_ends", "(step_index IS NULL) = (last_step_index IS NULL)"),
    ("span_in_order", "last_step_index >= step_index"),
    ("known_kind", "kind IN ('verdict', 'adjudication', 'review_started', 'review_finished')"),
)


def upgrade() -> None:
    """Add what an entry has beyond an annotation, chain the annotations that are there, and guard the table."""
    # The defaults are for the rows that are there until they are chained.
    for column in (
        sa.Column("last_step_index", sa.Integer(), nullable=True),
        sa.Column("entry", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("kind", sa.String(), nullable=False, server_default="verdict"),
        sa.Column("blind", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("previous", sa.String(), nullable=False, server_default=""),
        sa.Column("digest", sa.String(), nullable=False, server_default=""),
    ):
        op.add_column("annotations", column)
    # Written out as SQL, the migration is for a store that is still empty.
    if not op.get_context().as_sql:
        _chain()
    with op.batch_alter_table("annotations", table_kwargs=_kept_options()) as batch:
        for name, condition in CHECKS:
            batch.create_check_constraint(op.f(f"ck_annotations_{name}"), condition)
        batch.create_unique_constraint(op.f(UNIQUE), ["session_id", "entry"])
    _guard()


def downgrade() -> None:
    """Remove them again; beginnings and ends of reviews are no annotations and go too."""
    _unguard()
    op.execute("DELETE FROM annotations WHERE kind IN ('review_started', 'review_finished')")
    with op.batch_alter_table("annotations", table_kwargs=_kept_options()) as batch:
        for name, _ in CHECKS:
            batch.drop_constraint(op.f(f"ck_annotations_{name}"), type_="check")
        batch.drop_constraint(op.f(UNIQUE), type_="unique")
        for name in ("digest", "previous", "blind", "kind", "entry", "last_step_index"):
            batch.drop_column(name)


def _sqlite() -> bool:
    return op.get_context().dialect.name == "sqlite"


def _kept_options() -> dict[str, Any]:
    return {"sqlite_autoincrement": True} if _sqlite() else {}


def _chain() -> None:
    connection = op.get_bind()
    rows = connection.execute(
        sa.text(
            "SELECT a.id, a.session_id, a.step_index, a.verdict, a.note, a.tag, a.reviewer, a.created_at, b.path "
            "FROM annotations a LEFT JOIN branches b ON b.id = a.branch_id ORDER BY a.session_id, a.id"
        ).columns(created_at=sa.DateTime(timezone=True))
    ).mappings()
    for _, entries in groupby(list(rows), key=lambda row: row["session_id"]):
        previous = FIRST
        for number, row in enumerate(entries, 1):
            digest = entry_digest(_content(row, number), previous)
            connection.execute(
                sa.text(
                    "UPDATE annotations SET entry = :entry, last_step_index = step_index, previous = :previous, "
                    "digest = :digest WHERE id = :id"
                ),
                {"entry": number, "previous": previous, "digest": digest, "id": row["id"]},
            )
            previous = digest


def _content(row: Any, number: int) -> dict[str, str | int | bool | None]:
    def text(value: str | None) -> str | None:
        return None if value is None else unescape_text(value)

    return {
        "session": row["session_id"],
        "entry": number,
        "kind": "verdict",
        "branch": text(row["path"]),
        "first_step": row["step_index"],
        "last_step": row["step_index"],
        "verdict": row["verdict"],
        "note": text(row["note"]),
        "tag": text(row["tag"]),
        "reviewer": text(row["reviewer"]),
        "blind": False,
        "at": _moment(row["created_at"]).isoformat(),
    }


def _moment(stored: datetime) -> datetime:
    return stored.replace(tzinfo=UTC) if stored.tzinfo is None else stored.astimezone(UTC)


def _guard() -> None:
    """Refuse changes and single deletions; a deleted session still takes its log along.

    When a deletion cascades, the session's row is gone before its log's rows are, on SQLite and PostgreSQL alike.
    """
    if _sqlite():
        op.execute(
            f"CREATE TRIGGER annotations_keep BEFORE UPDATE ON annotations BEGIN SELECT RAISE(ABORT, '{REFUSED}'); END"
        )
        op.execute(
            "CREATE TRIGGER annotations_stay BEFORE DELETE ON annotations "
            "WHEN EXISTS (SELECT 1 FROM audit_sessions WHERE id = OLD.session_id) "
            f"BEGIN SELECT RAISE(ABORT, '{REFUSED}'); END"
        )
        return
    op.execute(
        "CREATE FUNCTION annotations_refuse() RETURNS trigger AS $$ BEGIN "
        "IF TG_OP = 'DELETE' THEN "
        "IF NOT EXISTS (SELECT 1 FROM audit_sessions WHERE id = OLD.session_id) THEN RETURN OLD; END IF; "
        "END IF; "
        f"RAISE EXCEPTION '{REFUSED}'; END $$ LANGUAGE plpgsql"
    )
    op.execute(
        "CREATE TRIGGER annotations_keep BEFORE UPDATE OR DELETE ON annotations "
        "FOR EACH ROW EXECUTE FUNCTION annotations_refuse()"
    )


def _unguard() -> None:
    if _sqlite():
        op.execute("DROP TRIGGER IF EXISTS annotations_keep")
        op.execute("DROP TRIGGER IF EXISTS annotations_stay")
        return
    op.execute("DROP TRIGGER IF EXISTS annotations_keep ON annotations")
    op.execute("DROP FUNCTION IF EXISTS annotations_refuse()")
