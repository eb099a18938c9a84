"""Decisions that were made elsewhere, as they were read from a file."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Column, select

from db.tables import Repository, add_row, columns, fields_in, project_table
from db.types import CompressedBytes, JsonObject, NotFoundError, utc_now


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRunRecord:
    """The decisions of one file without their rows; ``request`` says how these were read."""

    id: int
    name: str
    filename: str
    digest: str
    request: JsonObject
    row_count: int
    created_at: datetime


decision_runs = project_table(
    "decision_runs",
    "decision run",
    *columns(DecisionRunRecord),
    Column("rows", CompressedBytes, nullable=False),
)


class DecisionRunsRepository(Repository[DecisionRunRecord]):
    """Keeps decisions, which never change."""

    _table, _kind = decision_runs, DecisionRunRecord
    _query = select(*fields_in(DecisionRunRecord, decision_runs))

    def add(
        self, name: str, filename: str, digest: str, request: JsonObject, row_count: int, rows: bytes
    ) -> DecisionRunRecord:
        """Store the decisions of a file."""
        told = {"name": name, "filename": filename, "digest": digest, "request": request, "row_count": row_count}
        with self._database.writing() as connection:
            return self._one(connection, add_row(connection, decision_runs, **told, rows=rows, created_at=utc_now()))

    def list(self) -> builtins.list[DecisionRunRecord]:
        """Return all runs, newest first."""
        return self._listed(self._query.order_by(decision_runs.c.id.desc()))

    def rows(self, run_id: int) -> bytes:
        """Return the rows of a run."""
        found = self._scalar(bytes, select(decision_runs.c.rows).where(decision_runs.c.id == run_id))
        if found is None:
            raise NotFoundError(f"There is no decision run with the id {run_id}; it may have been deleted.")
        return found
