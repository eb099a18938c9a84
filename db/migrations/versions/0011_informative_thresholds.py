"""A step whose threshold says nothing certifies nothing, and one that is too weak is told as such."""

from __future__ import annotations

import math
import sys

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

# The rule as it was when this migration was written.
WEAKEST, LARGEST, MANY, NEARLY_ALL = math.log(1e-5), 300, 100, 0.99


def upgrade() -> None:
    """Bring stored steps under the rule that newly decoded ones follow."""
    steps = sa.table(
        "steps",
        sa.column("state", sa.String()),
        sa.column("certified", sa.Boolean()),
        sa.column("log_tau", sa.Double()),
        sa.column("set_size", sa.Integer()),
        sa.column("certified_mass", sa.Double()),
    )
    wide = sa.or_(
        sa.and_(steps.c.log_tau < WEAKEST, steps.c.log_tau >= -sys.float_info.max),
        steps.c.set_size >= LARGEST,
        sa.and_(steps.c.set_size >= MANY, steps.c.certified_mass >= NEARLY_ALL),
    )
    weak = sa.and_(steps.c.state.in_(("calibrated", "inherited")), wide)
    op.execute(steps.update().where(weak).values(state="uninformative", certified=False))
    op.execute(steps.update().where(steps.c.state == "uninformative").values(certified=False))


def downgrade() -> None:
    """Nothing was added; what is said of the steps stays."""
