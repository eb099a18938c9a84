"""Live rollouts of stored branches: kept between requests, rebuilt from their stored tokens when they are not."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from typing import TypeVar
from weakref import WeakKeyDictionary

from app.shared.audits import Computation, KeptMemory
from app.shared.errors import ServiceError, in_one_sentence
from app.shared.mapping import settings_from_json, span_from, step_from, step_record
from app.shared.memory import DeviceMemory, Waiting
from app.shared.model_host import ModelHost
from app.shared.planning import Detectors, Planner, forced_token, rendering_of, without_calibration
from app.shared.policies import certifies
from coft_core.decode.cost import DevicePeaks, StepCost, measured_step, reserved_bytes
from coft_core.decode.loop import Rollout, fork_path
from coft_core.decode.plan import Plan
from coft_core.decode.prepared import path_text, prepared_steps
from coft_core.fingerprint import same_digests
from coft_core.model.compiled import StepPath, path_of
from coft_core.model.language_model import LanguageModel
from coft_core.model.noise import NumericNoise, noise_of
from coft_core.types import Step
from db.records import BranchRecord, JsonObject, SessionRecord
from db.sessions import SessionsRepository
from db.types import CalibrationDeletedError

STORED_AS = "computed"
"""Key in a session's settings: the ways in which its steps were computed, in the order in which they came."""


class Computations:
    """Notes with a session how its steps are computed."""

    def __init__(self, sessions: SessionsRepository) -> None:
        """Wire to the store."""
        self._sessions = sessions
        self._noted: WeakKeyDictionary[Rollout, tuple[StepPath, str, str]] = WeakKeyDictionary()

    def note(self, session_id: int, rollout: Rollout) -> None:
        """Note how a rollout's newest step was computed, unless that is known.

        Args:
            session_id: The session.
            rollout: One of its rollouts.
        """
        model = rollout.plan.model
        prepared, way = prepared_steps(model), path_of(model)
        # What the path's words are made of: to find the words looks through the whole model, and every step asks.
        state = (way, "" if way.steps is None else way.steps.failure, "" if prepared is None else prepared.failure)
        # A model's path changes at most once or twice in its life, and a rollout's memory never.
        if not rollout.steps or self._noted.get(rollout) == state:
            return
        self._sessions.add_computation(session_id, _to_json(_computation(rollout, path_text(model))))
        self._noted[rollout] = state


def computations_of(record: SessionRecord) -> tuple[Computation, ...]:
    """How a session's steps were computed; empty before its first step, and for sessions stored without it."""
    return tuple(_from_json(item) for item in record.policy_settings.get(STORED_AS, ()))


def session_noise(record: SessionRecord) -> NumericNoise:
    """The bound on numeric noise for a session's model at its temperature, the largest of all ways it was computed.

    Sessions of earlier versions stored the bound of the number type at temperature 1; what that type has at the
    session's temperature is said in its place.
    """
    stated = stated_noise(record)
    usual = noise_of(record.fingerprint.get("dtype"), record.temperature)
    return stated if stated.nats >= usual.nats else usual


def stated_noise(record: SessionRecord) -> NumericNoise:
    """The bound that a session was stored with, which tables of it repeat."""
    told = computations_of(record)
    usual = noise_of(record.fingerprint.get("dtype"))
    largest = max(told, key=lambda item: item.numeric_noise, default=None)
    if largest is None or largest.temperature is None:
        return usual
    return replace(usual, nats=largest.numeric_noise, temperature=largest.temperature)


def memory_of(rollout: Rollout) -> tuple[KeptMemory, ...]:
    """How a rollout's keys and values are kept, by model."""
    return tuple(
        KeptMemory(name, use.kind, use.reason, use.held_once, use.joins) for name, use in rollout.memory_uses.items()
    )


def _computation(rollout: Rollout, path: str) -> Computation:
    model: LanguageModel = rollout.plan.model
    noise = rollout.plan.noise
    memory = memory_of(rollout)
    return Computation(model.dtype_name, model.quantization, path, memory, noise.nats, noise.temperature)


def _to_json(computation: Computation) -> JsonObject:
    """As the store gives it back, where lists are all that there is."""
    return {**asdict(computation), "memory": [asdict(item) for item in computation.memory]}


def _from_json(data: JsonObject) -> Computation:
    return Computation(**{**data, "memory": tuple(KeptMemory(**item) for item in data["memory"])})


Result = TypeVar("Result")


