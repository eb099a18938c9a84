"""Sessions of other servers are kept with the bundle that they came in."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

TABLE = "imported_sessions"


def upgrade() -> None:
    """Add the table; all sessions that are there were made here."""
    op.create_table(
        TABLE,
        sa.Column("session_id", sa.Integer(), nullable=False),
        sa.Column("source_session_id", sa.Integer(), nullable=False),
        sa.Column("source_file", sa.String(), nullable=False),
        sa.Column("bundle_digest", sa.String(), nullable=False),
        sa.Column("signers", sa.JSON(), nullable=False),
        sa.Column("program", sa.String(), nullable=False),
        sa.Column("imported_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("bundle", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["audit_sessions.id"],
            name=op.f(f"fk_{TABLE}_session_id_audit_sessions"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("session_id", name=op.f(f"pk_{TABLE}")),
        sa.UniqueConstraint("bundle_digest", name=op.f(f"uq_{TABLE}_bundle_digest")),
    )


def downgrade() -> None:
    """Remove it again; the sessions stay, as if they had been made here."""
    op.drop_table(TABLE)
