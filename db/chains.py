"""Appending steps to branches: the store's only write of a decoding step, shared by all threads that append at once."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from threading import Condition, Lock
from time import perf_counter
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, bindparam, case, func, insert, or_, select, update
from sqlalchemy.orm import Session

from db.database import Database
from db.records import BranchOutlineRecord, BranchRecord, CandidateRecord, SessionBeginning, StepRecord, StepSupport
from db.rows import families_from_json, families_to_json, find, missing, require_calibration, to_record
from db.tables import AuditSession, Branch, Candidate, Step
from db.types import ConflictError, utc_now

_BRANCH = select(Branch.__table__).where(Branch.__table__.c.id == bindparam("own"))
_ACTIVE_BRANCH = (
    select(Branch.__table__)
    .join(AuditSession.__table__, AuditSession.__table__.c.active_branch_id == Branch.__table__.c.id)
    .where(AuditSession.__table__.c.id == bindparam("own"))
)


@dataclass(frozen=True, slots=True)
class Segment:
    """The steps that one branch contributes to a chain: ``start <= index < stop`` (no end if None)."""

    branch_id: int
    start: int
    stop: int | None

    @property
    def condition(self) -> ColumnElement[bool]:
        """The segment as a condition on :class:`db.tables.Step`."""
        inside = (Step.branch_id == self.branch_id) & (Step.index >= self.start)
        return inside if self.stop is None else inside & (Step.index < self.stop)


def segments(session: Session, branch_id: int) -> list[Segment]:
    """Return what each branch contributes to a branch's chain, the branch itself first.

    A fork takes its parent's chain up to the fork step, which may lie before the parent's own
    first step; the parent then contributes nothing and its own parent a shorter part.

    Raises:
        NotFoundError: There is no such branch.
    """
    leaf = find(session, Branch, branch_id)
    family = {row.id: row for row in session.scalars(select(Branch).filter_by(session_id=leaf.session_id))}
    found: list[Segment] = []
    branch: Branch | None = leaf
    stop: int | None = None
    while branch is not None:
        start = branch.fork_step or 0
        if stop is None or start < stop:
            found.append(Segment(branch.id, start, stop))
            stop = start
        branch = None if branch.parent_id is None else family[branch.parent_id]
    return found


def load_chain(session: Session, branch_id: int, with_logits: bool = False, first: int = 0) -> list[StepRecord]:
    """Return a branch's chain in the order of its steps, candidates included, in four queries at most.

    Args:
        session: The session of the database.
        branch_id: The branch.
        with_logits: Whether the steps' logits are read too; they are much larger than all the rest.
        first: Index of the first step that is asked for.

    Raises:
        NotFoundError: There is no such branch.
    """
    condition = or_(*(segment.condition for segment in segments(session, branch_id))) & (Step.index >= first)
    steps = session.execute(select(*_columns(with_logits)).where(condition).order_by(Step.index)).all()
    if not steps:
        return []
    candidates: defaultdict[int, list[CandidateRecord]] = defaultdict(list)
    query = (
        select(Candidate.__table__)
        .join(Step, Step.id == Candidate.step_id)
        .where(condition)
        .order_by(Candidate.step_id, Candidate.rank)
    )
    for row in session.execute(query):
        candidates[row.step_id].append(to_record(CandidateRecord, row, refused_by=tuple(row.refused_by or ())))
    return [step_of(row, candidates[row.id], row.logits if with_logits else None) for row in steps]


def branch_row(connection: Connection, branch_id: int) -> BranchRecord:
    """Return a branch.

    Raises:
        NotFoundError: There is none with this id.
    """
    row = connection.execute(_BRANCH, {"own": branch_id}).one_or_none()
    if row is None:
        raise missing(Branch, branch_id)
    return to_record(BranchRecord, row)


def active_branch_row(connection: Connection, session_id: int) -> BranchRecord:
    """Return the active branch of a session.

    Raises:
        NotFoundError: There is no such session.
    """
    row = connection.execute(_ACTIVE_BRANCH, {"own": session_id}).one_or_none()
    if row is None:
        raise missing(AuditSession, session_id)
    return to_record(BranchRecord, row)


def own_branch(session: Session, session_id: int, branch_id: int) -> Branch:
    """Load a branch of a session.

    Raises:
        NotFoundError: There is no such branch.
        ConflictError: It belongs to another session.
    """
    branch = find(session, Branch, branch_id)
    if branch.session_id != session_id:
        raise ConflictError(f"Branch {branch_id} is not a branch of audit session {session_id}.")
    return branch


def chain_length(session: Session, branch: Branch) -> int:
    """Return the number of steps of a branch's chain, which is the index of its next step."""
    last = session.scalar(select(func.max(Step.index)).where(Step.branch_id == branch.id))
    return (branch.fork_step or 0) if last is None else last + 1


