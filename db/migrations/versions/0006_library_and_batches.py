"""Sessions have tags and can be archived; batches audit many prompts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the archive's time, the tags and the batches."""
    op.add_column("audit_sessions", sa.Column("archived_at", sa.DateTime(timezone=True), nullable=True))
    op.create_table(
        "session_tags",
        sa.Column("session_id", sa.Integer(), nullable=False),
        sa.Column("tag", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["audit_sessions.id"],
            name=op.f("fk_session_tags_session_id_audit_sessions"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("session_id", "tag", name=op.f("pk_session_tags")),
    )
    op.create_index(op.f("ix_session_tags_tag"), "session_tags", ["tag"])
    op.create_table(
        "batches",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("prompt_set_id", sa.Integer(), nullable=False),
        sa.Column("request", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["prompt_set_id"],
            ["prompt_sets.id"],
            name=op.f("fk_batches_prompt_set_id_prompt_sets"),
            ondelete="RESTRICT",
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_batches_job_id_jobs"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_batches")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_batches_prompt_set_id"), "batches", ["prompt_set_id"])
    op.create_index(op.f("ix_batches_job_id"), "batches", ["job_id"])
    op.create_table(
        "batch_rows",
        sa.Column("batch_id", sa.Integer(), nullable=False),
        sa.Column("line", sa.Integer(), nullable=False),
        sa.Column("session_id", sa.Integer(), nullable=True),
        sa.Column("begun_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("error", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["batch_id"], ["batches.id"], name=op.f("fk_batch_rows_batch_id_batches"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["audit_sessions.id"],
            name=op.f("fk_batch_rows_session_id_audit_sessions"),
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("batch_id", "line", name=op.f("pk_batch_rows")),
        sa.UniqueConstraint("session_id", name=op.f("uq_batch_rows_session_id")),
    )


def downgrade() -> None:
    """Remove them again; the sessions of batches stay."""
    op.drop_table("batch_rows")
    op.drop_table("batches")
    op.drop_table("session_tags")
    op.drop_column("audit_sessions", "archived_at")
