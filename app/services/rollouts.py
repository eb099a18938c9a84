"""Live rollouts of stored branches: kept between requests, rebuilt from their stored tokens when they are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from app.services.computations import Computations
from app.services.detection import Detectors
from app.services.errors import ServiceError
from app.services.known_policies import certifies
from app.services.mapping import settings_from_json, span_from, step_from
from app.services.memory_budget import Waiting
from app.services.model_host import ModelHost
from app.services.planning import Planner, without_calibration
from app.services.prompting import rendering_of
from app.services.rollout_pool import RolloutPool
from coft_core.decode import Plan, Rollout
from coft_core.digests import same_digests
from coft_core.footprint import DevicePeaks, reserved_bytes
from coft_core.types import Step
from db.errors import CalibrationDeletedError
from db.records import BranchRecord, SessionRecord
from db.repositories import SessionsRepository

Result = TypeVar("Result")

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
        pool: RolloutPool,
    ) -> None:
        """Wire to the store and the models.

        Args:
            sessions: The store of sessions.
            planner: Turns stored settings into a plan again.
            host: Owner of the models.
            detectors: Find sensitive spans; their version must be that of the session.
            pool: Keeps rollouts between requests.
        """
        self._sessions = sessions
        self._planner = planner
        self._host = host
        self._detectors = detectors
        self._pool = pool
        self._computations = Computations(sessions)

    def run(
        self,
        branch: BranchRecord,
        work: Callable[[Rollout], Result],
        copies: int = 0,
        waiting: Waiting | None = None,
    ) -> Result:
        """Do something with the branch's rollout; see :meth:`RolloutPool.run`.

        Args:
            branch: The branch.
            work: What is done; it is done again on a rebuilt rollout where memory ran out, so it stores only what the
                rollout has finished.
            copies: Forks that will be made of it; memory is set aside for them too.
            waiting: Told while it waits for memory.

        Raises:
            ServiceError: The session cannot be continued.
            DeviceMemoryError: The device's memory ran out twice.
        """

        def build() -> Rollout:
            return self._rebuilt(branch, waiting)

        def noted(rollout: Rollout) -> Result:
            done = work(rollout)
            self._computations.note(branch.session_id, rollout)
            return done

        return self._pool.run(branch.id, build, noted, copies, waiting)

    @property
    def peaks(self) -> DevicePeaks:
        """Where all who measure a step's memory at the same time measure it."""
        return self._host.memory.peaks

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
            ServiceError: Model, detector or word list are no longer what they were.
            CalibrationDeletedError: Its calibration is no longer stored.
        """
        settings = settings_from_json(record.policy_settings["settings"])
        gone = settings.calibration_id is not None and record.calibration_id is None and certifies(settings)
        if gone and thresholds:
            raise CalibrationDeletedError(record.calibration_label)
        if self._detectors.list_is_gone(settings):
            raise ServiceError(
                f"The word list “{record.policy_settings['user_list']}” has been deleted or replaced, so this session "
                "cannot be continued; start a new one."
            )
        model = self._host.get(settings.model)
        stored = record.fingerprint
        now = (model.weights_digest, model.tokenizer_digest, self._detectors.choose(settings).version)
        was = (stored["weights"], stored["tokenizer"], stored["detector"])
        if not all(same_digests(str(old), new) for old, new in zip(was, now, strict=True)):
            raise ServiceError(CHANGED_MODEL)
        # What stands for masked tokens is chosen once: a later version may choose otherwise.
        settings = replace(settings, sentinel=stored["sentinel"] or None)
        used = settings if thresholds else without_calibration(settings)
        spans = tuple(span_from(span) for span in record.spans)
        return self._planner.plan(model, record.prompt, spans, used, rendering_of(record.rendering, model))

    def _rebuilt(self, branch: BranchRecord, waiting: Waiting | None) -> Rollout:
        # The session is read here and not at every step: a live rollout has its plan already.
        plan = self.plan(self._sessions.get(branch.session_id))
        steps = [step_from(step) for step in self._sessions.chain(branch.id)]
        # Policies that look back read the whole chain again.
        with self._host.memory.budget.room(reserved_bytes(plan, len(steps)), waiting):
            return Rollout(plan, branch.path, steps, self._host.forwards)
