"""Comparisons of swapped prompts are kept, so that their addresses show them again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "swaps",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("form", sa.JSON(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_swaps")),
        sa.UniqueConstraint("key", name=op.f("uq_swaps_key")),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    """Remove it again."""
    op.drop_table("swaps")
