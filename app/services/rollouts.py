"""Live rollouts of stored branches: kept between requests, rebuilt from their stored tokens when they are not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from app.services.detection import Detectors
from app.services.errors import ServiceError
from app.services.known_policies import certifies
from app.services.mapping import settings_from_json, span_from, step_from
from app.services.model_host import ModelHost
from app.services.planning import Planner, without_calibration
from app.services.rollout_pool import RolloutPool
from coft_core.decode import Plan, Rollout
from coft_core.types import Step
from db.records import BranchRecord, SessionRecord
from db.repositories import SessionsRepository

CHANGED_MODEL = (
    "This session was made with other weights, another tokenizer or another detector than are loaded now, so it "
    "cannot be continued or measured; start a new one."
)


class Rollouts:
    """Gives the rollout of a stored branch, and the plan of a stored session on the model as it was."""

    def __init__(
        self,
        sessions: SessionsRepository,
        planner: Planner,
        host: ModelHost,
        detectors: Detectors,
        capacity: int,
        budget_mb: int | None = None,
    ) -> None:
        """Wire to the store and the models.

        Args:
            sessions: The store of sessions.
            planner: Turns stored settings into a plan again.
            host: Owner of the models.
            detectors: Find sensitive spans; their version must be that of the session.
            capacity: Branches whose key-value memory is kept between requests.
            budget_mb: Megabytes of key-value memory of all branches together; None sets no limit.
        """
        self._sessions = sessions
        self._planner = planner
        self._host = host
        self._detectors = detectors
        self._pool = RolloutPool(capacity, budget_mb)

    @contextmanager
    def of(self, record: SessionRecord, branch: BranchRecord, copies: int = 0) -> Iterator[Rollout]:
        """The branch's rollout; after an error it is closed, since it may be ahead of the store.

        Args:
            record: The session.
            branch: The branch.
            copies: Forks that will be made of it; memory is set aside for them too.

        Raises:
            ServiceError: The session cannot be continued.
        """
        rollout = self._pool.take(branch.id) or self._rebuilt(record, branch)
        try:
            with self._pool.room_for(rollout.memory_size_next * (1 + copies)):
                yield rollout
        except BaseException:
            rollout.close()
            raise
        self._pool.put(branch.id, rollout)

    def keep(self, branch_id: int, rollout: Rollout) -> None:
        """Keep the rollout of a new branch."""
        self._pool.put(branch_id, rollout)

    def drop(self, branch_ids: set[int]) -> None:
        """Close the rollouts of branches that are gone."""
        self._pool.drop(branch_ids)

    def steps(self, branch_id: int) -> tuple[Step, ...]:
        """The chain of a branch, from memory where it is live."""
        live = self._pool.steps(branch_id)
        return live if live is not None else tuple(step_from(step) for step in self._sessions.chain(branch_id))

    def plan(self, record: SessionRecord, thresholds: bool = True) -> Plan:
        """What a session was planned as, on the model and with the detector that it was made with.

        Args:
            record: The session.
            thresholds: Whether its calibration is needed; without, a deleted one does not matter.

        Raises:
            ServiceError: Model, detector, word list or calibration are no longer what they were.
        """
        settings = settings_from_json(record.policy_settings["settings"])
        gone = settings.calibration_id is not None and record.calibration_id is None and certifies(settings)
        if gone and thresholds:
            raise ServiceError(
                f"The calibration “{record.calibration_label}” has been deleted, so this session cannot be "
                "continued; start a new one with another calibration."
            )
        if self._detectors.list_is_gone(settings):
            raise ServiceError(
                f"The word list “{record.policy_settings['user_list']}” has been deleted or replaced, so this session "
                "cannot be continued; start a new one."
            )
        model = self._host.get(settings.model)
        stored = record.fingerprint
        now = (model.weights_digest, model.tokenizer_digest, self._detectors.choose(settings).version)
        if (stored["weights"], stored["tokenizer"], stored["detector"]) != now:
            raise ServiceError(CHANGED_MODEL)
        used = settings if thresholds else without_calibration(settings)
        return self._planner.plan(model, record.prompt, tuple(span_from(span) for span in record.spans), used)

    def _rebuilt(self, record: SessionRecord, branch: BranchRecord) -> Rollout:
        steps = [step_from(step) for step in self._sessions.chain(branch.id)]
        return Rollout(self.plan(record), branch.path, steps, self._host.forwards)
