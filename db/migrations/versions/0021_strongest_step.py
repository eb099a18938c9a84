"""Sessions are listed and sorted by what their tokens say without reading the whole rows of all steps."""

from __future__ import annotations

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

NAME = "ix_steps_branch_id_log_ratio_state_certified"


def upgrade() -> None:
    """Add the index; a step's row holds its logits, so that reading one number of each row reads the whole store."""
    op.create_index(op.f(NAME), "steps", ["branch_id", "log_ratio", "state", "certified"])


def downgrade() -> None:
    """Remove it again."""
    op.drop_index(op.f(NAME), table_name="steps")
