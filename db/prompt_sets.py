"""Uploaded prompt sets and their rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import insert, select

from db.database import Database
from db.records import SpanRecord
from db.rows import find, spans_from_json, spans_to_json, to_columns, to_record
from db.tables import PromptRow, PromptSet
from db.types import utc_now


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRowRecord:
    """One row of a prompt set.

    Attributes:
        line: Line of the uploaded file, 1-based; unique in its set.
        prompt: The factual prompt.
        reference: Its continuation, if given.
        spans: Its sensitive spans; None leaves them to the detector.
        group: Group of the row; unless thresholds are asked by group, rows that share it are dependent.
        context: Context id; rows that share it are dependent.
        weight: Shift weight, above 0.
    """

    line: int
    prompt: str
    reference: str | None = None
    spans: tuple[SpanRecord, ...] | None = None
    group: str | None = None
    context: str | None = None
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


class PromptSetsRepository:
    """Adds, lists and deletes prompt sets; a stored set never changes."""

    def __init__(self, database: Database) -> None:
        """Work on an open store."""
        self._database = database

    def add(self, name: str, filename: str, digest: str, rows: Sequence[PromptRowRecord]) -> PromptSetRecord:
        """Store a prompt set whole.

        Args:
            name: What lists call it.
            filename: The uploaded file's name.
            digest: Digest of the uploaded bytes.
            rows: Its rows; their lines are distinct.

        Raises:
            ConflictError: Two rows have the same line.
        """
        with self._database.session() as session:
            row = PromptSet(name=name, filename=filename, digest=digest, created_at=utc_now(), row_count=len(rows))
            session.add(row)
            session.flush()
            if rows:
                session.execute(insert(PromptRow), [_columns(row.id, item) for item in rows])
            return to_record(PromptSetRecord, row)

    def get(self, prompt_set_id: int) -> PromptSetRecord:
        """Return a prompt set.

        Raises:
            NotFoundError: There is none with this id.
        """
        with self._database.reading() as session:
            return to_record(PromptSetRecord, find(session, PromptSet, prompt_set_id))

    def list(self, digest: str | None = None) -> list[PromptSetRecord]:
        """Return prompt sets, newest first; with a digest, only those uploaded from the same bytes."""
        query = select(PromptSet).order_by(PromptSet.id.desc())
        if digest is not None:
            query = query.where(PromptSet.digest == digest)
        with self._database.reading() as session:
            return [to_record(PromptSetRecord, row) for row in session.scalars(query)]

    def rows(self, prompt_set_id: int) -> Sequence[PromptRowRecord]:
        """Return the rows of a prompt set in the order of their lines.

        Raises:
            NotFoundError: There is no such set.
        """
        query = select(PromptRow).where(PromptRow.prompt_set_id == prompt_set_id).order_by(PromptRow.line)
        with self._database.reading() as session:
            find(session, PromptSet, prompt_set_id)
            return [to_record(PromptRowRecord, row, spans=spans_from_json(row.spans)) for row in session.scalars(query)]

    def existing(self, prompt_set_ids: Collection[int]) -> set[int]:
        """Return which of some ids are ids of stored prompt sets."""
        with self._database.reading() as session:
            return set(session.scalars(select(PromptSet.id).where(PromptSet.id.in_(prompt_set_ids))))

    def delete(self, prompt_set_id: int) -> None:
        """Delete a prompt set, its rows and the ledgers of jobs on it; calibrations made from it stay.

        Raises:
            NotFoundError: There is none with this id.
        """
        with self._database.session() as session:
            session.delete(find(session, PromptSet, prompt_set_id))


def _columns(prompt_set_id: int, row: PromptRowRecord) -> dict[str, object]:
    columns = to_columns(row, PromptRowRecord, leave_out=("spans",))
    return {"prompt_set_id": prompt_set_id, "spans": spans_to_json(row.spans), **columns}
