"""Sessions are sorted by their strongest token without reading the whole rows of all steps."""

from __future__ import annotations

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the index; a step's row holds its logits, so that reading one number of each row reads the whole store."""
    op.create_index(op.f("ix_steps_branch_id_log_ratio"), "steps", ["branch_id", "log_ratio"])


def downgrade() -> None:
    """Remove it again."""
    op.drop_index(op.f("ix_steps_branch_id_log_ratio"), table_name="steps")
