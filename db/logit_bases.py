"""Matrices with which logits of steps are packed: each is kept once, and what packs and unpacks is not the store's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Column, Connection, ForeignKey, Index, Integer, Table, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from db.database import Database
from db.scope import WHOLE
from db.tables import METADATA, Store
from db.types import AnyText, CompressedBytes, ConflictError, StoreError, UtcDateTime, utc_now

logit_bases = Table(
    "logit_bases",
    METADATA,
    Column("digest", AnyText, primary_key=True),
    Column("data", CompressedBytes, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
)
"""Matrices by their digests."""

session_logit_bases = Table(
    "session_logit_bases",
    METADATA,
    Column("session_id", Integer, ForeignKey("audit_sessions.id", ondelete="CASCADE"), primary_key=True),
    Column("digest", AnyText, ForeignKey("logit_bases.digest"), primary_key=True),
    Index(None, "digest"),
)
"""Which matrices the steps of a session are read with; no matrix can be removed that one of them names."""


@dataclass(frozen=True, slots=True)
class PackedLogits:
    """Logits of a step that are read with a matrix."""

    data: bytes
    digest: str
    basis: Callable[[], bytes]


class LogitBases(Store):
    """Reads matrices."""

    def read(self, digest: str) -> bytes:
        """A matrix."""
        with self._database.reading() as connection:
            data: bytes | None = connection.scalar(select(logit_bases.c.data).where(logit_bases.c.digest == digest))
        if data is None:
            raise StoreError(
                f"The store has lost the matrix {digest[:12]}, without which the logits of this session cannot be "
                "read; put back the table logit_bases from a backup."
            )
        return data


def keep_basis(connection: Connection, session_id: int, packed: PackedLogits) -> None:
    """Have a session name the matrix of logits that one of its steps gets in this transaction, and store it once."""
    # Locked, so that nobody who deletes the last other session with it removes it meanwhile.
    stored = select(logit_bases.c.digest).where(logit_bases.c.digest == packed.digest)
    if connection.execute(stored.with_for_update(read=True, key_share=True)).first() is None:
        _add(connection, logit_bases, {"digest": packed.digest, "data": packed.basis(), "created_at": utc_now()})
    _add(connection, session_logit_bases, {"session_id": session_id, "digest": packed.digest})


def _add(connection: Connection, table: Table, row: dict[str, object]) -> None:
    """Add a row, unless another server has added it meanwhile."""
    if connection.dialect.name == "postgresql":
        connection.execute(postgresql.insert(table).values(**row).on_conflict_do_nothing())
    else:
        connection.execute(sqlite.insert(table).values(**row).on_conflict_do_nothing())


def sweep_bases(database: Database) -> None:
    """Remove the matrices that no session names any more."""
    named = select(session_logit_bases.c.digest).where(session_logit_bases.c.digest == logit_bases.c.digest)
    try:
        with database.writing() as connection:
            connection.execute(delete(logit_bases).where(~named.execution_options(**WHOLE).exists()))
    except ConflictError:
        # A session on another server has named one of them meanwhile; the next deletion sweeps again.
        pass