def step_of(row: Any, candidates: Sequence[CandidateRecord] = (), logits: bytes | None = None) -> StepRecord:
    """Build a step's record from a row of a query; logits are given, never read off the row."""
    families = families_from_json(row.families)
    return to_record(StepRecord, row, candidates=tuple(candidates), families=families, logits=logits)


def _columns(with_logits: bool) -> list[Any]:
    names = [column.name for column in Step.__table__.columns if with_logits or column.name != "logits"]
    return [getattr(Step, name) for name in names]


LONGEST_WAIT = 0.05
"""Seconds for which a step waits for others at most, however long a write took: another process may have held it up."""

_SET_BY_THE_STORE = ("candidates", "families", "id", "branch_id", "created_at")
_STEP_COLUMNS = tuple(item.name for item in fields(StepRecord) if item.name not in _SET_BY_THE_STORE)
_CANDIDATE_COLUMNS = tuple(item.name for item in fields(CandidateRecord) if item.name != "refused_by")
_step_values, _candidate_values = attrgetter(*_STEP_COLUMNS), attrgetter(*_CANDIDATE_COLUMNS)


def _table(kind: Any) -> Table:
    found: Table = kind.__table__
    return found


_branches, _steps, _sessions = _table(Branch), _table(Step), _table(AuditSession)
# Statements on tables, built once: a unit of work would look at its objects again and again, at every step.
_PLACE = (
    select(
        _branches.c.session_id,
        _branches.c.fork_step,
        _sessions.c.calibration_id,
        _sessions.c.calibration_label,
        select(func.max(_steps.c.index)).where(_steps.c.branch_id == _branches.c.id).scalar_subquery().label("last"),
    )
    .join_from(_branches, _sessions, _branches.c.session_id == _sessions.c.id)
    .where(_branches.c.id == bindparam("own"))
)
_INSERT_STEP = insert(_steps)
_INSERT_CANDIDATES = insert(_table(Candidate))
_TOUCH = update(_sessions).where(_sessions.c.id == bindparam("own")).values(updated_at=bindparam("now"))


@dataclass(eq=False)
class _Request:
    """A step that one thread appends, and what became of it."""

    branch_id: int
    step: StepRecord
    stored: StepRecord | None = None
    error: Exception | None = None

    @property
    def done(self) -> bool:
        return self.stored is not None or self.error is not None


