"""Every table of the store with what guards it: made in an empty database, and told from those of another version."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping

from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, insert, inspect, select, text, update

import db
from db.database import ACCESS
from db.scope import ACCOUNT, SHARED
from db.tables import METADATA, one_writer
from db.types import StoreError

VERSION = "0029"
"""Of the tables; a change of them needs another one."""

_COLUMNS = ("steps.bounds", "candidates.at_most")
_ADDED: Mapping[str, tuple[str, ...]] = {
    "0025": ("controls", *_COLUMNS, "decision_runs"),
    "0027": (*_COLUMNS, "decision_runs"),
    "0028": ("decision_runs",),
}
"""Tables and columns that an earlier version of the store lacks; otherwise it is as it was."""

_MAKING = 0x636F6674

# Named as Alembic names it, so that migrations can follow this version.
_VERSION = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))

_ADDED_TO_ONLY = {
    "verdict_tombstones": "Tombstones of verdict logs are only ever added.",
    "audit_trail": "Entries of the audit trail are only ever added.",
}
_LOG_REFUSES = "The verdict log is append-only: add an entry instead of changing one."
_LEAVE = (
    "INSERT INTO verdict_tombstones (session_id, entries, head, deleted_at, project_id) "
    "SELECT OLD.id, newest.entry, newest.digest, {now}, OLD.project_id FROM annotations AS newest "
    "WHERE newest.session_id = OLD.id ORDER BY newest.entry DESC LIMIT 1"
)
"""What a deleted session leaves of its verdict log, by whatever means it is deleted."""


def make_tables(engine: Engine) -> None:
    """Make the tables that a database lacks, in one transaction; otherwise only look at their version."""
    with engine.execution_options(**{ACCESS: "read"}).connect() as connection:
        if _made(connection) == VERSION:
            return
    with engine.begin() as connection:
        # Two processes that start at once must not both make them.
        one_writer(connection, _MAKING)
        made = _made(connection)
        if made == VERSION:
            return
        every_table()
        if made is not None:
            for name, _, column in (added.partition(".") for added in _ADDED[made]):
                table = METADATA.tables[name]
                if column:
                    kind = table.c[column].type.compile(connection.dialect)
                    connection.execute(text(f"ALTER TABLE {name} ADD COLUMN {column} {kind}"))
                else:
                    table.create(connection, checkfirst=False)
            connection.execute(update(_VERSION).values(version_num=VERSION))
            return
        METADATA.create_all(connection, checkfirst=False)
        _VERSION.create(connection)
        for statement in _guards(connection.dialect.name):
            connection.execute(text(statement))
        # Without its number, so that PostgreSQL counts on from it.
        connection.execute(text("INSERT INTO projects (name, created_at) VALUES ('Default', CURRENT_TIMESTAMP)"))
        connection.execute(insert(_VERSION).values(version_num=VERSION))


def every_table() -> Mapping[str, Table]:
    """All tables by their names; those of a feature are known once its module is read."""
    for module in pkgutil.iter_modules(db.__path__):
        importlib.import_module(f"db.{module.name}")
    return METADATA.tables


def roots() -> list[str]:
    """The tables whose rows say whose they are; what a deletion leaves of a verdict log is nobody's."""
    return sorted(name for name, table in every_table().items() if ACCOUNT in table.c and name not in SHARED)


def _made(connection: Connection) -> str | None:
    """The version of the tables; None where there are none."""
    if not inspect(connection).has_table(_VERSION.name):
        return None
    found = connection.scalar(select(_VERSION.c.version_num))
    if found != VERSION and found not in _ADDED:
        raise StoreError(
            f"The store {connection.engine.url.render_as_string()} was made by another version of the program (its "
            f"tables have the version {found}, this program reads {VERSION}); nothing was changed. Use the program "
            "that made it, or give another database."
        )
    return str(found)


def _guards(dialect: str) -> Iterator[str]:
    """The statements that make the triggers.

    When a deletion cascades, the session's row is gone before its log's rows are, on SQLite and PostgreSQL alike, so
    that a deleted session takes its log along and nothing else does.
    """
    is_there = "EXISTS (SELECT 1 FROM audit_sessions WHERE id = OLD.session_id)"
    if dialect == "sqlite":
        # As many digits as the program writes, which takes three for millionths.
        leave = _LEAVE.format(now="strftime('%Y-%m-%d %H:%M:%f000', 'now')")
        yield f"CREATE TRIGGER audit_sessions_leave BEFORE DELETE ON audit_sessions BEGIN {leave}; END"
        refuse = f"BEGIN SELECT RAISE(ABORT, '{_LOG_REFUSES}'); END"
        yield f"CREATE TRIGGER annotations_keep BEFORE UPDATE ON annotations {refuse}"
        yield f"CREATE TRIGGER annotations_stay BEFORE DELETE ON annotations WHEN {is_there} {refuse}"
        for table, sentence in _ADDED_TO_ONLY.items():
            refuse = f"BEGIN SELECT RAISE(ABORT, '{sentence}'); END"
            yield f"CREATE TRIGGER {table}_keep BEFORE UPDATE ON {table} {refuse}"
            yield f"CREATE TRIGGER {table}_stay BEFORE DELETE ON {table} {refuse}"
        return
    yield _function("audit_sessions_leave", f"{_LEAVE.format(now='now()')}; RETURN OLD;")
    yield _trigger("audit_sessions_leave", "DELETE ON audit_sessions FOR EACH ROW", "audit_sessions_leave")
    passes = f"IF TG_OP = 'DELETE' THEN IF NOT {is_there} THEN RETURN OLD; END IF; END IF;"
    yield _function("annotations_refuse", f"{passes} RAISE EXCEPTION '{_LOG_REFUSES}';")
    yield _trigger("annotations_keep", "UPDATE OR DELETE ON annotations FOR EACH ROW", "annotations_refuse")
    # Triggers of rows see nothing of TRUNCATE; this one also stops one that comes from the table of sessions.
    yield _trigger("annotations_whole", "TRUNCATE ON annotations FOR EACH STATEMENT", "annotations_refuse")
    for table, sentence in _ADDED_TO_ONLY.items():
        yield _function(f"{table}_refuse", f"RAISE EXCEPTION '{sentence}';")
        change = f"UPDATE OR DELETE OR TRUNCATE ON {table} FOR EACH STATEMENT"
        yield _trigger(f"{table}_keep", change, f"{table}_refuse")


def _function(name: str, body: str) -> str:
    return f"CREATE FUNCTION {name}() RETURNS trigger AS $$ BEGIN {body} END $$ LANGUAGE plpgsql"


def _trigger(name: str, change: str, function: str) -> str:
    return f"CREATE TRIGGER {name} BEFORE {change} EXECUTE FUNCTION {function}()"
