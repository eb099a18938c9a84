"""Batches: many prompts audited with the same settings, and what became of each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from sqlalchemy import Subquery, case, func, insert, select, update
from sqlalchemy.orm import Session

from db.database import Database
from db.jobs import UNFINISHED
from db.records import AnnotationRecord, BatchPlaceRecord, BatchRecord, BatchRowRecord, JsonObject
from db.rows import find, to_record
from db.tables import Annotation, AuditSession, Batch, BatchRow, Branch, Candidate, Job, Step
from db.types import ConflictError, NotFoundError, mended, utc_now


class BatchesRepository:
    """Adds, follows and deletes batches; a batch's request and prompts never change."""

    def __init__(self, database: Database) -> None:
        """Work on an open store."""
        self._database = database

    def add(self, name: str, prompt_set_id: int, request: JsonObject, lines: Collection[int]) -> BatchRecord:
        """Store a batch none of whose rows has begun.

        Args:
            name: What lists call it.
            prompt_set_id: The prompts.
            request: What is asked of them.
            lines: Lines of the prompts that are to be run.

        Raises:
            ConflictError: There is no such prompt set.
        """
        with self._database.session() as session:
            row = Batch(name=name, prompt_set_id=prompt_set_id, request=request, created_at=utc_now())
            session.add(row)
            session.flush()
            if lines:
                session.execute(insert(BatchRow), [{"batch_id": row.id, "line": line} for line in sorted(lines)])
            return to_record(BatchRecord, row, row_count=len(lines))

    def get(self, batch_id: int) -> BatchRecord:
        """Return a batch.

        Raises:
            NotFoundError: There is none with this id.
        """
        with self._database.reading() as session:
            return _record(session, find(session, Batch, batch_id))

    def list(self) -> Sequence[BatchRecord]:
        """Return all batches, newest first."""
        with self._database.reading() as session:
            return [_record(session, row) for row in session.scalars(select(Batch).order_by(Batch.id.desc()))]

    def rename(self, batch_id: int, name: str) -> BatchRecord:
        """Change a batch's name.

        Raises:
            NotFoundError: There is none with this id.
        """
        with self._database.session() as session:
            row = find(session, Batch, batch_id)
            row.name = name
            return _record(session, row)

    def delete(self, batch_id: int) -> None:
        """Delete a batch; its sessions and its prompt set stay.

        Raises:
            NotFoundError: There is none with this id.
        """
        with self._database.session() as session:
            session.delete(find(session, Batch, batch_id))

    def begin(self, batch_id: int, job_id: int) -> BatchRecord:
        """Make a job the one that runs a batch; making it so again does nothing.

        Raises:
            NotFoundError: There is no such batch or job.
            ConflictError: Another job that has not ended runs it.
        """
        with self._database.session() as session:
            row = session.get(Batch, batch_id, with_for_update=True)
            if row is None:
                raise NotFoundError(f"There is no batch with the id {batch_id}; it may have been deleted.")
            find(session, Job, job_id)
            other = None if row.job_id in (None, job_id) else session.get(Job, row.job_id)
            if other is not None and other.status in UNFINISHED:
                raise ConflictError(f"The batch “{row.name}” is being run already; wait for it, or cancel it.")
            row.job_id = job_id
            return _record(session, row)

    def fail(self, batch_id: int, line: int, error: str) -> None:
        """Write why a row could not be run."""
        of_row = BatchRow.batch_id == batch_id, BatchRow.line == line
        with self._database.session() as session:
            session.execute(update(BatchRow).where(*of_row).values(error=mended(error)))

    def rows(self, batch_id: int) -> Sequence[BatchRowRecord]:
        """Return the rows of a batch in the order of their lines, with what their sessions say so far.

        Raises:
            NotFoundError: There is no such batch.
        """
        measured = _measured(batch_id)
        query = (
            select(
                BatchRow.line,
                BatchRow.session_id,
                BatchRow.begun_at.is_not(None).label("begun"),
                BatchRow.error,
                Branch.id.label("root_branch_id"),
                Branch.finished,
                AuditSession.certificate,
                AuditSession.archived_at.is_not(None).label("archived"),
                *(measured.c[name] for name in _MEASURES),
            )
            .join(AuditSession, AuditSession.id == BatchRow.session_id, isouter=True)
            .join(Branch, (Branch.session_id == AuditSession.id) & Branch.parent_id.is_(None), isouter=True)
            .join(measured, measured.c.branch_id == Branch.id, isouter=True)
            .where(BatchRow.batch_id == batch_id)
            .order_by(BatchRow.line)
        )
        with self._database.reading() as session:
            find(session, Batch, batch_id)
            texts = _texts(session, batch_id)
            return [_row_record(row, texts) for row in session.execute(query)]

    def verdict_logs(self, batch_id: int) -> Sequence[AnnotationRecord]:
        """Return the verdict logs of a batch's sessions, session after session, oldest entry first."""
        query = (
            select(Annotation, Branch.path)
            .join(BatchRow, BatchRow.session_id == Annotation.session_id)
            .join(Branch, Branch.id == Annotation.branch_id, isouter=True)
            .where(BatchRow.batch_id == batch_id)
            .order_by(Annotation.session_id, Annotation.entry)
        )
        with self._database.reading() as session:
            return [to_record(AnnotationRecord, row, branch_path=path) for row, path in session.execute(query)]