class StepWriter:
    """Stores the steps of many branches, those that are appended at the same time in one transaction.

    A durable write waits for the disk, and SQLite has one writer at a time: of threads that step at once each would
    wait for the disk of all others. Whoever comes first writes; those who come meanwhile are written together by the
    next. Branches that were written together come together again, so that the first of them waits for the others, at
    most as long as that write took: whoever misses a write waits for the whole of it.

    An error is nobody's yet: each step is then written alone, and only those fail that fail by themselves.
    """

    def __init__(self, database: Database) -> None:
        """Work on an open store; nobody waits."""
        self._database = database
        lock = Lock()
        self._changed, self._arrived = Condition(lock), Condition(lock)
        self._newest: frozenset[int] = frozenset()
        self._seconds = 0.0
        self._waiting: deque[_Request] = deque()
        self._led = False

    @property
    def waiting(self) -> int:
        """Steps that no transaction has taken yet."""
        return len(self._waiting)

    def append(self, branch_id: int, step: StepRecord) -> StepRecord:
        """Store the next step of a branch; durable on return.

        Args:
            branch_id: The branch.
            step: The step; its ``id``, ``branch_id`` and ``created_at`` are ignored.

        Returns:
            The step with these three filled in.

        Raises:
            NotFoundError: There is no such branch.
            CalibrationDeletedError: The session's calibration is no longer stored.
            ConflictError: The step is not the next one.
            UnstorableValueError: A number is NaN.
            StoreError: The database refuses.
        """
        request = _Request(branch_id, step)
        try:
            if self._leads(request):
                self._lead()
        except BaseException:
            self._withdraw(request)
            raise
        if request.stored is None:
            raise request.error or RuntimeError("A step was neither stored nor refused.")
        return request.stored

    def _leads(self, request: _Request) -> bool:
        """Wait until the step is stored or nobody writes, which is then for this thread to do."""
        with self._changed:
            self._waiting.append(request)
            self._arrived.notify()
            self._changed.wait_for(lambda: request.done or not self._led)
            if request.done:
                return False
            self._led = True
            return True

    def _lead(self) -> None:
        """Write all that wait, the own step among them."""
        taken: tuple[_Request, ...] = ()
        seconds = 0.0
        try:
            with self._changed:
                self._arrived.wait_for(self._gathered, min(self._seconds, LONGEST_WAIT))
                taken = tuple(self._waiting)
                self._waiting.clear()
            began = perf_counter()
            self._write(taken)
            seconds = perf_counter() - began
        finally:
            with self._changed:
                # Whoever was interrupted here has left others' steps unwritten; they keep their places.
                self._waiting.extendleft(request for request in reversed(taken) if not request.done)
                self._newest, self._seconds = frozenset(request.branch_id for request in taken), seconds
                self._led = False
                self._changed.notify_all()

    def _gathered(self) -> bool:
        """Whether all are here with whom the first one was written the last time."""
        waiting = {request.branch_id for request in self._waiting}
        return not self._waiting or self._waiting[0].branch_id not in self._newest or self._newest <= waiting

    def _write(self, taken: Sequence[_Request]) -> None:
        begun = False
        try:
            with self._database.statements("write") as connection:
                begun = True
                stored = insert_steps(connection, [(request.branch_id, request.step) for request in taken])
        except Exception as error:
            if begun and len(taken) > 1:
                for request in taken:
                    self._write((request,))
                return
            # Where no transaction could begin it is everybody's, and none would fare better alone.
            for request in taken:
                request.error = error
            return
        for request, step in zip(taken, stored, strict=True):
            request.stored = step

    def _withdraw(self, request: _Request) -> None:
        with self._changed:
            if request in self._waiting:
                self._waiting.remove(request)
            self._changed.notify_all()


def insert_steps(connection: Connection, steps: Sequence[tuple[int, StepRecord]]) -> list[StepRecord]:
    """Store the next steps of some branches with their candidates.

    Args:
        connection: A connection in a transaction, which is to be rolled back on an error.
        steps: Branch and step, in the order in which they are stored.

    Returns:
        The steps with their id, branch and time.

    Raises:
        NotFoundError: There is no such branch.
        CalibrationDeletedError: The session's calibration is no longer stored.
        ConflictError: A step is not the next one.
        UnstorableValueError: A number of a family is NaN.
    """
    now = utc_now()
    stored: list[StepRecord] = []
    candidates: list[dict[str, Any]] = []
    sessions: dict[int, None] = {}
    for branch_id, step in steps:
        sessions[_session_of_next(connection, branch_id, step.index)] = None
        key = _insert_step(connection, branch_id, step, now)
        candidates += _candidate_rows(key, step.candidates)
        stored.append(replace(step, id=key, branch_id=branch_id, created_at=now))
    if candidates:
        connection.execute(_INSERT_CANDIDATES, candidates)
    if sessions:
        connection.execute(_TOUCH, [{"own": key, "now": now} for key in sessions])
    return stored


