"""The library of sessions: found, ordered, tagged, archived; branches named and pruned."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa

from db.audits import BranchRecord, batch_rows, branch_record, branches, own_branch, require_own, sessions, touch
from db.batches import batches
from db.chains import steps
from db.tables import METADATA, Store, change_row, fields_in, find
from db.types import AnyText, ConflictError, utc_now
from db.verdicts import log_entries

session_tags = sa.Table(
    "session_tags",
    METADATA,
    sa.Column("session_id", sa.Integer, sa.ForeignKey("audit_sessions.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("tag", AnyText, primary_key=True),
    sa.Index(None, "tag"),
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


def active_length() -> sa.ColumnElement[int]:
    """Length of the active branch's chain: after its last own step, or at its fork while it has none."""
    active = sessions.c.active_branch_id
    last = sa.select(sa.func.max(steps.c.index) + 1).where(steps.c.branch_id == active).scalar_subquery()
    fork = sa.select(branches.c.fork_step).where(branches.c.id == active).scalar_subquery()
    return sa.func.coalesce(last, fork, 0)


def names_it(text: str) -> sa.ColumnElement[bool]:
    """Whether a text is in a session's name, prompt or model, in any case."""
    return _is_in(text, sessions.c.name, sessions.c.prompt, sessions.c.model)


def _is_in(text: str, *columns: sa.Column[Any]) -> sa.ColumnElement[bool]:
    return sa.or_(*(column.icontains(text, autoescape=True) for column in columns))


def _is_followed(*same: sa.Column[Any], by: str) -> sa.ColumnElement[bool]:
    """Whether the same reviewer wrote a later entry of a kind into the same log, equal in some columns."""
    later = log_entries.alias()
    equal = [later.c[column.name].is_not_distinct_from(column) for column in same]
    of_log = later.c.session_id == log_entries.c.session_id, later.c.reviewer == log_entries.c.reviewer
    is_later = later.c.kind == by, later.c.entry > log_entries.c.entry
    return sa.select(later.c.id).where(*of_log, *is_later, *equal).exists()


