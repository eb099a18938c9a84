"""The library of sessions: found, ordered, tagged, archived; branches named and pruned."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    ForeignKey,
    Index,
    Integer,
    Select,
    Subquery,
    Table,
    case,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from db.audits import BranchRecord, batch_rows, branch_record, branches, own_branch, require_own, sessions, touch
from db.batches import batches
from db.chains import steps
from db.database import Database
from db.tables import METADATA, change_row, fields_in, find
from db.types import AnyText, ConflictError, utc_now
from db.verdicts import log_entries

session_tags = Table(
    "session_tags",
    METADATA,
    Column("session_id", Integer, ForeignKey("audit_sessions.id", ondelete="CASCADE"), primary_key=True),
    Column("tag", AnyText, primary_key=True),
    Index(None, "tag"),
)

SessionOrder = Literal["updated", "created", "name", "prompt", "model", "policy", "certificate", "steps", "strongest"]
"""What a list of sessions is sorted by."""

CertificateFilter = Literal["certified", "mismatch", "uncertified"]
"""Certified; uncertified since the calibration belongs to another policy; uncertified for any reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """Which sessions are wanted; what is None or empty does not matter."""

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
    """A session in the library."""

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
    verdict_count: int | None
    tags: tuple[str, ...]
    held_count: int = 0
    missed_count: int = 0
    weak_count: int = 0
    strongest: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFoldRecord:
    """The sessions of a batch among those that are wanted, as one row of the library."""

    id: int
    name: str
    session_count: int
    sensitive_count: int
    uncertified_count: int
    judged_count: int
    hidden_count: int
    step_count: int
    branch_count: int
    held_count: int
    missed_count: int
    weak_count: int
    strongest: float | None
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryChoicesRecord:
    """What the library's filters can be set to; each with its number of sessions, archived ones included."""

    policies: tuple[tuple[str, int], ...]
    models: tuple[tuple[str, int], ...]
    tags: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchExtentRecord:
    """What hangs on a branch: itself, everything that departs from it, and what was said of these."""

    branch_ids: tuple[int, ...]
    names: tuple[str, ...]
    steps: int
    verdicts: int


def active_length() -> ColumnElement[int]:
    """Length of the active branch's chain: after its last own step, or at its fork while it has none."""
    active = sessions.c.active_branch_id
    last = select(func.max(steps.c.index) + 1).where(steps.c.branch_id == active).scalar_subquery()
    fork = select(branches.c.fork_step).where(branches.c.id == active).scalar_subquery()
    return func.coalesce(last, fork, 0)


def names_it(text: str) -> ColumnElement[bool]:
    """Whether a text stands in a session's name, prompt or model, in any case."""
    return _stands_in(text, sessions.c.name, sessions.c.prompt, sessions.c.model)


def _stands_in(text: str, *columns: Column[Any]) -> ColumnElement[bool]:
    return or_(*(column.icontains(text, autoescape=True) for column in columns))


def standing_verdict() -> ColumnElement[bool]:
    """Whether an entry of a verdict log is a verdict that its reviewer has neither replaced nor withdrawn since."""
    later = log_entries.alias()
    replaced = (
        select(later.c.id)
        .where(
            later.c.session_id == log_entries.c.session_id,
            later.c.kind == "verdict",
            later.c.reviewer == log_entries.c.reviewer,
            later.c.branch_id.is_not_distinct_from(log_entries.c.branch_id),
            later.c.step_index.is_not_distinct_from(log_entries.c.step_index),
            later.c.last_step_index.is_not_distinct_from(log_entries.c.last_step_index),
            later.c.entry > log_entries.c.entry,
        )
        .exists()
    )
    return (log_entries.c.kind == "verdict") & log_entries.c.verdict.is_not(None) & ~replaced


