"""What a verdict is about, as the log names it."""

from __future__ import annotations

from app.services.errors import ServiceError
from app.services.views.verdicts import Target, VerdictRequest
from db.records import BranchRecord
from db.repositories import SessionsRepository


def target_of(sessions: SessionsRepository, request: VerdictRequest) -> Target:
    """The target as the log names it: on the branch that made its last step, whichever branch is looked at.

    Args:
        sessions: The store of sessions.
        request: What the verdict is said on.

    Raises:
        ServiceError: The branch is another session's, or the steps are not in its chain.
    """
    first, last = request.first_step, request.last_step
    if request.branch_id is None:
        if first is not None or last is not None:
            raise ServiceError("A verdict on steps needs the branch that they are on; name it.")
        return Target()
    branches = {branch.id: branch for branch in sessions.branches(request.session_id)}
    branch = branches.get(request.branch_id)
    if branch is None:
        raise ServiceError(f"Branch {request.branch_id} does not belong to session {request.session_id}.")
    if first is None:
        if last is not None:
            raise ServiceError("A verdict on a span needs its first step; name both ends.")
        return Target(branch.path, branch.id)
    last = first if last is None else last
    length = len(sessions.chain(branch.id))
    if not 0 <= first <= last < length:
        raise ServiceError(
            f"Steps {first + 1} to {last + 1} are not in the chain of branch {branch.path}, which has {length} "
            "steps; choose a first step that is not after the last."
        )
    owner = _owner(branches, branch, last)
    return Target(owner.path, owner.id, first, last)


def _owner(branches: dict[int, BranchRecord], branch: BranchRecord, step: int) -> BranchRecord:
    """The branch that made a step of a branch's chain."""
    while branch.parent_id is not None and step < (branch.fork_step or 0):
        branch = branches[branch.parent_id]
    return branch
