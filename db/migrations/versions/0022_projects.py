"""Projects with members; everything that is stored, and every account, goes to the first one, called Default."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)
DEFAULT = 1
OWNING = (
    "audit_sessions", "batches", "comparisons", "evaluations", "jobs", "prompt_sets", "swaps", "user_lists",
    "verdict_tombstones",
)  # fmt: skip
SAID = (
    "INSERT INTO verdict_tombstones ({columns}) SELECT {values} FROM annotations AS newest "
    "WHERE newest.session_id = OLD.id ORDER BY newest.entry DESC LIMIT 1"
)
COLUMNS, VALUES = "session_id, entries, head, deleted_at", "OLD.id, newest.entry, newest.digest, {now}"


def _said(now: str, by_project: bool) -> str:
    """What a deleted session leaves of its verdict log."""
    columns = f"{COLUMNS}, project_id" if by_project else COLUMNS
    values = (f"{VALUES}, OLD.project_id" if by_project else VALUES).format(now=now)
    return SAID.format(columns=columns, values=values)


def _leave_tombstones(by_project: bool) -> None:
    if op.get_context().dialect.name == "sqlite":
        now = "strftime('%Y-%m-%d %H:%M:%f000', 'now')"
        op.execute("DROP TRIGGER IF EXISTS audit_sessions_leave")
        op.execute(
            f"CREATE TRIGGER audit_sessions_leave BEFORE DELETE ON audit_sessions BEGIN {_said(now, by_project)}; END"
        )
        return
    op.execute(
        "CREATE OR REPLACE FUNCTION audit_sessions_leave() RETURNS trigger AS $$ BEGIN "
        f"{_said('now()', by_project)}; RETURN OLD; END $$ LANGUAGE plpgsql"
    )


def _unique_names(columns: list[str], instead_of: str) -> None:
    """Word lists have names of their own within these columns."""
    name = f"uq_user_lists_{'_'.join(columns)}"
    if op.get_context().dialect.name != "sqlite":
        op.drop_constraint(instead_of, "user_lists")
        op.create_unique_constraint(name, "user_lists", columns)
        return
    with op.batch_alter_table("user_lists", table_kwargs={"sqlite_autoincrement": True}) as table:
        table.drop_constraint(instead_of)
        table.create_unique_constraint(name, columns)


def _imported(once: bool) -> None:
    """Whether a store, or only a project, has a bundle once."""
    table, unique, index = (
        "imported_sessions",
        "uq_imported_sessions_bundle_digest",
        "ix_imported_sessions_bundle_digest",
    )
    if once:
        op.drop_index(op.f(index), table_name=table)
    with op.batch_alter_table(table) as changed:
        if once:
            changed.create_unique_constraint(unique, ["bundle_digest"])
        else:
            changed.drop_constraint(unique)
    if not once:
        op.create_index(op.f(index), table, ["bundle_digest"])


def upgrade() -> None:
    """Add the tables and columns."""
    op.create_table(
        "projects",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
        sa.UniqueConstraint("name", name=op.f("uq_projects_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "project_members",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("account_id", sa.Integer(), nullable=False),
        sa.Column("added_at", MOMENT, nullable=False),
        *(
            sa.ForeignKeyConstraint(
                [f"{one}_id"], [f"{many}.id"], name=op.f(f"fk_project_members_{one}_id_{many}"), ondelete="CASCADE"
            )
            for one, many in (("project", "projects"), ("account", "accounts"))
        ),
        sa.PrimaryKeyConstraint("project_id", "account_id", name=op.f("pk_project_members")),
    )
    op.create_index(op.f("ix_project_members_account_id"), "project_members", ["account_id"])
    # Without its number, so that PostgreSQL counts on from it.
    op.execute("INSERT INTO projects (name, created_at) VALUES ('Default', CURRENT_TIMESTAMP)")
    op.execute(
        "INSERT INTO project_members (project_id, account_id, added_at) "
        f"SELECT {DEFAULT}, id, CURRENT_TIMESTAMP FROM accounts"
    )
    for table in OWNING:
        op.add_column(table, sa.Column("project_id", sa.Integer(), nullable=False, server_default=str(DEFAULT)))
    # The calibration that comes with the program is seen in every project.
    op.add_column("calibration_runs", sa.Column("project_id", sa.Integer(), server_default=str(DEFAULT)))
    op.execute("UPDATE calibration_runs SET project_id = NULL WHERE embedded")
    _unique_names(["project_id", "name"], "uq_user_lists_name")
    op.add_column("account_tokens", sa.Column("project_id", sa.Integer(), nullable=True))
    op.add_column("account_sign_ins", sa.Column("id_token", sa.String(), nullable=True))
    op.add_column("accounts", sa.Column("signed_in_at", MOMENT, nullable=True))
    op.add_column("accounts", sa.Column("one_time_until", MOMENT, nullable=True))
    _imported(once=False)
    _leave_tombstones(by_project=True)


def downgrade() -> None:
    """Remove them again; what belonged to several projects belongs to all accounts then."""
    _leave_tombstones(by_project=False)
    # A bundle that several projects have stays with the one that had it first.
    op.execute(
        "DELETE FROM imported_sessions WHERE session_id NOT IN "
        "(SELECT MIN(session_id) FROM imported_sessions GROUP BY bundle_digest)"
    )
    _imported(once=True)
    for table, name in (
        ("accounts", "one_time_until"),
        ("accounts", "signed_in_at"),
        ("account_sign_ins", "id_token"),
        ("account_tokens", "project_id"),
        ("calibration_runs", "project_id"),
    ):
        op.drop_column(table, name)
    # Lists of one name in several projects are told apart by the project's number.
    op.execute(
        "UPDATE user_lists SET name = name || ' (project ' || project_id || ')' "
        f"WHERE project_id <> {DEFAULT} AND name IN (SELECT other.name FROM user_lists AS other "
        "WHERE other.id <> user_lists.id)"
    )
    _unique_names(["name"], "uq_user_lists_project_id_name")
    for table in reversed(OWNING):
        op.drop_column(table, "project_id")
    op.drop_index(op.f("ix_project_members_account_id"), table_name="project_members")
    op.drop_table("project_members")
    op.drop_table("projects")
