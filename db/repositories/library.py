"""The library of sessions: found, ordered, tagged, archived; branches named and pruned."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, delete, func, insert, select, update
from sqlalchemy.orm import Session

from db.database import Database
from db.errors import ConflictError
from db.mapping import to_record
from db.models import Annotation, AuditSession, BatchRow, Branch, SessionTag, Step
from db.records import (
    BranchExtentRecord,
    BranchRecord,
    LibraryChoicesRecord,
    SessionEntryRecord,
    SessionFilter,
    SessionOrder,
)
from db.repositories.common import find
from db.repositories.session_conditions import active_length, matches, standing_verdict
from db.types import utc_now

_COLUMNS = (
    "id", "name", "prompt", "model", "policy", "certificate", "created_at", "updated_at", "archived_at",
)  # fmt: skip


class LibraryRepository:
    """Orders stored sessions without changing what they say."""

    def __init__(self, database: Database) -> None:
        """Work on an open store."""
        self._database = database

    def search(
        self,
        wanted: SessionFilter,
        order: SessionOrder = "updated",
        descending: bool = True,
        limit: int = 50,
        offset: int = 0,
    ) -> Sequence[SessionEntryRecord]:
        """Return a page of the sessions that are wanted.

        Args:
            wanted: Which ones.
            order: What they are sorted by; the newest first among equals.
            descending: The largest or latest first.
            limit: At most so many.
            offset: After skipping so many.
        """
        key = _order(order)
        query = (
            select(*_entry_columns())
            .where(*matches(wanted))
            .order_by(key.desc() if descending else key.asc(), AuditSession.id.desc())
            .limit(limit)
            .offset(offset)
        )
        with self._database.reading() as session:
            return _entries(session, query)

    def count(self, wanted: SessionFilter) -> int:
        """Return how many sessions are wanted."""
        with self._database.reading() as session:
            return session.scalars(select(func.count()).select_from(AuditSession).where(*matches(wanted))).one()

    def ids(self, wanted: SessionFilter) -> Sequence[int]:
        """Return the ids of all sessions that are wanted, oldest first."""
        with self._database.reading() as session:
            return list(session.scalars(select(AuditSession.id).where(*matches(wanted)).order_by(AuditSession.id)))

    def entries(self, session_ids: Collection[int]) -> Sequence[SessionEntryRecord]:
        """Return the entries of those of some sessions that are stored, oldest first."""
        query = select(*_entry_columns()).where(AuditSession.id.in_(session_ids)).order_by(AuditSession.id)
        with self._database.reading() as session:
            return _entries(session, query)

    def choices(self) -> LibraryChoicesRecord:
        """Return what the filters can be set to, in alphabetical order."""

        def counted(column: Any) -> Select[Any]:
            return select(column, func.count()).group_by(column).order_by(func.lower(column), column)

        with self._database.reading() as session:

            def read(column: Any) -> tuple[tuple[str, int], ...]:
                return tuple((name, count) for name, count in session.execute(counted(column)))

            return LibraryChoicesRecord(
                policies=read(AuditSession.policy), models=read(AuditSession.model), tags=read(SessionTag.tag)
            )

    def add_tag(self, session_ids: Collection[int], tag: str) -> int:
        """Give sessions a tag and return how many did not have it; a tag keeps the letter case it was first given in.

        Raises:
            ConflictError: A session does not exist.
        """
        with self._database.session() as session:
            known = session.scalars(
                select(SessionTag.tag).where(func.lower(SessionTag.tag) == func.lower(tag)).limit(1)
            ).first()
            having = set(
                session.scalars(
                    select(SessionTag.session_id).where(SessionTag.session_id.in_(session_ids), SessionTag.tag == known)
                )
            )
            missing = sorted(set(session_ids) - having)
            if missing:
                session.execute(insert(SessionTag), [{"session_id": key, "tag": known or tag} for key in missing])
            return len(missing)

    def remove_tag(self, session_ids: Collection[int], tag: str) -> int:
        """Take a tag, in any letter case, from sessions and return how many had it."""
        of_these = SessionTag.session_id.in_(session_ids), func.lower(SessionTag.tag) == func.lower(tag)
        with self._database.session() as session:
            had = session.scalars(select(func.count()).select_from(SessionTag).where(*of_these)).one()
            session.execute(delete(SessionTag).where(*of_these))
            return had

    def set_archived(self, session_ids: Collection[int], archived: bool) -> int:
        """Archive sessions, or take them back, and return for how many that changed anything."""
        stamp: datetime | None = utc_now() if archived else None
        of_these = (
            AuditSession.id.in_(session_ids),
            AuditSession.archived_at.is_(None) if archived else AuditSession.archived_at.is_not(None),
        )
        with self._database.session() as session:
            changing = session.scalars(select(func.count()).select_from(AuditSession).where(*of_these)).one()
            session.execute(update(AuditSession).where(*of_these).values(archived_at=stamp))
            return changing

    def rename_branch(self, session_id: int, branch_id: int, name: str) -> BranchRecord:
        """Change a branch's name.

        Raises:
            NotFoundError: There is no such branch.
            ConflictError: The branch belongs to another session.
        """
        with self._database.session() as session:
            row = _own(session, session_id, branch_id)
            row.name = name
            find(session, AuditSession, session_id).updated_at = utc_now()
            return to_record(BranchRecord, row)

    def extent(self, session_id: int, branch_id: int) -> BranchExtentRecord:
        """Return what pruning a branch would take along.

        Raises:
            NotFoundError: There is no such branch.
            ConflictError: The branch belongs to another session.
        """
        with self._database.reading() as session:
            return _extent(session, _own(session, session_id, branch_id))

    def prune(self, session_id: int, branch_id: int) -> BranchExtentRecord:
        """Delete a branch with everything that departs from it; its parent becomes active if one of them was.

        Returns:
            What was deleted.

        Raises:
            NotFoundError: There is no such branch.
            ConflictError: It is another session's or the root, or the verdict log speaks of a branch that would go.
        """
        with self._database.session() as session:
            # The verdict log is extended under the same lock, so that no entry comes between check and deletion.
            owner = session.get(AuditSession, session_id, with_for_update=True)
            branch = _own(session, session_id, branch_id)
            if branch.parent_id is None or owner is None:
                raise ConflictError("The main branch cannot be pruned; delete the session instead.")
            extent = _extent(session, branch)
            if extent.verdicts:
                raise ConflictError(
                    f"The verdict log has {extent.verdicts} entries on this branch or on branches that depart from it, "
                    "and it is append-only; delete the whole session, or prune another branch."
                )
            if owner.active_branch_id in extent.branch_ids:
                owner.active_branch_id = branch.parent_id
            owner.updated_at = utc_now()
            session.flush()
            session.execute(delete(Branch).where(Branch.id == branch_id))
            return extent


def _entry_columns() -> list[Any]:
    branches = select(func.count()).where(Branch.session_id == AuditSession.id).scalar_subquery()
    batch = select(BatchRow.batch_id).where(BatchRow.session_id == AuditSession.id).scalar_subquery()
    return [
        *(getattr(AuditSession, name) for name in _COLUMNS),
        active_length().label("step_count"),
        branches.label("branch_count"),
        batch.label("batch_id"),
    ]


def _order(order: SessionOrder) -> ColumnElement[Any]:
    if order == "steps":
        return active_length()
    if order in ("updated", "created"):
        return AuditSession.updated_at if order == "updated" else AuditSession.created_at  # type: ignore[return-value]
    return func.lower(getattr(AuditSession, order))


def _entries(session: Session, query: Select[Any]) -> list[SessionEntryRecord]:
    rows = session.execute(query).all()
    ids = [row.id for row in rows]
    tags, judged = _tags(session, ids), _judged(session, ids)
    return [
        to_record(SessionEntryRecord, row, tags=tuple(tags[row.id]), verdict_count=len(judged[row.id])) for row in rows
    ]


def _tags(session: Session, session_ids: Collection[int]) -> defaultdict[int, list[str]]:
    tags: defaultdict[int, list[str]] = defaultdict(list)
    query = select(SessionTag).where(SessionTag.session_id.in_(session_ids)).order_by(func.lower(SessionTag.tag))
    for row in session.scalars(query):
        tags[row.session_id].append(row.tag)
    return tags


def _judged(session: Session, session_ids: Collection[int]) -> defaultdict[int, set[tuple[Any, ...]]]:
    """Targets by session on which a verdict of at least one reviewer stands."""
    targets: defaultdict[int, set[tuple[Any, ...]]] = defaultdict(set)
    columns = (Annotation.session_id, Annotation.branch_id, Annotation.step_index, Annotation.last_step_index)
    for row in session.execute(select(*columns).where(Annotation.session_id.in_(session_ids), standing_verdict())):
        targets[row.session_id].add(tuple(row)[1:])
    return targets


def _own(session: Session, session_id: int, branch_id: int) -> Branch:
    branch = find(session, Branch, branch_id)
    if branch.session_id != session_id:
        raise ConflictError(f"Branch {branch_id} is not a branch of audit session {session_id}.")
    return branch


def _extent(session: Session, branch: Branch) -> BranchExtentRecord:
    family = session.scalars(select(Branch).filter_by(session_id=branch.session_id).order_by(Branch.id)).all()
    own: list[Branch] = [branch]
    within = {branch.id}
    # A branch is younger than its parent, so one pass in the order of ids finds all descendants.
    for row in family:
        if row.parent_id in within:
            own.append(row)
            within.add(row.id)
    steps = session.scalars(select(func.count()).select_from(Step).where(Step.branch_id.in_(within))).one()
    said = session.scalars(select(func.count()).select_from(Annotation).where(Annotation.branch_id.in_(within))).one()
    return BranchExtentRecord(
        branch_ids=tuple(row.id for row in own), names=tuple(row.name for row in own), steps=steps, verdicts=said
    )