def claim_row(session: Session, place: BatchPlaceRecord, session_id: int) -> None:
    """Write in the transaction that makes a session that it belongs to a row of a batch.

    Raises:
        NotFoundError: There is no such row.
        ConflictError: The row has had a session already.
    """
    row = session.get(BatchRow, (place.batch_id, place.line), with_for_update=True)
    if row is None:
        raise NotFoundError(f"Batch {place.batch_id} has no line {place.line}; it may have been deleted.")
    if row.begun_at is not None:
        raise ConflictError(f"Line {place.line} of this batch has had a session already; open that one.")
    row.session_id, row.begun_at, row.error = session_id, utc_now(), None


_MEASURES = ("steps", "certified", "fallbacks", "overruled", "mean_log_ratio", "max_log_ratio", "min_margin")
_COUNTS = ("steps", "certified", "fallbacks", "overruled")


def _record(session: Session, row: Batch) -> BatchRecord:
    rows = session.scalars(select(func.count()).select_from(BatchRow).where(BatchRow.batch_id == row.id)).one()
    return to_record(BatchRecord, row, row_count=rows)


def _row_record(row: Any, texts: dict[int, str]) -> BatchRowRecord:
    counts = {name: int(getattr(row, name) or 0) for name in _COUNTS}
    booleans = {"begun": bool(row.begun), "archived": bool(row.archived)}
    return to_record(BatchRowRecord, row, **counts, **booleans, text=texts.get(row.root_branch_id, ""))


def _measured(batch_id: int) -> Subquery:
    """What the steps of each session's root branch come to."""
    overruled = _overruled(batch_id)

    def counted(condition: Any) -> Any:
        return func.sum(case((condition, 1), else_=0))

    return (
        select(
            Step.branch_id,
            func.count().label("steps"),
            counted(Step.certified).label("certified"),
            counted(Step.fallback).label("fallbacks"),
            func.count(overruled.c.step_id).label("overruled"),
            func.avg(func.abs(Step.log_ratio)).label("mean_log_ratio"),
            func.max(func.abs(Step.log_ratio)).label("max_log_ratio"),
            func.min(Step.margin).label("min_margin"),
        )
        .join(overruled, overruled.c.step_id == Step.id, isouter=True)
        .where(Step.branch_id.in_(_roots(batch_id)))
        .group_by(Step.branch_id)
        .subquery()
    )


def _overruled(batch_id: int) -> Subquery:
    """Steps whose likeliest fused candidate is not certified while another one is; an empty set has no other one."""
    refused = func.max(case((~Candidate.certified, Candidate.log_p_fused)))
    accepted = func.max(case((Candidate.certified, Candidate.log_p_fused)))
    return (
        select(Candidate.step_id)
        .join(Step, Step.id == Candidate.step_id)
        .where(Step.branch_id.in_(_roots(batch_id)))
        .group_by(Candidate.step_id)
        .having(refused > accepted)
        .subquery()
    )


def _roots(batch_id: int) -> Any:
    return (
        select(Branch.id)
        .join(BatchRow, BatchRow.session_id == Branch.session_id)
        .where(BatchRow.batch_id == batch_id, Branch.parent_id.is_(None))
    )


def _texts(session: Session, batch_id: int) -> dict[int, str]:
    """Continuations by root branch, without the end token that finished them."""
    query = (
        select(Step.branch_id, Step.token, Branch.finished)
        .join(Branch, Branch.id == Step.branch_id)
        .where(Step.branch_id.in_(_roots(batch_id)))
        .order_by(Step.branch_id, Step.index)
    )
    texts = {}
    for branch_id, rows in groupby(session.execute(query), attrgetter("branch_id")):
        own = list(rows)
        shown = own[:-1] if own[-1].finished == "end" else own
        texts[branch_id] = "".join(row.token for row in shown)
    return texts