def _session_of_next(connection: Connection, branch_id: int, index: int) -> int:
    """The session of a branch whose next step has this index."""
    place = connection.execute(_PLACE, {"own": branch_id}).one_or_none()
    if place is None:
        raise missing(Branch, branch_id)
    require_calibration(place.calibration_id, place.calibration_label)
    expected = (place.fork_step or 0) if place.last is None else place.last + 1
    if index != expected:
        raise ConflictError(
            f"Step {index} cannot be stored: the next step of branch {branch_id} has the index {expected}."
        )
    return int(place.session_id)


def _insert_step(connection: Connection, branch_id: int, step: StepRecord, now: datetime) -> int:
    values = dict(zip(_STEP_COLUMNS, _step_values(step), strict=True))
    values |= {"branch_id": branch_id, "families": families_to_json(step.families), "created_at": now}
    key: Any = connection.execute(_INSERT_STEP, values).inserted_primary_key
    return int(key[0])


def _candidate_rows(step_id: int, candidates: Sequence[CandidateRecord]) -> list[dict[str, Any]]:
    return [
        {
            "step_id": step_id,
            "rank": rank,
            **dict(zip(_CANDIDATE_COLUMNS, _candidate_values(candidate), strict=True)),
            "refused_by": list(candidate.refused_by) or None,
        }
        for rank, candidate in enumerate(candidates)
    ]


def load_outlines(session: Session, session_id: int) -> dict[int, BranchOutlineRecord]:
    """Return the outline of each branch of a session by the branch's id, in one query and without any chain.

    A branch may carry any name, so that the token it departs with is read from its first step.
    """
    departing = case((Step.index == Branch.fork_step, Step.token))
    query = (
        select(Branch.id, Branch.fork_step, func.max(Step.index).label("last"), func.max(departing).label("token"))
        .outerjoin(Step, Step.branch_id == Branch.id)
        .where(Branch.session_id == session_id)
        .group_by(Branch.id, Branch.fork_step)
    )
    return {
        row.id: BranchOutlineRecord(
            length=(row.fork_step or 0) if row.last is None else row.last + 1,
            token=row.token,
        )
        for row in session.execute(query)
    }


def load_beginnings(session: Session, calibration_id: int, steps: int) -> list[SessionBeginning]:
    """Return the first steps of the root branches of sessions that use a calibration, oldest session first.

    Sessions without a step are left out. Pages ask for this often, so that only a few columns are read.
    """
    group = AuditSession.policy_settings["settings"]["group"].as_string()
    query = (
        select(
            AuditSession.id.label("session_id"),
            AuditSession.prompt,
            AuditSession.alpha,
            AuditSession.greedy,
            AuditSession.certificate,
            group.label("group"),
            Step.forced,
            Step.log_p_masked,
            Step.log_p_fused,
        )
        .join(Branch, Branch.session_id == AuditSession.id)
        .join(Step, Step.branch_id == Branch.id)
        .where(AuditSession.calibration_id == calibration_id, Branch.parent_id.is_(None), Step.index < steps)
        .order_by(AuditSession.id, Step.index)
    )
    found = []
    for number, rows in groupby(session.execute(query), lambda row: row.session_id):
        own = list(rows)
        first = own[0]
        found.append(
            SessionBeginning(
                session_id=number,
                prompt=first.prompt,
                alpha=first.alpha,
                greedy=first.greedy,
                certificate=first.certificate,
                group=first.group,
                steps=tuple(StepSupport(row.forced, row.log_p_masked, row.log_p_fused) for row in own),
            )
        )
    return found
