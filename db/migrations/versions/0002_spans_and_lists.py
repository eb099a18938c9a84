"""Spans say how sure they are and whether they are only suggested; reviewers keep word lists."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add two columns to the spans of sessions, and the tables of word lists."""
    op.add_column("session_spans", sa.Column("score", sa.Double(), nullable=True))
    # The default is for the rows that are there: none of them was a mere suggestion.
    op.add_column("session_spans", sa.Column("suggested", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_table(
        "user_lists",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("term_count", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_user_lists")),
        sa.UniqueConstraint("name", name=op.f("uq_user_lists_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "user_terms",
        sa.Column("user_list_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("term", sa.String(), nullable=False),
        sa.Column("family", sa.String(), nullable=False),
        sa.Column("keep", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_list_id"],
            ["user_lists.id"],
            name=op.f("fk_user_terms_user_list_id_user_lists"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("user_list_id", "position", name=op.f("pk_user_terms")),
    )


def downgrade() -> None:
    """Remove the tables of word lists, and the two columns."""
    op.drop_table("user_terms")
    op.drop_table("user_lists")
    with op.batch_alter_table("session_spans") as batch:
        batch.drop_column("suggested")
        batch.drop_column("score")
