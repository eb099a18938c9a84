"""The steps of branches: a chain is read through its branch's ancestors, and steps are only ever added.

A step is stored by whichever thread writes at that moment, together with those of all others that append meanwhile.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from threading import Lock
from typing import Any

import sqlalchemy as sa

from coft_core.types import Bounds, Candidate, Diagnostics, FamilyStep, Step
from db.audits import branches, imported_sessions, require_calibration, sessions
from db.database import Database
from db.scope import in_every_project, present_project
from db.tables import METADATA, Rewritten, Store, columns, field_values, fields_in, missing
from db.types import (
    AnyText,
    ConflictError,
    ImportedSessionError,
    RealNumber,
    UnstorableValueError,
    UtcDateTime,
    utc_now,
)


def _families_to_json(families: tuple[FamilyStep, ...]) -> list[dict[str, Any]]:
    """Parts of a step by family; JSON has no infinities, so text stands for them."""
    return [{name: _finite(value) for name, value in field_values(part, FamilyStep).items()} for part in families]


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            raise UnstorableValueError("A number of a step is NaN (not a number); compute it again or leave it out.")
        return repr(value)
    return value


def _families_from_json(stored: list[dict[str, Any]]) -> tuple[FamilyStep, ...]:
    numbers = ("log_p_masked", "log_joint", "log_tau")
    return tuple(FamilyStep(**row | dict[str, Any]((name, float(row[name])) for name in numbers)) for row in stored)


def _bounds_from_json(stored: dict[str, Any]) -> Bounds:
    return Bounds(**stored | {"slack": tuple(stored["slack"])})


steps = sa.Table(
    "steps",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("branch_id", sa.Integer, sa.ForeignKey("branches.id", ondelete="CASCADE"), nullable=False),
    *columns(
        Step,
        {"StoredLogits": bytes},
        candidates=None,
        diagnostics=None,
        families=sa.Column("families", Rewritten(_families_to_json, _families_from_json, absent=())),
        certified_in=sa.Column("certified_in", AnyText, nullable=False, server_default="both"),
        bounds=sa.Column("bounds", Rewritten(asdict, _bounds_from_json)),
        # Compressed already, and far larger than the rest of the row: read only where it is asked for.
        logits=sa.LargeBinary(),
    ),
    *columns(Diagnostics),
    sa.Column("seconds", RealNumber),
    sa.Column("peak_bytes", sa.BigInteger),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.UniqueConstraint("branch_id", "index"),
    # A row holds its logits: what lists of sessions say of their tokens is counted without reading them.
    sa.Index(None, "branch_id", "log_ratio", "state", "certified"),
    sa.CheckConstraint('"index" >= 0', name="index_in_chain"),
)

candidates = sa.Table(
    "candidates",
    METADATA,
    sa.Column("step_id", sa.Integer, sa.ForeignKey("steps.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("rank", sa.Integer, primary_key=True),
    *columns(
        Candidate,
        refused_by=sa.Column("refused_by", Rewritten(list, tuple, absent=())),
        at_most=sa.Column("at_most", Rewritten(list, tuple, absent=())),
    ),
)


@dataclass(frozen=True, slots=True)
class BranchOutline:
    """A branch of a session's tree without its steps."""

    id: int
    parent_id: int | None
    fork_step: int | None
    token: str | None
    name: str
    length: int = 0
    finished: str | None = None


@dataclass(frozen=True, slots=True)
class StepSupport:
    """What a step says of how well its token is supported."""

    forced: bool
    log_p_masked: float
    log_p_fused: float


@dataclass(frozen=True, slots=True)
class SessionBeginning:
    """How a session began on its root branch."""

    session_id: int
    prompt: str
    alpha: float | None
    greedy: bool
    certificate: str
    group: str | None
    steps: tuple[StepSupport, ...]


def in_chain(connection: sa.Connection, branch_id: int) -> sa.ColumnElement[bool]:
    """Whether a step belongs to the chain of a branch.

    A fork takes its parent's chain up to the fork step, which may lie before the parent's own first step; the parent
    then contributes nothing and its own parent a shorter part.
    """
    session = sa.select(branches.c.session_id).where(branches.c.id == branch_id).scalar_subquery()
    family = {row.id: row for row in connection.execute(sa.select(branches).where(branches.c.session_id == session))}
    if branch_id not in family:
        raise missing(branches, branch_id)
    parts: list[sa.ColumnElement[bool]] = []
    branch: int | None = branch_id
    stop = math.inf
    while branch is not None:
        start = family[branch].fork_step or 0
        if start < stop:
            part = (steps.c.branch_id == branch) & (steps.c.index >= start)
            parts.append(part if stop == math.inf else part & (steps.c.index < stop))
            stop = start
        branch = family[branch].parent_id
    return sa.or_(*parts)


