"""A deleted session leaves a tombstone of its verdict log, and PostgreSQL refuses to empty a log as a whole."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

TABLE = "verdict_tombstones"
REFUSED = "Tombstones of verdict logs are only ever added."
SAID = (
    f"INSERT INTO {TABLE} (session_id, entries, head, deleted_at) "
    "SELECT OLD.id, newest.entry, newest.digest, {now} FROM annotations AS newest "
    "WHERE newest.session_id = OLD.id ORDER BY newest.entry DESC LIMIT 1"
)


def upgrade() -> None:
    """Add the table with what fills and guards it; sessions that are gone already left nothing to be told."""
    op.create_table(
        TABLE,
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("session_id", sa.Integer(), nullable=False),
        sa.Column("entries", sa.Integer(), nullable=False),
        sa.Column("head", sa.String(), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{TABLE}")),
        sa.UniqueConstraint("session_id", name=op.f(f"uq_{TABLE}_session_id")),
        sqlite_autoincrement=True,
    )
    # Triggers, so that a deletion by other means than the program leaves one too.
    if op.get_context().dialect.name == "sqlite":
        # As many digits as the program writes, which takes three for millionths.
        now = "strftime('%Y-%m-%d %H:%M:%f000', 'now')"
        op.execute(
            f"CREATE TRIGGER audit_sessions_leave BEFORE DELETE ON audit_sessions BEGIN {SAID.format(now=now)}; END"
        )
        for name, what in (("keep", "UPDATE"), ("stay", "DELETE")):
            op.execute(
                f"CREATE TRIGGER {TABLE}_{name} BEFORE {what} ON {TABLE} BEGIN SELECT RAISE(ABORT, '{REFUSED}'); END"
            )
        return
    op.execute(
        "CREATE FUNCTION audit_sessions_leave() RETURNS trigger AS $$ BEGIN "
        f"{SAID.format(now='now()')}; RETURN OLD; END $$ LANGUAGE plpgsql"
    )
    op.execute(
        "CREATE TRIGGER audit_sessions_leave BEFORE DELETE ON audit_sessions "
        "FOR EACH ROW EXECUTE FUNCTION audit_sessions_leave()"
    )
    op.execute(
        f"CREATE FUNCTION {TABLE}_refuse() RETURNS trigger AS $$ BEGIN "
        f"RAISE EXCEPTION '{REFUSED}'; END $$ LANGUAGE plpgsql"
    )
    op.execute(
        f"CREATE TRIGGER {TABLE}_keep BEFORE UPDATE OR DELETE OR TRUNCATE ON {TABLE} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION {TABLE}_refuse()"
    )
    # Row by row triggers see nothing of TRUNCATE; this one also stops one that comes from the table of sessions.
    op.execute(
        "CREATE TRIGGER annotations_whole BEFORE TRUNCATE ON annotations "
        "FOR EACH STATEMENT EXECUTE FUNCTION annotations_refuse()"
    )


def downgrade() -> None:
    """Remove them again."""
    if op.get_context().dialect.name == "sqlite":
        op.execute("DROP TRIGGER audit_sessions_leave")
    else:
        op.execute("DROP TRIGGER annotations_whole ON annotations")
        op.execute("DROP TRIGGER audit_sessions_leave ON audit_sessions")
        op.execute("DROP FUNCTION audit_sessions_leave()")
    op.drop_table(TABLE)
    if op.get_context().dialect.name != "sqlite":
        op.execute(f"DROP FUNCTION {TABLE}_refuse()")
