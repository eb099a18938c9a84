"""Evaluations of methods on benchmarks, with what became of each item."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "evaluations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("request", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("plan", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_evaluations_job_id_jobs"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evaluations")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_evaluations_job_id"), "evaluations", ["job_id"])
    op.create_table(
        "evaluation_contents",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_evaluation_contents")),
    )
    _create(
        "evaluation_items",
        [sa.Column("place", sa.Integer(), nullable=False), sa.Column("item", sa.String(), nullable=False)],
        ("evaluation_id", "suite", "method", "seed", "place"),
    )
    _create(
        "evaluation_calibrations",
        [sa.Column("summary", sa.JSON(none_as_null=True), nullable=False)],
        ("evaluation_id", "suite", "method", "seed"),
    )


def downgrade() -> None:
    """Remove them again."""
    for table in ("evaluation_calibrations", "evaluation_items", "evaluation_contents", "evaluations"):
        op.drop_table(table)


def _create(table: str, further: list[sa.Column[Any]], key: tuple[str, ...]) -> None:
    """A table of what an evaluation refers to, by suite, method and seed."""
    op.create_table(
        table,
        sa.Column("evaluation_id", sa.Integer(), nullable=False),
        sa.Column("suite", sa.String(), nullable=False),
        sa.Column("method", sa.String(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        *further,
        sa.Column("key", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["evaluation_id"],
            ["evaluations.id"],
            name=op.f(f"fk_{table}_evaluation_id_evaluations"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["key"], ["evaluation_contents.key"], name=op.f(f"fk_{table}_key_evaluation_contents"), ondelete="RESTRICT"
        ),
        sa.PrimaryKeyConstraint(*key, name=op.f(f"pk_{table}")),
    )
    op.create_index(op.f(f"ix_{table}_key"), table, ["key"])
