"""Branches and their steps: how a chain is put together from a branch and its ancestors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, func, or_, select
from sqlalchemy.orm import Session

from db.errors import ConflictError
from db.mapping import families_from_json, to_record
from db.models import AuditSession, Branch, Candidate, Step
from db.records import BranchRecord, CandidateRecord, StepRecord
from db.repositories.common import find, missing

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
        """The segment as a condition on :class:`db.models.Step`."""
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
