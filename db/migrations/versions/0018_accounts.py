"""Accounts with their tokens and signed-in browsers, attempts to sign in, and the trail of what accounts did."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

TRAIL = "audit_trail"
REFUSED = "Entries of the audit trail are only ever added."
MOMENT = sa.DateTime(timezone=True)


def _id() -> sa.Column[int]:
    return sa.Column("id", sa.Integer(), nullable=False)


def _account(table: str) -> tuple[sa.Column[int], sa.ForeignKeyConstraint]:
    name = op.f(f"fk_{table}_account_id_accounts")
    return (
        sa.Column("account_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=name, ondelete="CASCADE"),
    )


def _moments(*names: str, nullable: bool = False) -> list[sa.Column[object]]:
    return [sa.Column(name, MOMENT, nullable=nullable) for name in names]


def upgrade() -> None:
    """Add the tables, and guard the trail."""
    op.create_table(
        "accounts",
        _id(),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("issuer", sa.String(), nullable=True),
        sa.Column("subject", sa.String(), nullable=True),
        *_moments("created_at"),
        *_moments("disabled_at", nullable=True),
        sa.Column("password", sa.String(), nullable=True),
        sa.CheckConstraint("role IN ('viewer', 'reviewer', 'lead', 'admin')", name=op.f("ck_accounts_known_role")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_accounts")),
        sa.UniqueConstraint("name", name=op.f("uq_accounts_name")),
        sa.UniqueConstraint("issuer", "subject", name=op.f("uq_accounts_issuer_subject")),
        sqlite_autoincrement=True,
    )
    column, key = _account("account_tokens")
    op.create_table(
        "account_tokens",
        _id(),
        column,
        sa.Column("label", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        *_moments("created_at"),
        *_moments("expires_at", "used_at", "revoked_at", nullable=True),
        key,
        sa.PrimaryKeyConstraint("id", name=op.f("pk_account_tokens")),
        sa.UniqueConstraint("digest", name=op.f("uq_account_tokens_digest")),
        sqlite_autoincrement=True,
    )
    column, key = _account("account_sign_ins")
    op.create_table(
        "account_sign_ins",
        _id(),
        column,
        sa.Column("digest", sa.String(), nullable=False),
        *_moments("created_at", "expires_at"),
        key,
        sa.PrimaryKeyConstraint("id", name=op.f("pk_account_sign_ins")),
        sa.UniqueConstraint("digest", name=op.f("uq_account_sign_ins_digest")),
        sqlite_autoincrement=True,
    )
    for table in ("account_tokens", "account_sign_ins"):
        op.create_index(op.f(f"ix_{table}_account_id"), table, ["account_id"])
    op.create_table(
        "account_attempts",
        _id(),
        sa.Column("key", sa.String(), nullable=False),
        *_moments("made_at"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_account_attempts")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        TRAIL,
        *(
            sa.Column(name, sa.String(), nullable=False)
            for name in ("actor", "action", "subject", "outcome", "address")
        ),
        _id(),
        sa.Column("entry", sa.Integer(), nullable=False),
        *_moments("created_at"),
        sa.Column("previous", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{TRAIL}")),
        sa.UniqueConstraint("entry", name=op.f(f"uq_{TRAIL}_entry")),
        sqlite_autoincrement=True,
    )
    _guard()


def _guard() -> None:
    if op.get_context().dialect.name == "sqlite":
        for name, what in (("keep", "UPDATE"), ("stay", "DELETE")):
            op.execute(
                f"CREATE TRIGGER {TRAIL}_{name} BEFORE {what} ON {TRAIL} BEGIN SELECT RAISE(ABORT, '{REFUSED}'); END"
            )
        return
    op.execute(
        f"CREATE FUNCTION {TRAIL}_refuse() RETURNS trigger AS $$ BEGIN "
        f"RAISE EXCEPTION '{REFUSED}'; END $$ LANGUAGE plpgsql"
    )
    op.execute(
        f"CREATE TRIGGER {TRAIL}_keep BEFORE UPDATE OR DELETE OR TRUNCATE ON {TRAIL} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION {TRAIL}_refuse()"
    )


def downgrade() -> None:
    """Remove them again."""
    for table in ("account_tokens", "account_sign_ins"):
        op.drop_index(op.f(f"ix_{table}_account_id"), table_name=table)
    for table in (TRAIL, "account_attempts", "account_sign_ins", "account_tokens", "accounts"):
        op.drop_table(table)
    if op.get_context().dialect.name != "sqlite":
        op.execute(f"DROP FUNCTION {TRAIL}_refuse()")
