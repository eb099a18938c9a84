"""Comparisons over prompt sets, and what their steps say and cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import insert, or_, select
from sqlalchemy.orm import Session

from db.chains import segments
from db.database import Database
from db.records import JsonObject
from db.rows import find, to_record
from db.tables import AuditSession, BatchRow, Branch, Comparison, ComparisonColumn, PromptSet, Step
from db.types import utc_now


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRecord:
    """A comparison over a prompt set.

    Attributes:
        id: Its id.
        name: Its name.
        prompt_set_id: The prompts.
        created_at: When it was stored.
        batch_ids: The batch of each column that has not been deleted, in the order of the columns.
        row_count: Prompts of the set.
    """

    id: int
    name: str
    prompt_set_id: int
    created_at: datetime
    batch_ids: tuple[int, ...]
    row_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStepRecord:
    """The numbers of a step that comparisons sum up; fields as in :class:`db.records.StepRecord`."""

    branch_id: int
    index: int
    token_id: int
    token: str
    certified: bool
    fallback: bool
    log_ratio: float
    kl_fused_factual: float | None
    tv_fused_factual: float | None
    seconds: float | None
    peak_bytes: int | None


_NUMBERS = tuple(getattr(Step, name) for name in MeasuredStepRecord.__dataclass_fields__)


class ComparisonsRepository:
    """Adds, lists and deletes comparisons; their columns never change."""

    def __init__(self, database: Database) -> None:
        """Work on an open store."""
        self._database = database

    def add(self, name: str, prompt_set_id: int, batch_ids: Sequence[int]) -> ComparisonRecord:
        """Store a comparison of batches that share a prompt set, in the order of its columns.

        Raises:
            ConflictError: There is no such prompt set or batch, or a batch is a column already.
        """
        with self._database.session() as session:
            row = Comparison(name=name, prompt_set_id=prompt_set_id, created_at=utc_now())
            session.add(row)
            session.flush()
            columns = [
                {"comparison_id": row.id, "place": place, "batch_id": batch} for place, batch in enumerate(batch_ids)
            ]
            session.execute(insert(ComparisonColumn), columns)
            return _record(session, row)

    def get(self, comparison_id: int) -> ComparisonRecord:
        """Return a comparison.

        Raises:
            NotFoundError: There is none with this id.
        """
        with self._database.reading() as session:
            return _record(session, find(session, Comparison, comparison_id))

    def list(self) -> Sequence[ComparisonRecord]:
        """Return all comparisons, newest first."""
        with self._database.reading() as session:
            found = session.scalars(select(Comparison).order_by(Comparison.id.desc()))
            return [_record(session, row) for row in found]

    def delete(self, comparison_id: int) -> None:
        """Delete a comparison; its batches and their sessions stay.

        Raises:
            NotFoundError: There is none with this id.
        """
        with self._database.session() as session:
            session.delete(find(session, Comparison, comparison_id))

    def batch_steps(self, batch_id: int) -> Sequence[MeasuredStepRecord]:
        """Return the steps of all root branches of a batch's sessions, chain after chain, in their order."""
        roots = (
            select(Branch.id)
            .join(BatchRow, BatchRow.session_id == Branch.session_id)
            .where(BatchRow.batch_id == batch_id, Branch.parent_id.is_(None))
        )
        query = select(*_NUMBERS).where(Step.branch_id.in_(roots)).order_by(Step.branch_id, Step.index)
        with self._database.reading() as session:
            return [to_record(MeasuredStepRecord, row) for row in session.execute(query)]

    def branch_steps(self, branch_id: int) -> Sequence[MeasuredStepRecord]:
        """Return the steps of a branch's whole chain in their order.

        Raises:
            NotFoundError: There is no such branch.
        """
        with self._database.reading() as session:
            condition = or_(*(segment.condition for segment in segments(session, branch_id)))
            query = select(*_NUMBERS).where(condition).order_by(Step.index)
            return [to_record(MeasuredStepRecord, row) for row in session.execute(query)]

    def footprints(self, batch_id: int) -> dict[int, JsonObject | None]:
        """Return what each session of a batch needs of memory, by session; None where it was not computed."""
        query = (
            select(AuditSession.id, AuditSession.footprint)
            .join(BatchRow, BatchRow.session_id == AuditSession.id)
            .where(BatchRow.batch_id == batch_id)
        )
        with self._database.reading() as session:
            return {row.id: row.footprint for row in session.execute(query)}


def _record(session: Session, row: Comparison) -> ComparisonRecord:
    columns = select(ComparisonColumn.batch_id).filter_by(comparison_id=row.id).order_by(ComparisonColumn.place)
    rows = session.scalars(select(PromptSet.row_count).filter_by(id=row.prompt_set_id)).one()
    return to_record(ComparisonRecord, row, batch_ids=tuple(session.scalars(columns)), row_count=rows)
