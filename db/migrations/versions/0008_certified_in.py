"""Steps say by which readings they are certified; margins of steps certified in the factual reading are its own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

FACTUAL_ALONE = ("coft-single-branch", "dtcd")
"""Policies that certified in the factual reading alone when this migration was written."""


def upgrade() -> None:
    """Add the column, and mend what was computed from the joint support where that decided nothing."""
    op.add_column("steps", sa.Column("certified_in", sa.String(), nullable=False, server_default="both"))
    steps = sa.table(
        "steps",
        sa.column("branch_id", sa.Integer()),
        sa.column("certified_in", sa.String()),
        *(sa.column(name, sa.Double()) for name in ("margin", "tv_bound", "log_p_factual", "log_tau")),
    )
    branches = sa.table("branches", sa.column("id", sa.Integer()), sa.column("session_id", sa.Integer()))
    sessions = sa.table("audit_sessions", sa.column("id", sa.Integer()), sa.column("policy", sa.String()))
    theirs = (
        sa.select(branches.c.id)
        .join(sessions, sessions.c.id == branches.c.session_id)
        .where(sessions.c.policy.in_(FACTUAL_ALONE))
    )
    # Two infinities of one sign differ by nothing, where subtraction would give no number.
    margin = sa.case((steps.c.log_p_factual == steps.c.log_tau, 0.0), else_=steps.c.log_p_factual - steps.c.log_tau)
    op.execute(
        steps.update().where(steps.c.branch_id.in_(theirs)).values(certified_in="factual", margin=margin, tv_bound=None)
    )


def downgrade() -> None:
    """Remove the column; the mended numbers stay."""
    with op.batch_alter_table("steps") as batch:
        batch.drop_column("certified_in")