_NOT_PLAIN = ("candidates", "diagnostics", "logits")
_STEP = tuple(field.name for field in fields(Step) if field.name not in _NOT_PLAIN)
_DIAGNOSTICS = tuple(field.name for field in fields(Diagnostics))
_CANDIDATE = tuple(field.name for field in fields(Candidate))
_step_values, _diagnostic_values, _candidate_values = (
    attrgetter(*_STEP), attrgetter(*_DIAGNOSTICS), attrgetter(*_CANDIDATE),
)  # fmt: skip


def _step_row(branch_id: int, step: Step, logits: bytes | None) -> dict[str, Any]:
    return (
        dict(zip(_STEP, _step_values(step), strict=True))
        | dict(zip(_DIAGNOSTICS, _diagnostic_values(step.diagnostics), strict=True))
        | {"branch_id": branch_id, "logits": logits}
    )


def _candidate_rows(step: Step) -> list[dict[str, Any]]:
    return [
        {"rank": rank, **dict(zip(_CANDIDATE, _candidate_values(candidate), strict=True))}
        for rank, candidate in enumerate(step.candidates)
    ]


def insert_past_step(
    connection: sa.Connection, branch_id: int, step: Step, logits: bytes | None, stored_at: datetime
) -> None:
    """Store a step that another store had, with the moment at which it was stored there."""
    row = {**_step_row(branch_id, step, logits), "created_at": stored_at}
    key: Any = connection.execute(sa.insert(steps), row).inserted_primary_key
    if rows := [{"step_id": key[0], **row} for row in _candidate_rows(step)]:
        connection.execute(sa.insert(candidates), rows)


def chain_length(connection: sa.Connection, branch_id: int, fork_step: int | None) -> int:
    """The number of steps of a branch's chain, which is the index of its next step."""
    last = connection.scalar(sa.select(sa.func.max(steps.c.index)).where(steps.c.branch_id == branch_id))
    return (fork_step or 0) if last is None else last + 1


# Built once: an append is a matter of milliseconds.
_PLACE = (
    sa.select(
        branches.c.session_id,
        branches.c.fork_step,
        sessions.c.calibration_id,
        sessions.c.calibration_label,
        sa.select(sa.func.max(steps.c.index)).where(steps.c.branch_id == branches.c.id).scalar_subquery().label("last"),
        sa.select(imported_sessions.c.session_id)
        .where(imported_sessions.c.session_id == branches.c.session_id)
        .scalar_subquery()
        .label("imported"),
    )
    .join_from(branches, sessions, branches.c.session_id == sessions.c.id)
    .where(branches.c.id == sa.bindparam("own"))
)
_BRANCH_SEEN = sa.select(branches.c.id).where(branches.c.id == sa.bindparam("own"))
_INSERT_STEP, _INSERT_CANDIDATES = sa.insert(steps), sa.insert(candidates)
_TOUCH = sa.update(sessions).where(sessions.c.id == sa.bindparam("own")).values(updated_at=sa.bindparam("now"))


@dataclass(eq=False)
class _Append:
    """A step that one thread appends, as rows, and what became of it."""

    branch_id: int
    step: dict[str, Any]
    candidates: list[dict[str, Any]]
    done: bool = False
    error: Exception | None = None


