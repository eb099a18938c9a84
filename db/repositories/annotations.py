"""Reviewers' verdicts and notes; append-only, so that a report can show how a verdict came about."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.database import Database
from db.errors import ConflictError
from db.mapping import to_record
from db.models import Annotation, AuditSession, Branch
from db.records import AnnotationRecord, Verdict
from db.repositories.common import find
from db.types import utc_now


class AnnotationsRepository:
    """Adds and reads annotations; nothing is ever changed or removed singly."""

    def __init__(self, database: Database) -> None:
        """Work on an open store."""
        self._database = database

    def add(
        self,
        session_id: int,
        branch_id: int | None = None,
        step_index: int | None = None,
        *,
        verdict: Verdict | None = None,
        note: str = "",
        tag: str = "",
        reviewer: str = "",
    ) -> AnnotationRecord:
        """Add a remark; it replaces the earlier ones on the same target without deleting them.

        Args:
            session_id: The session.
            branch_id: One of its branches; None speaks of the whole session.
            step_index: A step of that branch's chain, 0-based; None speaks of the whole branch.
            verdict: ``fair``, ``unfair`` or ``unclear``; None withdraws a verdict or gives none.
            note: Free text.
            tag: A short label.
            reviewer: Who says so.

        Raises:
            NotFoundError: There is no such session or branch.
            ConflictError: The branch belongs to another session, or a step is given without a branch.
        """
        if step_index is not None and branch_id is None:
            raise ConflictError("An annotation of a step needs the branch that the step is on; give both.")
        with self._database.session() as session:
            find(session, AuditSession, session_id).updated_at = utc_now()
            _check_branch(session, session_id, branch_id)
            row = Annotation(
                session_id=session_id,
                branch_id=branch_id,
                step_index=step_index,
                verdict=verdict,
                note=note,
                tag=tag,
                reviewer=reviewer,
                created_at=utc_now(),
            )
            session.add(row)
            session.flush()
            return to_record(AnnotationRecord, row)

    def latest(self, session_id: int) -> list[AnnotationRecord]:
        """Return the annotations that count: the newest on each target, oldest of these first.

        Raises:
            NotFoundError: There is no such session.
        """
        newest = (
            select(func.max(Annotation.id))
            .where(Annotation.session_id == session_id)
            .group_by(Annotation.branch_id, Annotation.step_index)
        )
        with self._database.reading() as session:
            find(session, AuditSession, session_id)
            query = select(Annotation).where(Annotation.id.in_(newest)).order_by(Annotation.id)
            return [to_record(AnnotationRecord, row) for row in session.scalars(query)]

    def history(self, session_id: int) -> list[AnnotationRecord]:
        """Return every annotation of a session, oldest first.

        Raises:
            NotFoundError: There is no such session.
        """
        with self._database.reading() as session:
            find(session, AuditSession, session_id)
            query = select(Annotation).where(Annotation.session_id == session_id).order_by(Annotation.id)
            return [to_record(AnnotationRecord, row) for row in session.scalars(query)]


def _check_branch(session: Session, session_id: int, branch_id: int | None) -> None:
    if branch_id is None:
        return
    if find(session, Branch, branch_id).session_id != session_id:
        raise ConflictError(f"Branch {branch_id} is not a branch of audit session {session_id}.")
