"""Steps and forks of stored branches: taken on the live rollout, and durable when they return."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from app.services.errors import in_one_sentence
from app.services.forced_tokens import forced_token
from app.services.mapping import step_record
from app.services.memory_budget import Waiting
from app.services.rollouts import Rollouts
from coft_core.decode import Rollout, fork_path
from coft_core.footprint import StepCost, measured_step
from coft_core.types import Step
from db.records import BranchRecord
from db.repositories import SessionsRepository


class Stepping:
    """Writes what live rollouts do into the store; the caller holds the session still."""

    def __init__(self, sessions: SessionsRepository, rollouts: Rollouts) -> None:
        """Wire to the store and to the live rollouts."""
        self._sessions = sessions
        self._rollouts = rollouts
        self._going: dict[int, BranchRecord] = {}

    def going(self, session_id: int, branch_id: int | None) -> BranchRecord | None:
        """A session's branch whose newest step was stored here and did not end it; None where the store must be asked.

        What else happens to it in the store, deletion above all, is found out when its next step is to be stored.
        """
        branch = None if branch_id is None else self._going.get(branch_id)
        return branch if branch is not None and branch.session_id == session_id else None

    def forget(self, branch_ids: Collection[int]) -> None:
        """Ask the store for these branches again; they are gone or have changed."""
        for branch_id in branch_ids:
            self._going.pop(branch_id, None)

    def step(self, branch: BranchRecord, waiting: Waiting | None = None) -> Step | None:
        """Generate one token; None when the chain is finished.

        Args:
            branch: The branch.
            waiting: Told while the step waits for memory.

        Raises:
            ServiceError: The session cannot be continued, or the program failed at this step; the chain is as it was.
            DeviceMemoryError: The device's memory ran out; the chain is as it was.
        """
        with in_one_sentence():
            return self._rollouts.run(branch, partial(self._advance, branch), waiting=waiting)

    def fork(self, parent: BranchRecord, index: int, token: int | str) -> BranchRecord:
        """The branch that departs from a chain at a step (0-based) with another token, with that step stored.

        Raises:
            ServiceError: The session cannot be continued, or the program failed; there is no new branch.
            InvalidInputError: The step or the token does not exist.
            DeviceMemoryError: The device's memory ran out; there is no new branch.
        """
        with in_one_sentence():
            return self._rollouts.run(parent, partial(self._fork, parent, index, token), copies=1)

    def _fork(self, parent: BranchRecord, index: int, token: int | str, rollout: Rollout) -> BranchRecord:
        model = rollout.plan.model
        token_id = forced_token(model, token)
        path = fork_path(parent.path, index, token_id)
        existing = next((b for b in self._sessions.branches(parent.session_id) if b.path == path), None)
        # A process killed between the two writes leaves a branch without its forced step; it is completed here.
        if existing is None or len(self._sessions.chain(existing.id)) <= index:
            forked = rollout.fork(index, token_id)
            existing = existing or self._sessions.add_branch(
                parent.session_id, parent.id, index, path, name=model.token_text(token_id)
            )
            self._keep(existing, forked)
            self._rollouts.keep(existing.id, forked)
        return existing

    def _advance(self, branch: BranchRecord, rollout: Rollout) -> Step | None:
        self._going.pop(branch.id, None)
        if rollout.finished:
            self._sessions.set_finished(branch.id, rollout.finished)
            return None
        # Each forward takes its own turn, together with those of whoever else steps at this moment.
        step, cost = measured_step(rollout, self._rollouts.peaks)
        self._keep(branch, rollout, cost)
        return step

    def _keep(self, branch: BranchRecord, rollout: Rollout, cost: StepCost | None = None) -> None:
        """Store a rollout's newest step on its branch, with what it took."""
        self._sessions.append_step(branch.id, step_record(rollout.steps[-1], cost))
        rollout.release_logits()
        if rollout.finished:
            self._sessions.set_finished(branch.id, rollout.finished)
        else:
            self._going[branch.id] = branch
