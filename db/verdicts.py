"""The verdict logs of sessions: append-only and hash-chained, so that a report can show how a verdict came about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from db.database import Database
from db.records import FIRST, AnnotationFields, AnnotationRecord, entry_digest
from db.rows import find, to_columns, to_record
from db.tables import Annotation, AuditSession, Branch
from db.types import ConflictError, NotFoundError, utc_now

_STORED_ELSEWHERE = ("branch_path",)


class AnnotationsRepository:
    """Adds to and reads verdict logs; nothing is ever changed or removed singly, which triggers of the store hold."""

    def __init__(self, database: Database) -> None:
        """Work on an open store."""
        self._database = database

    def add(self, fields: AnnotationFields) -> AnnotationRecord:
        """Add an entry at the end of a session's log.

        Args:
            fields: What it says.

        Raises:
            NotFoundError: There is no such session or branch.
            ConflictError: The branch belongs to another session, or steps are given without a branch, without an end
                or in the wrong order.
        """
        if fields.step_index is not None and fields.branch_id is None:
            raise ConflictError("A verdict on a step needs the branch that the step is on; give both.")
        with self._database.session() as session:
            # Two writers must not both follow the same entry; the session's row is what they wait for.
            owner = session.get(AuditSession, fields.session_id, with_for_update=True)
            if owner is None:
                raise NotFoundError(f"There is no audit session with the id {fields.session_id}; it may be deleted.")
            path = _branch_path(session, fields)
            last = session.scalars(
                select(Annotation).filter_by(session_id=owner.id).order_by(Annotation.entry.desc()).limit(1)
            ).first()
            now = utc_now()
            draft = AnnotationRecord(
                **to_columns(fields, AnnotationFields),
                id=0,
                branch_path=path,
                entry=1 if last is None else last.entry + 1,
                created_at=now,
                previous=FIRST if last is None else last.digest,
                digest="",
            )
            made = replace(draft, digest=entry_digest(draft.content, draft.previous))
            row = Annotation(**to_columns(made, AnnotationRecord, leave_out=(*_STORED_ELSEWHERE, "id")))
            session.add(row)
            owner.updated_at = now
            session.flush()
            return replace(made, id=row.id)

    def history(self, session_id: int) -> Sequence[AnnotationRecord]:
        """Return a session's whole log, oldest entry first.

        Raises:
            NotFoundError: There is no such session.
        """
        with self._database.reading() as session:
            find(session, AuditSession, session_id)
            query = _entries().where(Annotation.session_id == session_id).order_by(Annotation.entry)
            return [_record(row, path) for row, path in session.execute(query)]

    def sessions_of(self, reviewers: Sequence[str]) -> Sequence[int]:
        """Return the ids of sessions in whose logs all of some reviewers have written, oldest first."""
        query = (
            select(Annotation.session_id)
            .where(Annotation.reviewer.in_(reviewers))
            .group_by(Annotation.session_id)
            .having(func.count(Annotation.reviewer.distinct()) == len(set(reviewers)))
            .order_by(Annotation.session_id)
        )
        with self._database.reading() as session:
            return list(session.scalars(query))

    def reviewers(self) -> Sequence[str]:
        """Return everybody who has written into a log, sorted."""
        with self._database.reading() as session:
            return list(session.scalars(select(Annotation.reviewer).distinct().order_by(Annotation.reviewer)))


def _entries() -> Select[Annotation, str]:
    return select(Annotation, Branch.path).join(Branch, Branch.id == Annotation.branch_id, isouter=True)


def _record(row: Annotation, path: str | None) -> AnnotationRecord:
    return to_record(AnnotationRecord, row, branch_path=path)


def _branch_path(session: Session, fields: AnnotationFields) -> str | None:
    if fields.branch_id is None:
        return None
    branch = find(session, Branch, fields.branch_id)
    if branch.session_id != fields.session_id:
        raise ConflictError(f"Branch {fields.branch_id} is not a branch of audit session {fields.session_id}.")
    return branch.path
