"""Appending steps to branches: the store's only write of a decoding step, shared by all threads that append at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from operator import attrgetter
from threading import Condition, Lock
from time import perf_counter
from typing import Any

from sqlalchemy import Connection, Table, bindparam, func, insert, select, update

from db.database import Database
from db.errors import ConflictError
from db.mapping import families_to_json
from db.models import AuditSession, Branch, Candidate, Step
from db.records import CandidateRecord, StepRecord
from db.repositories.common import missing, require_calibration
from db.types import utc_now

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
