"""Sessions keep how their model read the prompt, so that a chat template that prints the date changes nothing later."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; sessions that are there have none, and render their prompt anew as before."""
    op.add_column("audit_sessions", sa.Column("rendering", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    """Remove the column."""
    op.drop_column("audit_sessions", "rendering")
