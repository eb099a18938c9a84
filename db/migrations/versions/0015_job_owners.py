"""Jobs belong to who began them, who is told of them until she dismisses them, and name the process that runs them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

COLUMNS = (
    ("owner", sa.String()),
    ("process", sa.JSON()),
    ("seen_at", sa.DateTime(timezone=True)),
    ("dismissed_at", sa.DateTime(timezone=True)),
)


def upgrade() -> None:
    """Add the columns; jobs that are there already are nobody's."""
    for name, kind in COLUMNS:
        op.add_column("jobs", sa.Column(name, kind, nullable=True))
    op.create_index(op.f("ix_jobs_owner"), "jobs", ["owner"])


def downgrade() -> None:
    """Remove them again."""
    op.drop_index(op.f("ix_jobs_owner"), table_name="jobs")
    for name, _ in reversed(COLUMNS):
        op.drop_column("jobs", name)
