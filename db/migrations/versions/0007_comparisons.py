"""Steps say how far they are from vanilla and what they cost; comparisons over prompt sets."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

STEP_COLUMNS: tuple[tuple[str, sa.types.TypeEngine[Any]], ...] = (
    ("kl_fused_factual", sa.Double()),
    ("tv_fused_factual", sa.Double()),
    ("seconds", sa.Double()),
    ("peak_bytes", sa.BigInteger()),
)


def upgrade() -> None:
    """Add what steps and sessions are measured by, which older ones do without, and the comparisons."""
    for name, kind in STEP_COLUMNS:
        op.add_column("steps", sa.Column(name, kind, nullable=True))
    op.add_column("audit_sessions", sa.Column("footprint", sa.JSON(none_as_null=True), nullable=True))
    op.create_table(
        "comparisons",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("prompt_set_id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["prompt_set_id"],
            ["prompt_sets.id"],
            name=op.f("fk_comparisons_prompt_set_id_prompt_sets"),
            ondelete="RESTRICT",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_comparisons")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_comparisons_prompt_set_id"), "comparisons", ["prompt_set_id"])
    op.create_table(
        "comparison_columns",
        sa.Column("comparison_id", sa.Integer(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("batch_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["comparison_id"],
            ["comparisons.id"],
            name=op.f("fk_comparison_columns_comparison_id_comparisons"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["batch_id"], ["batches.id"], name=op.f("fk_comparison_columns_batch_id_batches"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("comparison_id", "place", name=op.f("pk_comparison_columns")),
        sa.UniqueConstraint("batch_id", name=op.f("uq_comparison_columns_batch_id")),
    )


def downgrade() -> None:
    """Remove them again; the batches of comparisons stay."""
    op.drop_table("comparison_columns")
    op.drop_table("comparisons")
    op.drop_column("audit_sessions", "footprint")
    with op.batch_alter_table("steps") as batch:
        for name, _ in STEP_COLUMNS:
            batch.drop_column(name)
