"""Jobs can be cancelled from another server, and sessions name the matrices that their logits are read with."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

NAMED, BASES = "session_logit_bases", "logit_bases"
PACKED = 2
"""First byte of packed logits: their length and a header in JSON follow, compressed with all else."""
HEADER_BYTES = 65_536


def upgrade() -> None:
    """Read of every packed step which matrix it needs; matrices that none needs are removed."""
    op.add_column("jobs", sa.Column("cancel_asked_at", sa.DateTime(timezone=True), nullable=True))
    op.create_table(
        NAMED,
        sa.Column("session_id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"], ["audit_sessions.id"], name=op.f(f"fk_{NAMED}_session_id_audit_sessions"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["digest"], [f"{BASES}.digest"], name=op.f(f"fk_{NAMED}_digest_{BASES}")),
        sa.PrimaryKeyConstraint("session_id", "digest", name=op.f(f"pk_{NAMED}")),
    )  # fmt: skip
    op.create_index(op.f(f"ix_{NAMED}_digest"), NAMED, ["digest"])
    if op.get_context().as_sql:
        # As text it is for an empty database: nothing can be read here.
        return
    if rows := [{"session_id": session, "digest": digest} for session, digest in sorted(set(_named()))]:
        columns = sa.column("session_id", sa.Integer()), sa.column("digest", sa.String())
        op.bulk_insert(sa.table(NAMED, *columns), rows)
    op.execute(f"DELETE FROM {BASES} WHERE digest NOT IN (SELECT digest FROM {NAMED})")


def _named() -> Iterator[tuple[int, str]]:
    connection = op.get_bind()
    stored = set(connection.execute(sa.text(f"SELECT digest FROM {BASES}")).scalars())
    if not stored:
        return
    packed = sa.text(
        "SELECT branches.session_id, steps.logits FROM steps JOIN branches ON branches.id = steps.branch_id "
        "WHERE steps.logits IS NOT NULL"
    )
    for session, logits in connection.execute(packed, execution_options={"yield_per": 500}):
        digest = _basis(bytes(logits))
        if digest is not None and digest in stored:
            yield session, digest


def _basis(logits: bytes) -> str | None:
    """Digest of the matrix that packed logits name; None for plain ones and for damaged ones, which nothing reads."""
    if logits[:1] != bytes([PACKED]):
        return None
    try:
        body = zlib.decompressobj().decompress(logits[1:], HEADER_BYTES)
        (length,) = struct.unpack_from("<I", body)
        return str(json.loads(body[4 : 4 + length])["basis"])
    except (ValueError, KeyError, TypeError, zlib.error, struct.error):
        return None


def downgrade() -> None:
    """Remove both again; what nothing names stays from then on."""
    op.drop_index(op.f(f"ix_{NAMED}_digest"), table_name=NAMED)
    op.drop_table(NAMED)
    op.drop_column("jobs", "cancel_asked_at")