def _conditions(wanted: SessionFilter) -> Iterator[ColumnElement[bool]]:
    """The conditions of a filter, all of which a session must meet."""
    if text := wanted.text.strip():
        yield _mentions(text)
    if wanted.policy is not None:
        yield sessions.c.policy == wanted.policy
    if wanted.model is not None:
        yield sessions.c.model == wanted.model
    if wanted.certificate is not None:
        yield _certificate(wanted.certificate)
    if wanted.tag is not None:
        yield _has_tag(func.lower(session_tags.c.tag) == func.lower(wanted.tag))
    if wanted.archived is not None:
        yield _is_archived(wanted.archived)
    if wanted.judged is not None:
        judged = _has_entry(standing_verdict())
        yield ~_under_blind_review() & (judged if wanted.judged else ~judged)
    if wanted.since is not None:
        yield sessions.c.updated_at >= wanted.since
    if wanted.before is not None:
        yield sessions.c.updated_at < wanted.before
    if wanted.batch_id is not None:
        of_batch = batch_rows.c.session_id == sessions.c.id, batch_rows.c.batch_id == wanted.batch_id
        yield select(batch_rows.c.line).where(*of_batch).exists()


def _mentions(text: str) -> ColumnElement[bool]:
    return or_(
        _stands_in(text, sessions.c.name, sessions.c.prompt),
        _has_tag(_stands_in(text, session_tags.c.tag)),
        _has_entry(_stands_in(text, log_entries.c.note, log_entries.c.tag)) & ~_under_blind_review(),
    )


def _is_archived(archived: bool) -> ColumnElement[bool]:
    return sessions.c.archived_at.is_not(None) if archived else sessions.c.archived_at.is_(None)


def _certificate(state: CertificateFilter) -> ColumnElement[bool]:
    if state == "certified":
        return sessions.c.certificate == "certified"
    if state == "mismatch":
        return sessions.c.certificate.startswith("uncertified: policy mismatch")
    return sessions.c.certificate.startswith("uncertified")


