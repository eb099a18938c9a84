"""Matrices with which logits of steps are packed: each is kept once, and what packs and unpacks is not the store's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Column, Table, insert, select

from db.database import Database
from db.tables import METADATA
from db.types import AnyText, CompressedBytes, ConflictError, StoreError, UtcDateTime, utc_now

logit_bases = Table(
    "logit_bases",
    METADATA,
    Column("digest", AnyText, primary_key=True),
    Column("data", CompressedBytes, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
)
"""Matrices by their digests; they stay when the sessions that were packed with them are deleted."""


@dataclass(frozen=True, slots=True)
class PackedLogits:
    """Logits of a step that are read with a matrix.

    Attributes:
        data: What the step's row gets.
        digest: Names the matrix.
        basis: Gives the matrix; asked only where the store does not have it.
    """

    data: bytes
    digest: str
    basis: Callable[[], bytes]


class LogitBases:
    """Keeps matrices, each once."""

    def __init__(self, database: Database) -> None:
        """Work on an open store; nothing is read yet."""
        self._database = database
        self._stored: set[str] = set()

    def keep(self, packed: PackedLogits) -> None:
        """Store the matrix of packed logits, where the store does not have it."""
        if packed.digest in self._stored:
            return
        with self._database.reading() as connection:
            known = connection.scalar(select(logit_bases.c.digest).where(logit_bases.c.digest == packed.digest))
        if known is None:
            row = {"digest": packed.digest, "data": packed.basis(), "created_at": utc_now()}
            try:
                with self._database.writing() as connection:
                    connection.execute(insert(logit_bases).values(**row))
            except ConflictError:
                # Another session's first step has stored it meanwhile.
                pass
        self._stored.add(packed.digest)

    def read(self, digest: str) -> bytes:
        """A matrix.

        Raises:
            StoreError: It is not stored.
        """
        with self._database.reading() as connection:
            data: bytes | None = connection.scalar(select(logit_bases.c.data).where(logit_bases.c.digest == digest))
        if data is None:
            raise StoreError(
                f"The store has lost the matrix {digest[:12]}, without which the logits of this session cannot be "
                "read; put back the table logit_bases from a backup."
            )
        return data