class StepWriter:
    """Stores the steps of many branches; those that are appended while one is written share the next transaction.

    A durable write waits for the disk, and SQLite has one writer at a time: otherwise each thread would wait for the
    disk of all others.
    """

    def __init__(self, database: Database) -> None:
        """Work on an open store; nobody waits."""
        self._database, self._writing = database, Lock()
        self._waiting: list[_Append] = []

    def append(self, branch_id: int, step: Step, seconds: float | None, peak_bytes: int | None) -> None:
        """Store the next step of a branch; see :meth:`BranchChains.append_step`."""
        logits = None if step.logits is None else step.logits.to_bytes()
        cost = {"seconds": seconds, "peak_bytes": peak_bytes}
        if isinstance(present_project(), int):
            # Whoever writes first writes for all, whatever their projects; each is seen to be its writer's own before.
            with self._database.reading() as connection:
                if connection.execute(_BRANCH_SEEN, {"own": branch_id}).first() is None:
                    raise missing(branches, branch_id)
        request = _Append(branch_id, {**_step_row(branch_id, step, logits), **cost}, _candidate_rows(step))
        self._waiting.append(request)
        try:
            with self._writing, in_every_project():
                if not request.done:
                    self._write([one for one in self._waiting if not one.done])
        finally:
            self._waiting.remove(request)
        if request.error is not None:
            raise request.error

    def _write(self, taken: Sequence[_Append]) -> None:
        begun = False
        try:
            with self._database.writing() as connection:
                begun = True
                _insert(connection, taken)
        except Exception as error:
            if begun and len(taken) > 1:
                # The error is one step's: only those fail that fail by themselves.
                for request in taken:
                    self._write((request,))
                return
            for request in taken:
                request.done, request.error = True, error
            return
        for request in taken:
            request.done = True


def _insert(connection: sa.Connection, taken: Sequence[_Append]) -> None:
    """Store the next steps of some branches, in a transaction that is rolled back on an error."""
    now = utc_now()
    listed: list[dict[str, Any]] = []
    changed = set[int]()
    for request in taken:
        changed.add(_session_of_next(connection, request))
        key: Any = connection.execute(_INSERT_STEP, {**request.step, "created_at": now}).inserted_primary_key
        listed += [{"step_id": key[0], **row} for row in request.candidates]
    if listed:
        connection.execute(_INSERT_CANDIDATES, listed)
    connection.execute(_TOUCH, [{"own": session, "now": now} for session in changed])


def _session_of_next(connection: sa.Connection, request: _Append) -> int:
    """The session of a branch whose next step is to be stored."""
    place = connection.execute(_PLACE, {"own": request.branch_id}).one_or_none()
    if place is None:
        raise missing(branches, request.branch_id)
    if place.imported is not None:
        raise ImportedSessionError(place.session_id)
    require_calibration(place.calibration_id, place.calibration_label)
    index, expected = request.step["index"], (place.fork_step or 0) if place.last is None else place.last + 1
    if index != expected:
        raise ConflictError(
            f"Step {index} cannot be stored: the next step of branch {request.branch_id} has the index {expected}."
        )
    return int(place.session_id)