def _has_tag(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    return select(session_tags.c.tag).where(session_tags.c.session_id == sessions.c.id, condition).exists()


def _has_entry(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    return select(log_entries.c.id).where(log_entries.c.session_id == sessions.c.id, condition).exists()


_SUMMED = ("step_count", "branch_count", "held_count", "missed_count", "weak_count")


class LibraryRepository:
    """Orders stored sessions without changing what they say."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def search(
        self,
        wanted: SessionFilter,
        order: SessionOrder = "updated",
        descending: bool = True,
        limit: int = 50,
        offset: int = 0,
    ) -> Sequence[SessionEntryRecord]:
        """Return a page of the sessions that are wanted, the newest first among equals."""
        key = _order(order)
        query = (
            select(*_entry_columns())
            .where(*_conditions(wanted))
            .order_by(key.desc() if descending else key.asc(), sessions.c.id.desc())
            .limit(limit)
            .offset(offset)
        )
        with self._database.reading() as connection:
            return _entries(connection, query)

    def folded(
        self,
        wanted: SessionFilter,
        order: SessionOrder = "updated",
        descending: bool = True,
        limit: int = 50,
        offset: int = 0,
        sensitive: float = 0.0,
    ) -> Sequence[SessionEntryRecord | BatchFoldRecord]:
        """Return a page of the sessions that are wanted, those of a batch as one row where the first of them stands."""
        ranked = _ranked(wanted, order, descending)
        key = ranked.c.key.desc() if descending else ranked.c.key.asc()
        first = select(ranked.c.id, ranked.c.batch_id).where(ranked.c.place == 1).order_by(key, ranked.c.id.desc())
        with self._database.reading() as connection:
            rows = connection.execute(first.limit(limit).offset(offset)).all()
            single = sessions.c.id.in_([row.id for row in rows if row.batch_id is None])
            alone = {entry.id: entry for entry in _entries(connection, select(*_entry_columns()).where(single))}
            folds = _folds(connection, wanted, {row.batch_id for row in rows} - {None}, sensitive)
        return [alone[row.id] if row.batch_id is None else folds[row.batch_id] for row in rows]

    def folded_count(self, wanted: SessionFilter) -> int:
        """Return how many rows the wanted sessions are where those of a batch are one."""
        kept = select(sessions.c.id, _batch_of().label("batch_id")).where(*_conditions(wanted)).subquery()
        with self._database.reading() as connection:
            return connection.scalars(select(func.count(_fold_of(kept).distinct()))).one()

    def count(self, wanted: SessionFilter) -> int:
        """Return how many sessions are wanted."""
        with self._database.reading() as connection:
            return connection.scalars(select(func.count()).select_from(sessions).where(*_conditions(wanted))).one()

    def ids(self, wanted: SessionFilter) -> Sequence[int]:
        """Return the ids of all sessions that are wanted, oldest first."""
        with self._database.reading() as connection:
            return list(connection.scalars(select(sessions.c.id).where(*_conditions(wanted)).order_by(sessions.c.id)))

    def entries(self, session_ids: Collection[int]) -> Sequence[SessionEntryRecord]:
        """Return the entries of those of some sessions that are stored, oldest first."""
        query = select(*_entry_columns()).where(sessions.c.id.in_(session_ids)).order_by(sessions.c.id)
        with self._database.reading() as connection:
            return _entries(connection, query)

    def choices(self) -> LibraryChoicesRecord:
        """Return what the filters can be set to, in alphabetical order."""

        def counted(column: Any) -> Select[Any, int]:
            return select(column, func.count()).group_by(column).order_by(func.lower(column), column)

        with self._database.reading() as connection:

            def read(column: Any) -> tuple[tuple[str, int], ...]:
                return tuple((name, count) for name, count in connection.execute(counted(column)))

            return LibraryChoicesRecord(
                policies=read(sessions.c.policy), models=read(sessions.c.model), tags=read(session_tags.c.tag)
            )

    def add_tag(self, session_ids: Collection[int], tag: str) -> int:
        """Give sessions a tag and return how many did not have it; a tag keeps its first letter case."""
        with self._database.writing() as connection:
            known = connection.scalars(
                select(session_tags.c.tag).where(func.lower(session_tags.c.tag) == func.lower(tag)).limit(1)
            ).first()
            having = set(
                connection.scalars(
                    select(session_tags.c.session_id).where(
                        session_tags.c.session_id.in_(session_ids), session_tags.c.tag == known
                    )
                )
            )
            missing = sorted(set(session_ids) - having)
            if missing:
                connection.execute(insert(session_tags), [{"session_id": key, "tag": known or tag} for key in missing])
            return len(missing)

    def remove_tag(self, session_ids: Collection[int], tag: str) -> int:
        """Take a tag, in any letter case, from sessions and return how many had it."""
        of_these = session_tags.c.session_id.in_(session_ids), func.lower(session_tags.c.tag) == func.lower(tag)
        with self._database.writing() as connection:
            return connection.execute(delete(session_tags).where(*of_these)).rowcount

    def set_archived(self, session_ids: Collection[int], archived: bool) -> int:
        """Archive sessions, or take them back, and return for how many that changed anything."""
        stamp: datetime | None = utc_now() if archived else None
        of_these = sessions.c.id.in_(session_ids), _is_archived(not archived)
        with self._database.writing() as connection:
            return connection.execute(update(sessions).where(*of_these).values(archived_at=stamp)).rowcount

    def rename_branch(self, session_id: int, branch_id: int, name: str) -> BranchRecord:
        """Change a branch's name."""
        with self._database.writing() as connection:
            require_own(connection, session_id)
            own_branch(connection, session_id, branch_id)
            change_row(connection, branches, branch_id, name=name)
            touch(connection, session_id)
            return branch_record(connection, branch_id)

    def extent(self, session_id: int, branch_id: int) -> BranchExtentRecord:
        """Return what pruning a branch would take along."""
        with self._database.reading() as connection:
            return _extent(connection, own_branch(connection, session_id, branch_id))

    def prune(self, session_id: int, branch_id: int) -> BranchExtentRecord:
        """Delete a branch with all that departs from it, and say what it was; its parent may become the active one."""
        with self._database.writing() as connection:
            # The verdict log is extended under the same lock, so that no entry comes between check and deletion.
            owner = find(connection, sessions, session_id, lock=True)
            require_own(connection, session_id)
            branch = own_branch(connection, session_id, branch_id)
            if branch.parent_id is None:
                raise ConflictError("The main branch cannot be pruned; delete the session instead.")
            extent = _extent(connection, branch)
            if extent.verdicts:
                raise ConflictError(
                    f"The verdict log has {extent.verdicts} entries on this branch or on branches that depart from it, "
                    "and it is append-only; delete the whole session, or prune another branch."
                )
            if owner.active_branch_id in extent.branch_ids:
                change_row(connection, sessions, session_id, active_branch_id=branch.parent_id)
            touch(connection, session_id)
            connection.execute(delete(branches).where(branches.c.id == branch_id))
            return extent


def _entry_columns() -> list[Any]:
    count = select(func.count()).where(branches.c.session_id == sessions.c.id).scalar_subquery()
    thresholded = steps.c.state.in_(("calibrated", "inherited"))
    return [
        *fields_in(SessionEntryRecord, sessions),
        active_length().label("step_count"),
        count.label("branch_count"),
        _batch_of().label("batch_id"),
        _counted(thresholded & steps.c.certified).label("held_count"),
        _counted(thresholded & ~steps.c.certified).label("missed_count"),
        _counted(steps.c.state == "uninformative").label("weak_count"),
        _strongest().label("strongest"),
    ]


def _batch_of() -> ColumnElement[int]:
    return select(batch_rows.c.batch_id).where(batch_rows.c.session_id == sessions.c.id).scalar_subquery()


def _fold_of(kept: Subquery) -> ColumnElement[int]:
    """One number for all sessions of a batch, and one for each other session."""
    return func.coalesce(kept.c.batch_id, -kept.c.id)


def _ranked(wanted: SessionFilter, order: SessionOrder, descending: bool) -> Subquery:
    """The wanted sessions with what they are sorted by, and their place among those of their batch."""
    columns = (sessions.c.id, _batch_of().label("batch_id"), _order(order).label("key"))
    kept = select(*columns).where(*_conditions(wanted)).subquery()
    key = kept.c.key.desc() if descending else kept.c.key.asc()
    place = func.row_number().over(partition_by=_fold_of(kept), order_by=(key, kept.c.id.desc()))
    return select(kept, place.label("place")).subquery()


def _folds(
    connection: Connection, wanted: SessionFilter, batch_ids: Collection[int], sensitive: float
) -> dict[int, BatchFoldRecord]:
    """The wanted sessions of batches counted together, by batch."""
    judged = _has_entry(standing_verdict()).label("judged")
    hidden = _under_blind_review().label("hidden")
    own = select(*_entry_columns(), judged, hidden).where(*_conditions(wanted), _batch_of().in_(batch_ids)).subquery()

    def number(condition: ColumnElement[bool]) -> ColumnElement[int]:
        return func.sum(case((condition, 1), else_=0))

    counted = (
        select(
            batches.c.id,
            batches.c.name,
            func.count().label("session_count"),
            number(own.c.strongest >= sensitive).label("sensitive_count"),
            number(own.c.certificate.startswith("uncertified")).label("uncertified_count"),
            number(own.c.judged & ~own.c.hidden).label("judged_count"),
            number(own.c.hidden).label("hidden_count"),
            *(func.sum(own.c[name]).label(name) for name in _SUMMED),
            func.max(own.c.strongest).label("strongest"),
            func.max(own.c.updated_at).label("updated_at"),
        )
        .join_from(own, batches, own.c.batch_id == batches.c.id)
        .group_by(batches.c.id, batches.c.name)
    )
    return {row.id: BatchFoldRecord(**row._asdict()) for row in connection.execute(counted)}


def _of_all_branches(value: ColumnElement[Any]) -> ColumnElement[Any]:
    """A value over the tokens of all branches of a session, and of no other's."""
    own = select(value).select_from(steps.join(branches, steps.c.branch_id == branches.c.id))
    return own.where(branches.c.session_id == sessions.c.id).correlate(sessions).scalar_subquery()


def _counted(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.coalesce(_of_all_branches(func.sum(case((condition, 1), else_=0))), 0)


def _strongest() -> ColumnElement[float]:
    return _of_all_branches(func.max(func.abs(steps.c.log_ratio)))


def _order(order: SessionOrder) -> ColumnElement[Any]:
    if order in ("steps", "strongest"):
        return active_length() if order == "steps" else func.coalesce(_strongest(), -1)
    if order in ("updated", "created"):
        return sessions.c.updated_at if order == "updated" else sessions.c.created_at
    return func.lower(sessions.c[order])


def _entries(connection: Connection, query: Select[*tuple[Any, ...]]) -> list[SessionEntryRecord]:
    rows = connection.execute(query).all()
    ids = [row.id for row in rows]
    tags, judged = _tags(connection, ids), _judged(connection, ids)
    hidden = set(connection.scalars(select(sessions.c.id).where(sessions.c.id.in_(ids), _under_blind_review())))
    return [
        SessionEntryRecord(
            **row._asdict(),
            tags=tuple(tags[row.id]),
            verdict_count=None if row.id in hidden else len(judged[row.id]),
        )
        for row in rows
    ]


def _tags(connection: Connection, session_ids: Collection[int]) -> defaultdict[int, list[str]]:
    tags: defaultdict[int, list[str]] = defaultdict(list)
    tag_columns = session_tags.c
    query = (
        select(tag_columns.session_id, tag_columns.tag)
        .where(tag_columns.session_id.in_(session_ids))
        .order_by(func.lower(tag_columns.tag))
    )
    for key, tag in connection.execute(query):
        tags[key].append(tag)
    return tags


def _under_blind_review() -> ColumnElement[bool]:
    """Whether anybody has begun a blind review of a session and not finished it: what was said is then hidden."""
    later = log_entries.alias()
    finished = (
        select(later.c.id)
        .where(
            later.c.session_id == log_entries.c.session_id,
            later.c.reviewer == log_entries.c.reviewer,
            later.c.kind == "review_finished",
            later.c.entry > log_entries.c.entry,
        )
        .exists()
    )
    return _has_entry((log_entries.c.kind == "review_started") & log_entries.c.blind & ~finished)


def _judged(connection: Connection, session_ids: Collection[int]) -> defaultdict[int, set[tuple[Any, ...]]]:
    """Targets by session on which a verdict of at least one reviewer stands."""
    targets: defaultdict[int, set[tuple[Any, ...]]] = defaultdict(set)
    entries = log_entries.c
    query = select(entries.session_id, entries.branch_id, entries.step_index, entries.last_step_index)
    for key, *target in connection.execute(query.where(entries.session_id.in_(session_ids), standing_verdict())):
        targets[key].add(tuple(target))
    return targets


def _extent(connection: Connection, branch: BranchRecord) -> BranchExtentRecord:
    family = select(branches).where(branches.c.session_id == branch.session_id).order_by(branches.c.id)
    within = {branch.id: branch.name}
    # A branch is younger than its parent, so one pass in the order of ids finds all descendants.
    for row in connection.execute(family):
        if row.parent_id in within:
            within[row.id] = row.name

    def count(column: Any) -> int:
        return connection.execute(select(func.count()).where(column.in_(within))).scalar_one()

    return BranchExtentRecord(
        branch_ids=tuple(within),
        names=tuple(within.values()),
        steps=count(steps.c.branch_id),
        verdicts=count(log_entries.c.branch_id),
    )
