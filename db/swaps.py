"""Comparisons of swapped prompts, as the page that made them finds them again."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Column, UniqueConstraint, delete, select, update

from db.tables import Repository, add_row, columns, fields_in, project_table
from db.types import CompressedBytes, JsonObject, NotFoundError, utc_now

MOST = 1000
"""Comparisons that are kept; the oldest give way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapRecord:
    """A comparison."""

    id: int
    key: str
    created_at: datetime
    form: JsonObject
    data: bytes


swaps = project_table(
    "swaps",
    "swap",
    *columns(SwapRecord, data=Column("data", CompressedBytes, nullable=False)),
    UniqueConstraint("key"),
)


class SwapsRepository(Repository[SwapRecord]):
    """Keeps the newest comparisons by their keys."""

    _table, _kind = swaps, SwapRecord
    _query = select(*fields_in(SwapRecord, swaps))

    def add(self, form: JsonObject, data: bytes) -> str:
        """Store a comparison, and give its key."""
        key = secrets.token_hex(16)
        with self._database.writing() as connection:
            number = add_row(connection, swaps, key=key, created_at=utc_now(), form=form, data=data)
            connection.execute(delete(swaps).where(swaps.c.id <= number - MOST))
        return key

    def write(self, key: str, data: bytes) -> None:
        """Store more of what was found, unless the comparison is gone."""
        self._run(update(swaps).where(swaps.c.key == key).values(data=data))

    def named(self, key: str) -> SwapRecord:
        """The comparison of a key."""
        found = self._found(swaps.c.key == key)
        if found is None:
            raise NotFoundError(f"There is no swap {key[:12]}; it may have been deleted.")
        return found
