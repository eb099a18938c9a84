"""Sign-ins of browsers say when they were used last, from where and with what."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

TABLE = "account_sign_ins"


def upgrade() -> None:
    """Add the columns; of browsers that are signed in nothing of this is known."""
    op.add_column(TABLE, sa.Column("used_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column(TABLE, sa.Column("address", sa.String(), nullable=True))
    op.add_column(TABLE, sa.Column("browser", sa.String(), nullable=True))


def downgrade() -> None:
    """Remove them again."""
    for name in ("browser", "address", "used_at"):
        op.drop_column(TABLE, name)
