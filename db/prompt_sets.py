"""Uploaded prompt sets and their rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Column, ForeignKey, Index, Integer, Table, insert, select

from coft_core.types import Example, Span
from db.tables import METADATA, Repository, Rewritten, add_row, columns, field_values, fields_in, find, project_table
from db.types import RealNumber, utc_now


@dataclass(frozen=True, slots=True)
class PromptRow:
    """A row of a prompt set."""

    line: int
    example: Example
    weight: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSetRecord:
    """An uploaded prompt set without its rows."""

    id: int
    name: str
    filename: str
    digest: str
    created_at: datetime
    row_count: int


prompt_sets = project_table(
    "prompt_sets",
    "prompt set",
    *columns(PromptSetRecord),
    Index(None, "digest"),
)


def _spans_from_json(stored: list[dict[str, Any]]) -> tuple[Span, ...]:
    return tuple(Span(**span) for span in stored)


def _spans_to_json(spans: tuple[Span, ...]) -> list[dict[str, Any]]:
    return [field_values(span, Span) for span in spans]


prompt_rows = Table(
    "prompt_rows",
    METADATA,
    Column("prompt_set_id", Integer, ForeignKey("prompt_sets.id", ondelete="CASCADE"), primary_key=True),
    Column("line", Integer, primary_key=True),
    Column("weight", RealNumber),
    *columns(Example, spans=Rewritten(_spans_to_json, _spans_from_json)),
)


class PromptSetsRepository(Repository[PromptSetRecord]):
    """Adds, lists and deletes prompt sets; a stored set never changes, and calibrations made from it outlive it."""

    _table, _kind = prompt_sets, PromptSetRecord
    _query = select(*fields_in(PromptSetRecord, prompt_sets))

    def add(self, name: str, filename: str, digest: str, rows: Sequence[PromptRow]) -> PromptSetRecord:
        """Store a prompt set whole."""
        told = {"name": name, "filename": filename, "digest": digest, "row_count": len(rows)}
        with self._database.writing() as connection:
            key = add_row(connection, prompt_sets, **told, created_at=utc_now())
            if rows:
                values = [
                    {"prompt_set_id": key, "line": row.line, "weight": row.weight, **field_values(row.example, Example)}
                    for row in rows
                ]
                connection.execute(insert(prompt_rows), values)
            return self._one(connection, key)

    def list(self, digest: str | None = None) -> list[PromptSetRecord]:
        """Return prompt sets, newest first; with a digest, only those uploaded from the same bytes."""
        query = self._query.order_by(prompt_sets.c.id.desc())
        if digest is not None:
            query = query.where(prompt_sets.c.digest == digest)
        return self._listed(query)

    def rows(self, prompt_set_id: int) -> Sequence[PromptRow]:
        """Return the rows of a prompt set in the order of their lines."""
        row = prompt_rows.c
        query = (
            select(row.line, row.weight, *fields_in(Example, prompt_rows))
            .where(row.prompt_set_id == prompt_set_id)
            .order_by(row.line)
        )
        with self._database.reading() as connection:
            find(connection, prompt_sets, prompt_set_id)
            return [PromptRow(line, Example(*told), weight) for line, weight, *told in connection.execute(query)]

    def existing(self, prompt_set_ids: Collection[int]) -> set[int]:
        """Return which of some ids are ids of stored prompt sets."""
        return set(self._scalars(select(prompt_sets.c.id).where(prompt_sets.c.id.in_(prompt_set_ids))))
