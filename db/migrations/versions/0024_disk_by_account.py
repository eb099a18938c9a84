"""What is made is counted to the account that makes it; what was stored before belongs to nobody."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

COUNTED = (
    "audit_sessions", "batches", "calibration_runs", "comparisons", "evaluations", "jobs", "prompt_sets", "swaps",
    "user_lists",
)  # fmt: skip


def upgrade() -> None:
    """Add to each table the account and the bytes; of what is there nobody can tell who made it."""
    for table in COUNTED:
        op.add_column(table, sa.Column("account_id", sa.Integer(), nullable=True))
        op.add_column(table, sa.Column("stored_bytes", sa.BigInteger(), nullable=False, server_default="0"))
        op.create_index(op.f(f"ix_{table}_account_id_stored_bytes"), table, ["account_id", "stored_bytes"])


def downgrade() -> None:
    """Remove them again."""
    for table in reversed(COUNTED):
        op.drop_index(op.f(f"ix_{table}_account_id_stored_bytes"), table_name=table)
        op.drop_column(table, "stored_bytes")
        op.drop_column(table, "account_id")
