"""Calibrations can be resumed and have mask layouts; rows name contexts and weights; steps keep families' parts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the ledgers of jobs, and what runs, rows of prompt sets, steps and candidates did not have."""
    op.create_table(
        "job_ledgers",
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("prompt_set_id", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("saved_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_job_ledgers_job_id_jobs"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["prompt_set_id"],
            ["prompt_sets.id"],
            name=op.f("fk_job_ledgers_prompt_set_id_prompt_sets"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_job_ledgers")),
    )
    op.create_index(op.f("ix_job_ledgers_prompt_set_id"), "job_ledgers", ["prompt_set_id"])
    # The default is for the runs that are there: all of them had one masked branch.
    op.add_column("calibration_runs", sa.Column("mask_layout", sa.String(), nullable=False, server_default="joint"))
    op.add_column("prompt_rows", sa.Column("context", sa.String(), nullable=True))
    op.add_column("prompt_rows", sa.Column("weight", sa.Double(), nullable=True))
    op.add_column("steps", sa.Column("families", sa.JSON(none_as_null=True), nullable=True))
    op.add_column("candidates", sa.Column("refused_by", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    """Remove them again."""
    for table, columns in (
        ("candidates", ("refused_by",)),
        ("steps", ("families",)),
        ("prompt_rows", ("weight", "context")),
        ("calibration_runs", ("mask_layout",)),
    ):
        with op.batch_alter_table(table) as batch:
            for column in columns:
                batch.drop_column(column)
    op.drop_table("job_ledgers")
