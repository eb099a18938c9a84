"""Texts that hold halves of characters are mended: no page could show them, and none are stored from now on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from alembic import op

from db.types import escape_text, mended, unescape_text
from db.verdicts import FIRST, entry_digest

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

LOG = "annotations"
LOG_TRIGGER = "annotations_keep"


def upgrade() -> None:
    """Replace each half of a character by U+FFFD, and chain the logs anew from the first entry that had one.

    Reports that were exported before name the digests that those entries had then.
    """
    # Written out as SQL, the migration is for a store that is still empty.
    if op.get_context().as_sql:
        return
    connection = op.get_bind()
    inspector = sa.inspect(connection)
    for name in inspector.get_table_names():
        if name in (LOG, "alembic_version"):
            continue
        key = inspector.get_pk_constraint(name)["constrained_columns"]
        columns = {column["name"]: column["type"] for column in inspector.get_columns(name)}
        as_text = {column: sa.String() if isinstance(kind, sa.JSON) else kind for column, kind in columns.items()}
        table = sa.table(name, *(sa.column(column, kind) for column, kind in as_text.items()))
        for column, kind in columns.items():
            if isinstance(kind, sa.String):
                _mend(connection, table, key, column, _text, "\x10d")
            elif isinstance(kind, sa.JSON):
                _mend(connection, table, key, column, _json, "\\ud")
    _mend_logs(connection)


def downgrade() -> None:
    """Nothing: what was mended cannot be broken again."""


def _mend(
    connection: sa.Connection,
    table: sa.TableClause,
    key: list[str],
    column: str,
    whole_of: Callable[[str], str],
    sign: str,
) -> None:
    """Mend one column, in the rows that hold the sign of half a character."""
    words = sa.cast(table.c[column], sa.String)
    query = sa.select(*(table.c[name] for name in key), words).where(words.contains(sign, autoescape=True))
    for *ids, stored in connection.execute(query).all():
        whole = whole_of(stored)
        if whole != stored:
            here = [table.c[name] == value for name, value in zip(key, ids, strict=True)]
            # SQLite keeps JSON as its text, and would read a number out of what is cast to it.
            is_typed = whole_of is _json and connection.dialect.name != "sqlite"
            value = sa.cast(sa.literal(whole, sa.String()), sa.JSON) if is_typed else whole
            connection.execute(table.update().where(*here).values({column: value}))


def _text(stored: str) -> str:
    return escape_text(mended(unescape_text(stored)))


def _json(stored: str) -> str:
    read = json.loads(stored)
    whole = _each_text(read, mended)
    return stored if whole == read else json.dumps(whole)


def _each_text(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_each_text(item, change) for item in value]
    if isinstance(value, dict):
        return {change(key): _each_text(item, change) for key, item in value.items()}
    return value


def _mend_logs(connection: sa.Connection) -> None:
    texts = ("note", "tag", "reviewer")
    query = sa.text(
        "SELECT a.*, b.path FROM annotations a LEFT JOIN branches b ON b.id = a.branch_id "
        "ORDER BY a.session_id, a.entry"
    ).columns(created_at=sa.DateTime(timezone=True), blind=sa.Boolean())
    changes = []
    for _, entries in groupby(connection.execute(query).mappings().all(), key=lambda row: row["session_id"]):
        previous, broken = FIRST, False
        for row in entries:
            whole = {name: None if row[name] is None else _text(row[name]) for name in texts}
            broken = broken or any(whole[name] != row[name] for name in texts)
            digest = entry_digest(_content(dict(row), whole), previous) if broken else row["digest"]
            if broken:
                changes.append({"id": row["id"], **whole, "previous": previous, "digest": digest})
            previous = digest
    if changes:
        _unguarded(
            connection,
            partial(
                connection.execute,
                sa.text(
                    "UPDATE annotations SET note = :note, tag = :tag, reviewer = :reviewer, previous = :previous, "
                    "digest = :digest WHERE id = :id"
                ),
                changes,
            ),
        )


def _content(row: Mapping[str, Any], whole: Mapping[str, str | None]) -> dict[str, str | int | bool | None]:
    words = {name: None if value is None else unescape_text(value) for name, value in whole.items()}
    return {
        "session": row["session_id"],
        "entry": row["entry"],
        "kind": row["kind"],
        "branch": None if row["path"] is None else unescape_text(row["path"]),
        "first_step": row["step_index"],
        "last_step": row["last_step_index"],
        "verdict": row["verdict"],
        **words,
        "blind": row["blind"],
        "at": _moment(row["created_at"]).isoformat(),
    }


def _moment(stored: datetime) -> datetime:
    return stored.replace(tzinfo=UTC) if stored.tzinfo is None else stored.astimezone(UTC)


def _unguarded(connection: sa.Connection, change: Callable[[], object]) -> None:
    """Change entries of the log, which a trigger refuses otherwise; the trigger stands as before afterwards."""
    if connection.dialect.name != "sqlite":
        connection.execute(sa.text(f"ALTER TABLE {LOG} DISABLE TRIGGER {LOG_TRIGGER}"))
        change()
        connection.execute(sa.text(f"ALTER TABLE {LOG} ENABLE TRIGGER {LOG_TRIGGER}"))
        return
    guard = connection.scalar(
        sa.text("SELECT sql FROM sqlite_master WHERE type = 'trigger' AND name = :name"), {"name": LOG_TRIGGER}
    )
    connection.execute(sa.text(f"DROP TRIGGER {LOG_TRIGGER}"))
    change()
    connection.execute(sa.text(guard))
