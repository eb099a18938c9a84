"""The library of sessions: found, ordered, tagged, archived; branches named and pruned."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import ColumnElement, Select, delete, func, insert, or_, select, update
from sqlalchemy.orm import Session, aliased

from db.database import Database
from db.records import BranchRecord
from db.rows import find, to_record
from db.tables import Annotation, AuditSession, BatchRow, Branch, SessionTag, Step
from db.types import ConflictError, utc_now

SessionOrder = Literal["updated", "created", "name", "prompt", "model", "policy", "certificate", "steps"]
"""What a list of sessions is sorted by."""

CertificateFilter = Literal["certified", "mismatch", "uncertified"]
"""Certified; uncertified since the calibration belongs to another policy; uncertified for any reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """Which sessions are wanted; what is None or empty does not matter.

    Attributes:
        text: Text in the name, prompt, a tag, or the note or tag of an entry of the verdict log, in any letter case.
        policy: Policy.
        model: Model.
        certificate: Certification status.
        tag: A tag, in any letter case.
        archived: Archived sessions only (True), or the others only.
        judged: Whether a verdict on anything of the session stands.
        since: Last changed at this moment or later.
        before: Last changed before this moment.
        batch_id: The batch that it belongs to.
    """

    text: str = ""
    policy: str | None = None
    model: str | None = None
    certificate: CertificateFilter | None = None
    tag: str | None = None
    archived: bool | None = False
    judged: bool | None = None
    since: datetime | None = None
    before: datetime | None = None
    batch_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEntryRecord:
    """A session in the library.

    Attributes:
        id: Its id.
        name: Its name.
        prompt: Its prompt.
        model: Its model.
        policy: Its policy.
        certificate: What may be claimed of it.
        step_count: Length of the active branch's chain.
        branch_count: Number of its branches.
        created_at: Start.
        updated_at: Last change.
        archived_at: When it was archived; None if it is not.
        batch_id: The batch that it belongs to; None for none.
        verdict_count: Targets (tokens, spans, branches, the session) on which a verdict stands.
        tags: Its tags, sorted.
    """

    id: int
    name: str
    prompt: str
    model: str
    policy: str
    certificate: str
    step_count: int
    branch_count: int
    created_at: datetime
    updated_at: datetime
    archived_at: datetime | None
    batch_id: int | None
    verdict_count: int
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryChoicesRecord:
    """What the library's filters can be set to; each with its number of sessions, archived ones included."""

    policies: tuple[tuple[str, int], ...]
    models: tuple[tuple[str, int], ...]
    tags: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchExtentRecord:
    """What hangs on a branch: itself, everything that departs from it, and what was said of these.

    Attributes:
        branch_ids: The branch and its descendants, itself first.
        names: Their names, in the same order.
        steps: Steps that are their own.
        verdicts: Entries of the verdict log that speak of them.
    """

    branch_ids: tuple[int, ...]
    names: tuple[str, ...]
    steps: int
    verdicts: int


def active_length() -> ColumnElement[int]:
    """Length of the active branch's chain: after its last own step, or at its fork while it has none."""
    active = AuditSession.active_branch_id
    own = select(func.max(Step.index) + 1).where(Step.branch_id == active).scalar_subquery()
    fork = select(Branch.fork_step).where(Branch.id == active).scalar_subquery()
    return func.coalesce(own, fork, 0)


def names_it(text: str) -> ColumnElement[bool]:
    """Whether a text stands in a session's name, prompt or model, in any case."""
    columns = (AuditSession.name, AuditSession.prompt, AuditSession.model)
    return or_(*(column.icontains(text, autoescape=True) for column in columns))


def standing_verdict() -> ColumnElement[bool]:
    """Whether an entry of a verdict log is a verdict that its reviewer has neither replaced nor withdrawn since."""
    later = aliased(Annotation)
    replaced = (
        select(later.id)
        .where(
            later.session_id == Annotation.session_id,
            later.kind == "verdict",
            later.reviewer == Annotation.reviewer,
            later.branch_id.is_not_distinct_from(Annotation.branch_id),
            later.step_index.is_not_distinct_from(Annotation.step_index),
            later.last_step_index.is_not_distinct_from(Annotation.last_step_index),
            later.entry > Annotation.entry,
        )
        .exists()
    )
    return (Annotation.kind == "verdict") & Annotation.verdict.is_not(None) & ~replaced


def matches(wanted: SessionFilter) -> list[ColumnElement[bool]]:
    """The conditions of a filter, all of which a session must meet."""
    return list(_conditions(wanted))


def _conditions(wanted: SessionFilter) -> Iterator[ColumnElement[bool]]:
    if text := wanted.text.strip():
        yield _mentions(text)
    if wanted.policy is not None:
        yield AuditSession.policy == wanted.policy
    if wanted.model is not None:
        yield AuditSession.model == wanted.model
    if wanted.certificate is not None:
        yield _certificate(wanted.certificate)
    if wanted.tag is not None:
        yield _has_tag(func.lower(SessionTag.tag) == func.lower(wanted.tag))
    if wanted.archived is not None:
        yield AuditSession.archived_at.is_not(None) if wanted.archived else AuditSession.archived_at.is_(None)
    if wanted.judged is not None:
        judged = _has_entry(standing_verdict())
        yield judged if wanted.judged else ~judged
    if wanted.since is not None:
        yield AuditSession.updated_at >= wanted.since
    if wanted.before is not None:
        yield AuditSession.updated_at < wanted.before
    if wanted.batch_id is not None:
        of_batch = BatchRow.session_id == AuditSession.id, BatchRow.batch_id == wanted.batch_id
        yield select(BatchRow.line).where(*of_batch).exists()


def _mentions(text: str) -> ColumnElement[bool]:
    said = or_(Annotation.note.icontains(text, autoescape=True), Annotation.tag.icontains(text, autoescape=True))
    return or_(
        AuditSession.name.icontains(text, autoescape=True),
        AuditSession.prompt.icontains(text, autoescape=True),
        _has_tag(SessionTag.tag.icontains(text, autoescape=True)),
        _has_entry(said),
    )


def _certificate(state: CertificateFilter) -> ColumnElement[bool]:
    if state == "certified":
        return AuditSession.certificate == "certified"
    if state == "mismatch":
        return AuditSession.certificate.startswith("uncertified: policy mismatch")
    return AuditSession.certificate.startswith("uncertified")


def _has_tag(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    return select(SessionTag.tag).where(SessionTag.session_id == AuditSession.id, condition).exists()


def _has_entry(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    return select(Annotation.id).where(Annotation.session_id == AuditSession.id, condition).exists()


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
