"""Logits are packed with the matrix of their model's last layer, which is kept once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

TABLE = "logit_bases"
FIRST_BYTE = {"sqlite": "CAST(hex(substr(logits, 1, 1)) AS INTEGER)", "postgresql": "get_byte(logits, 0)"}
"""The format of stored logits: 2 is packed."""


def upgrade() -> None:
    """Add the table; logits that are there stay as they are, and are read as before."""
    op.create_table(
        TABLE,
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f(f"pk_{TABLE}")),
    )


def downgrade() -> None:
    """Remove it again; steps lose the logits that were packed, which no earlier version can read."""
    op.execute(f"UPDATE steps SET logits = NULL WHERE {FIRST_BYTE[op.get_context().dialect.name]} = 2")
    op.drop_table(TABLE)
