"""Steps keep the logits of their branches, so that an audit can be read again at another lambda or alpha."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; steps that are there were stored without."""
    op.add_column("steps", sa.Column("logits", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    """Remove it again."""
    with op.batch_alter_table("steps") as batch:
        batch.drop_column("logits")
