"""Jobs say which process they belong to, so that what an ended one left behind is known at once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; nothing is known of the processes of jobs that are there."""
    op.add_column("jobs", sa.Column("owner", sa.JSON(), nullable=True))


def downgrade() -> None:
    """Remove it."""
    op.drop_column("jobs", "owner")