def _has_tag(condition: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    return sa.select(session_tags.c.tag).where(session_tags.c.session_id == sessions.c.id, condition).exists()


def _has_entry(condition: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    return sa.select(log_entries.c.id).where(log_entries.c.session_id == sessions.c.id, condition).exists()


_TARGET = (log_entries.c.branch_id, log_entries.c.step_index, log_entries.c.last_step_index)
_STANDING = (
    (log_entries.c.kind == "verdict") & log_entries.c.verdict.is_not(None) & ~_is_followed(*_TARGET, by="verdict")
)
"""Whether an entry is a verdict that its reviewer has neither replaced nor withdrawn since."""
_UNDER_BLIND_REVIEW = _has_entry(
    (log_entries.c.kind == "review_started") & log_entries.c.blind & ~_is_followed(by="review_finished")
)
"""Whether somebody has begun a blind review of a session and not finished it: what was said is then hidden."""


def _conditions(wanted: SessionFilter) -> Iterator[sa.ColumnElement[bool]]:
    """The conditions of a filter, all of which a session must meet."""
    if text := wanted.text.strip():
        said = _has_entry(_is_in(text, log_entries.c.note, log_entries.c.tag)) & ~_UNDER_BLIND_REVIEW
        yield sa.or_(_is_in(text, sessions.c.name, sessions.c.prompt), _has_tag(_is_in(text, session_tags.c.tag)), said)
    if wanted.policy is not None:
        yield sessions.c.policy == wanted.policy
    if wanted.model is not None:
        yield sessions.c.model == wanted.model
    if wanted.certificate is not None:
        text, certificate = _CERTIFICATES[wanted.certificate], sessions.c.certificate
        yield certificate == text if text == "certified" else certificate.startswith(text)
    if wanted.tag is not None:
        yield _has_tag(sa.func.lower(session_tags.c.tag) == sa.func.lower(wanted.tag))
    if wanted.archived is not None:
        yield _is_archived(wanted.archived)
    if wanted.judged is not None:
        judged = _has_entry(_STANDING)
        yield ~_UNDER_BLIND_REVIEW & (judged if wanted.judged else ~judged)
    if wanted.since is not None:
        yield sessions.c.updated_at >= wanted.since
    if wanted.before is not None:
        yield sessions.c.updated_at < wanted.before
    if wanted.batch_id is not None:
        yield _batch_id == wanted.batch_id


_CERTIFICATES: dict[CertificateFilter, str] = {
    "certified": "certified",
    "mismatch": "uncertified: policy mismatch",
    "uncertified": "uncertified",
}
"""What certificates begin with."""


def _is_archived(archived: bool) -> sa.ColumnElement[bool]:
    return sessions.c.archived_at.is_not(None) if archived else sessions.c.archived_at.is_(None)


def _of_all_branches(value: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """A value over the tokens of all branches of a session, and of no other's."""
    own = sa.select(value).select_from(steps.join(branches, steps.c.branch_id == branches.c.id))
    return own.where(branches.c.session_id == sessions.c.id).correlate(sessions).scalar_subquery()


def _number_of(condition: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
    return sa.func.coalesce(_of_all_branches(sa.func.sum(sa.case((condition, 1), else_=0))), 0)


_THRESHOLDED = steps.c.state.in_(("calibrated", "inherited"))
_STRONGEST = _of_all_branches(sa.func.max(sa.func.abs(steps.c.log_ratio)))
_batch_id = sa.select(batch_rows.c.batch_id).where(batch_rows.c.session_id == sessions.c.id).scalar_subquery()
_BRANCHES = sa.select(sa.func.count()).where(branches.c.session_id == sessions.c.id).scalar_subquery()
_ENTRIES = sa.select(
    *fields_in(SessionEntryRecord, sessions),
    active_length().label("step_count"),
    _BRANCHES.label("branch_count"),
    _batch_id.label("batch_id"),
    _number_of(_THRESHOLDED & steps.c.certified).label("held_count"),
    _number_of(_THRESHOLDED & ~steps.c.certified).label("missed_count"),
    _number_of(steps.c.state == "uninformative").label("weak_count"),
    _STRONGEST.label("strongest"),
    _UNDER_BLIND_REVIEW.label("hidden"),
)
_KEYS: dict[SessionOrder, sa.ColumnElement[Any]] = {
    "updated": sessions.c.updated_at,
    "created": sessions.c.created_at,
    "steps": active_length(),
    "strongest": sa.func.coalesce(_STRONGEST, -1),
}


def _key(order: SessionOrder) -> sa.ColumnElement[Any]:
    return _KEYS[order] if order in _KEYS else sa.func.lower(sessions.c[order])


class LibraryRepository(Store):
    """Orders stored sessions without changing what they say."""

    def search(
        self, wanted: SessionFilter, order: SessionOrder = "updated", descending: bool = True, limit: int = 50,
        offset: int = 0,
    ) -> Sequence[SessionEntryRecord]:  # fmt: skip
        """Return a page of the sessions that are wanted, the newest first among equals."""
        key = _key(order).desc() if descending else _key(order).asc()
        query = _ENTRIES.where(*_conditions(wanted)).order_by(key, sessions.c.id.desc())
        with self._database.reading() as connection:
            return _entries(connection, query.limit(limit).offset(offset))

    def folded(
        self, wanted: SessionFilter, order: SessionOrder = "updated", descending: bool = True, limit: int = 50,
        offset: int = 0, sensitive: float = 0.0,
    ) -> Sequence[SessionEntryRecord | BatchFoldRecord]:  # fmt: skip
        """Return a page of the sessions that are wanted, those of a batch as one row in the place of their first."""
        conditions = [*_conditions(wanted)]
        columns = sessions.c.id, _batch_id.label("batch_id"), _key(order).label("key")
        kept = sa.select(*columns).where(*conditions).subquery()
        key = kept.c.key.desc() if descending else kept.c.key.asc()
        place = sa.func.row_number().over(partition_by=_fold_of(kept), order_by=(key, kept.c.id.desc()))
        ranked = sa.select(kept, place.label("place")).subquery()
        key = ranked.c.key.desc() if descending else ranked.c.key.asc()
        first = sa.select(ranked.c.id, ranked.c.batch_id).where(ranked.c.place == 1).order_by(key, ranked.c.id.desc())
        with self._database.reading() as connection:
            rows = connection.execute(first.limit(limit).offset(offset)).all()
            alone, folds = [row.id for row in rows if row.batch_id is None], {row.batch_id for row in rows} - {None}
            shown = _ENTRIES.where(*conditions, sessions.c.id.in_(alone) | _batch_id.in_(folds))
            found = _entries(connection, shown)
            names = dict(connection.execute(sa.select(batches.c.id, batches.c.name)).tuples().all()) if folds else {}
        entries = {entry.id: entry for entry in found}
        members = {batch: [entry for entry in found if entry.batch_id == batch] for batch in folds}
        return [
            entries[row.id]
            if row.batch_id is None
            else _fold(row.batch_id, names[row.batch_id], members[row.batch_id], sensitive)
            for row in rows
        ]

    def folded_count(self, wanted: SessionFilter) -> int:
        """Return how many rows the wanted sessions are where those of a batch are one."""
        kept = sa.select(sessions.c.id, _batch_id.label("batch_id")).where(*_conditions(wanted)).subquery()
        with self._database.reading() as connection:
            return connection.scalars(sa.select(sa.func.count(_fold_of(kept).distinct()))).one()

    def count(self, wanted: SessionFilter) -> int:
        """Return how many sessions are wanted."""
        with self._database.reading() as connection:
            return connection.scalars(
                sa.select(sa.func.count()).select_from(sessions).where(*_conditions(wanted))
            ).one()

    def ids(self, wanted: SessionFilter) -> Sequence[int]:
        """Return the ids of all sessions that are wanted, oldest first."""
        with self._database.reading() as connection:
            return list(
                connection.scalars(sa.select(sessions.c.id).where(*_conditions(wanted)).order_by(sessions.c.id))
            )

    def entries(self, session_ids: Collection[int]) -> Sequence[SessionEntryRecord]:
        """Return the entries of those of some sessions that are stored, oldest first."""
        with self._database.reading() as connection:
            return _entries(connection, _ENTRIES.where(sessions.c.id.in_(session_ids)).order_by(sessions.c.id))

    def choices(self) -> LibraryChoicesRecord:
        """Return what the filters can be set to, in alphabetical order."""
        with self._database.reading() as connection:

            def read(column: sa.Column[str]) -> tuple[tuple[str, int], ...]:
                query = sa.select(column, sa.func.count()).group_by(column).order_by(sa.func.lower(column), column)
                return tuple((name, count) for name, count in connection.execute(query))

            return LibraryChoicesRecord(
                policies=read(sessions.c.policy), models=read(sessions.c.model), tags=read(session_tags.c.tag)
            )

    def add_tag(self, session_ids: Collection[int], tag: str) -> int:
        """Give sessions a tag and return how many did not have it; a tag keeps its first letter case."""
        tags = session_tags.c
        with self._database.writing() as connection:
            known = connection.scalar(sa.select(tags.tag).where(sa.func.lower(tags.tag) == sa.func.lower(tag)).limit(1))
            having = sa.select(tags.session_id).where(tags.session_id.in_(session_ids), tags.tag == known)
            missing = sorted(set(session_ids) - set(connection.scalars(having)))
            if missing:
                connection.execute(
                    sa.insert(session_tags), [{"session_id": key, "tag": known or tag} for key in missing]
                )
            return len(missing)

    def remove_tag(self, session_ids: Collection[int], tag: str) -> int:
        """Take a tag, in any letter case, from sessions and return how many had it."""
        of_these = session_tags.c.session_id.in_(session_ids), sa.func.lower(session_tags.c.tag) == sa.func.lower(tag)
        return self._run(sa.delete(session_tags).where(*of_these))

    def set_archived(self, session_ids: Collection[int], archived: bool) -> int:
        """Archive sessions, or take them back, and return for how many that changed anything."""
        of_these = sessions.c.id.in_(session_ids), _is_archived(not archived)
        stamp = sa.update(sessions).where(*of_these).values(archived_at=utc_now() if archived else None)
        return self._run(stamp)

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
            connection.execute(sa.delete(branches).where(branches.c.id == branch_id))
            return extent


def _fold_of(kept: sa.Subquery) -> sa.ColumnElement[int]:
    """One number for all sessions of a batch, and one for each other session."""
    return sa.func.coalesce(kept.c.batch_id, -kept.c.id)


def _fold(batch_id: int, name: str, entries: Sequence[SessionEntryRecord], sensitive: float) -> BatchFoldRecord:
    """Sessions of a batch counted together."""
    strongest = [entry.strongest for entry in entries if entry.strongest is not None]
    sums = ("step_count", "branch_count", "held_count", "missed_count", "weak_count")
    return BatchFoldRecord(
        id=batch_id,
        name=name,
        session_count=len(entries),
        sensitive_count=sum(value >= sensitive for value in strongest),
        uncertified_count=sum(entry.certificate.startswith("uncertified") for entry in entries),
        judged_count=sum(bool(entry.verdict_count) for entry in entries),
        hidden_count=sum(entry.verdict_count is None for entry in entries),
        strongest=max(strongest, default=None),
        updated_at=max(entry.updated_at for entry in entries),
        **{name: sum(getattr(entry, name) for entry in entries) for name in sums},
    )


def _entries(connection: sa.Connection, query: sa.Select[*tuple[Any, ...]]) -> list[SessionEntryRecord]:
    rows = [row._asdict() for row in connection.execute(query)]
    ids = [row["id"] for row in rows]
    tags: defaultdict[int, list[str]] = defaultdict(list)
    tagged = (
        sa.select(session_tags).where(session_tags.c.session_id.in_(ids)).order_by(sa.func.lower(session_tags.c.tag))
    )
    for key, tag in connection.execute(tagged):
        tags[key].append(tag)
    # Targets on which a verdict of at least one reviewer stands.
    targets = (
        sa.select(log_entries.c.session_id, *_TARGET).where(log_entries.c.session_id.in_(ids), _STANDING).distinct()
    )
    judged = Counter(row.session_id for row in connection.execute(targets))
    return [
        SessionEntryRecord(**row, tags=tuple(tags[row["id"]]), verdict_count=None if hidden else judged[row["id"]])
        for row in rows
        for hidden in [row.pop("hidden")]
    ]


def _extent(connection: sa.Connection, branch: BranchRecord) -> BranchExtentRecord:
    family = sa.select(branches).where(branches.c.session_id == branch.session_id).order_by(branches.c.id)
    within = {branch.id: branch.name}
    # A branch is younger than its parent, so one pass in the order of ids finds all descendants.
    for row in connection.execute(family):
        if row.parent_id in within:
            within[row.id] = row.name

    def count(column: Any) -> int:
        return connection.execute(sa.select(sa.func.count()).where(column.in_(within))).scalar_one()

    return BranchExtentRecord(
        branch_ids=tuple(within),
        names=tuple(within.values()),
        steps=count(steps.c.branch_id),
        verdicts=count(log_entries.c.branch_id),
    )
