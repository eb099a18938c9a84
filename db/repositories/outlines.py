"""What each branch of a session looks like from outside: its length and the token that it departs with."""

from __future__ import annotations

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from db.models import Branch, Step
from db.records import BranchOutlineRecord


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