class BranchChains(Store):
    """Reads and extends the chains of branches; part of :class:`db.sessions.SessionsRepository`."""

    _steps: StepWriter

    def append_step(
        self, branch_id: int, step: Step, seconds: float | None = None, peak_bytes: int | None = None
    ) -> None:
        """Store the next step of a branch with its candidates, and its logits if it has them; durable on return."""
        self._steps.append(branch_id, step, seconds, peak_bytes)

    def chain(self, branch_id: int, first: int = 0) -> tuple[Step, ...]:
        """Return the chain of a branch from a step on, its ancestors' part first, with candidates, without logits."""
        with self._database.reading() as connection:
            condition = in_chain(connection, branch_id) & (steps.c.index >= first)
            rows: defaultdict[int, list[Candidate]] = defaultdict(list)
            query = (
                sa.select(candidates.c.step_id, *fields_in(Candidate, candidates))
                .join(steps, steps.c.id == candidates.c.step_id)
                .where(condition)
                .order_by(candidates.c.step_id, candidates.c.rank)
            )
            for key, *values in connection.execute(query):
                rows[key].append(Candidate(*values))
            names = (*_STEP, *_DIAGNOSTICS)
            chain = sa.select(steps.c.id, *(steps.c[name] for name in names)).where(condition).order_by(steps.c.index)
            split = len(_STEP)
            return tuple(
                Step(
                    **dict(zip(_STEP, values[:split], strict=True)),
                    diagnostics=Diagnostics(*values[split:]),
                    candidates=tuple(rows[key]),
                )
                for key, *values in connection.execute(chain)
            )

    def logits(self, branch_id: int, first: int = 0) -> Mapping[int, bytes]:
        """Return the logits of a chain from a step on as they are stored, by the step's index; they are large."""
        with self._database.reading() as connection:
            query = sa.select(steps.c.index, steps.c.logits).where(
                in_chain(connection, branch_id), steps.c.index >= first, steps.c.logits.is_not(None)
            )
            return dict(connection.execute(query).tuples().all())

    def times(self, session_id: int) -> Mapping[tuple[int, int], datetime]:
        """Return when the steps of a session were stored, by the branch that made them and their index."""
        query = (
            sa.select(steps.c.branch_id, steps.c.index, steps.c.created_at)
            .join(branches, branches.c.id == steps.c.branch_id)
            .where(branches.c.session_id == session_id)
        )
        with self._database.reading() as connection:
            return {(branch_id, index): stored_at for branch_id, index, stored_at in connection.execute(query)}

    def outlines(self, session_id: int) -> tuple[BranchOutline, ...]:
        """Return the tree of a session, oldest branch first, in one query and without any chain.

        A branch may carry any name, so that the token it departs with is read from its first step.
        """
        columns = (branches.c.id, branches.c.parent_id, branches.c.fork_step, branches.c.name, branches.c.finished)
        departing = sa.case((steps.c.index == branches.c.fork_step, steps.c.token))
        query = (
            sa.select(*columns, sa.func.max(departing).label("token"), sa.func.max(steps.c.index).label("last"))
            .outerjoin(steps, steps.c.branch_id == branches.c.id)
            .where(branches.c.session_id == session_id)
            .group_by(*columns)
            .order_by(branches.c.id)
        )
        with self._database.reading() as connection:
            return tuple(
                BranchOutline(
                    id=row.id,
                    parent_id=row.parent_id,
                    fork_step=row.fork_step,
                    token=None if row.parent_id is None else row.token or row.name,
                    name=row.name,
                    length=(row.fork_step or 0) if row.last is None else row.last + 1,
                    finished=row.finished,
                )
                for row in connection.execute(query)
            )

    def step_seconds(self, model: str, newest: int = 200) -> Sequence[float]:
        """Return what the newest measured steps on a model took, without those that read a prompt."""
        query = (
            sa.select(steps.c.seconds)
            .join(branches, branches.c.id == steps.c.branch_id)
            .join(sessions, sessions.c.id == branches.c.session_id)
            .where(sessions.c.model == model, steps.c.seconds.is_not(None), steps.c.index > 0)
            .order_by(steps.c.id.desc())
            .limit(newest)
        )
        return self._scalars(query)

    def users(self, calibration_id: int) -> Sequence[int]:
        """Return the ids of the sessions that use a calibration, oldest first, but for those of other servers."""
        query = (
            sa.select(sessions.c.id)
            .where(sessions.c.calibration_id == calibration_id)
            .where(sessions.c.id.not_in(sa.select(imported_sessions.c.session_id)))
            .order_by(sessions.c.id)
        )
        return self._scalars(query)

    def beginnings(
        self, calibration_id: int, first: int, only: Collection[int] | None = None
    ) -> Sequence[SessionBeginning]:
        """Return the first steps, at most so many, of each root branch that uses a calibration, oldest session first.

        Sessions without a step are left out, and those of other servers. Pages ask for this often, so that only a few
        columns are read.
        """
        wanted = [] if only is None else [sessions.c.id.in_(only)]
        group = sessions.c.policy_settings["settings"]["group"].as_string()
        columns = (sessions.c.id, sessions.c.prompt, sessions.c.alpha, sessions.c.greedy, sessions.c.certificate, group)
        query = (
            sa.select(*columns, *fields_in(StepSupport, steps))
            .join(branches, branches.c.session_id == sessions.c.id)
            .join(steps, steps.c.branch_id == branches.c.id)
            .where(sessions.c.calibration_id == calibration_id, branches.c.parent_id.is_(None), steps.c.index < first)
            .where(sessions.c.id.not_in(sa.select(imported_sessions.c.session_id)), *wanted)
            .order_by(sessions.c.id, steps.c.index)
        )
        names = ("session_id", "prompt", "alpha", "greedy", "certificate", "group")
        with self._database.reading() as connection:
            return [
                SessionBeginning(
                    **dict(zip(names, told, strict=True)), steps=tuple(StepSupport(*row[len(names) :]) for row in rows)
                )
                for told, rows in groupby(connection.execute(query), lambda row: row[: len(names)])
            ]