class RolloutPool:
    """Rollouts kept between requests, one a branch; the one unused for longest is closed first.

    Idle ones are counted in the budget of all work on the device, are closed for whoever needs their memory, and are
    rebuilt from their tokens when they come back.
    """

    def __init__(self, capacity: int, memory: DeviceMemory) -> None:
        """Make an empty pool.

        Args:
            capacity: Rollouts whose key-value memory is kept.
            memory: The device's memory, which rollouts share with all other work.
        """
        self._capacity = capacity
        self._memory = memory
        self._rollouts: OrderedDict[Hashable, Rollout] = OrderedDict()
        self._changed = memory.budget.changed
        memory.budget.count_idle(self)

    def run(
        self,
        key: Hashable,
        build: Callable[[], Rollout],
        work: Callable[[Rollout], Result],
        copies: int = 0,
        waiting: Waiting | None = None,
    ) -> Result:
        """Do something with a rollout, which nobody else uses or closes meanwhile.

        After an error it is closed, since it may be ahead of what is stored. Where the device's memory ran out, all
        idle rollouts are closed, this one is built anew, and it is done once more.

        Args:
            key: The branch.
            build: Makes the rollout where it is not kept.
            work: What is done; each forward takes a turn of its own, so the caller holds none.
            copies: Forks that will be made of it; memory is set aside for them too.
            waiting: Told while it waits for memory.

        Raises:
            DeviceMemoryError: The device's memory ran out twice.
        """
        return self._memory.tried_twice(lambda: self._run(key, build, work, copies, waiting))

    def steps(self, key: Hashable) -> tuple[Step, ...] | None:
        """The chain of a branch whose rollout is kept and not in use at the moment."""
        with self._changed:
            rollout = self._rollouts.get(key)
            return None if rollout is None else rollout.steps

    def put(self, key: Hashable, rollout: Rollout) -> None:
        """Put a rollout back."""
        with self._changed:
            self._rollouts[key] = rollout
            while len(self._rollouts) > self._capacity:
                self.close_oldest()
            self._changed.notify_all()

    def drop(self, keys: Collection[Hashable]) -> None:
        """Close the rollouts of branches that are gone."""
        with self._changed:
            for key in keys:
                if (rollout := self._rollouts.pop(key, None)) is not None:
                    rollout.close()
            self._changed.notify_all()

    @property
    def idle_size(self) -> int:
        """Bytes of keys and values that idle rollouts hold."""
        with self._changed:
            return sum(rollout.memory_size for rollout in self._rollouts.values())

    def close_oldest(self) -> bool:
        """Close the rollout that was unused for longest; False where none is idle."""
        with self._changed:
            if not self._rollouts:
                return False
            self._rollouts.popitem(last=False)[1].close()
            return True

    def _run(
        self,
        key: Hashable,
        build: Callable[[], Rollout],
        work: Callable[[Rollout], Result],
        copies: int,
        waiting: Waiting | None,
    ) -> Result:
        while True:
            with self._changed:
                kept = self._rollouts.get(key)
                if kept is not None:
                    self._rollouts.move_to_end(key)
            found = self._tried(key, kept or build(), kept is not None, work, copies, waiting)
            if found is not None:
                return found[0]
            # It was closed for somebody else while it waited for memory: it is built anew and asks once more.

    def _tried(
        self,
        key: Hashable,
        rollout: Rollout,
        kept: bool,
        work: Callable[[Rollout], Result],
        copies: int,
        waiting: Waiting | None,
    ) -> tuple[Result] | None:
        """The result, or None where a kept rollout was closed while it waited.

        A kept one stays counted, and may be closed, until its memory is granted: many that wait would otherwise hold
        more than the budget together, and nobody would know of it.
        """
        own = not kept

        def claim() -> None:
            nonlocal own
            if self._rollouts.get(key) is rollout:
                del self._rollouts[key]
                own = True

        with ExitStack() as held:
            try:
                room = self._memory.budget.room(rollout.memory_size_next * (1 + copies), waiting, claim)
                held.enter_context(room)
                if not own:
                    return None
                done = work(rollout)
            except BaseException:
                if own:
                    rollout.close()
                raise
            with self._changed:
                held.close()
                self.put(key, rollout)
        return (done,)


Answer = TypeVar("Answer")

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
        work: Callable[[Rollout], Answer],
        copies: int = 0,
        waiting: Waiting | None = None,
    ) -> Answer:
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

        def noted(rollout: Rollout) -> Answer:
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
