"""Steps say between which sizes their certified set lies within numeric noise, and within which bound."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

COLUMNS: tuple[tuple[str, sa.types.TypeEngine[Any]], ...] = (
    ("set_size_low", sa.Integer()),
    ("set_size_high", sa.Integer()),
    ("noise", sa.Double()),
)


def upgrade() -> None:
    """Add the columns; steps that are stored already have none of the three."""
    for name, kind in COLUMNS:
        op.add_column("steps", sa.Column(name, kind, nullable=True))


def downgrade() -> None:
    """Remove them again."""
    with op.batch_alter_table("steps") as batch:
        for name, _ in COLUMNS:
            batch.drop_column(name)
