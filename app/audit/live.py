"""Stored branches as live rollouts: stepped and forked with every step durable, rebuilt where they are not kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from weakref import WeakKeyDictionary

from app.hosting.memory import Waiting
from app.hosting.model_host import ModelHost
from app.hosting.rollouts import RolloutPool
from app.shared.audits import settings_from_json
from app.shared.errors import ServiceError
from app.shared.kept_controls import KeptControls
from app.shared.kept_steps import WrittenChain, computation_json, write_chain
from app.shared.metrics import Metrics
from app.shared.planning import Detectors, Planner, rendering_of, without_calibration
from app.shared.policies import certifies
from app.shared.project_cache import InProject, in_present
from app.shared.wiring import Services
from coft_core.controls.words import NeutralWords
from coft_core.decode.captured import step_functions
from coft_core.decode.cost import StepCost, reserved_bytes
from coft_core.decode.loop import Rollout, fork_path
from coft_core.decode.plan import Plan
from coft_core.errors import InvalidInputError
from coft_core.fingerprint import same_digests
from coft_core.model.compiled import StepPath, path_of
from coft_core.model.language_model import LanguageModel
from coft_core.text.tokens import require_encodable
from coft_core.types import Step
from db.audits import BranchRecord, SessionRecord
from db.sessions import SessionsRepository
from db.types import CalibrationDeletedError, ConflictError

CHANGED_MODEL = (
    "This session was made with other weights, another tokenizer or another detector than are loaded now, so it "
    "cannot be continued or measured; start a new one."
)


STEPPED_ELSEWHERE = (
    "Another server has gone on with this session meanwhile; nothing was lost: reload the page to see its steps, and "
    "keep a session to one server."
)


MOST_GOING = 1024
"""Branches that are known to go on; the store is asked for others."""


class LiveBranches:
    """Gives stored branches as live rollouts and stores what those write; the caller holds the session still."""

    def __init__(self, services: Services, planner: Planner, words: NeutralWords) -> None:
        self._controls, self._words = services[KeptControls], words
        self._sessions, self._host = services[SessionsRepository], services[ModelHost]
        self._detectors, self._pool = services[Detectors], services[RolloutPool]
        self._metrics, self._planner = services[Metrics], planner
        self._going: OrderedDict[InProject, BranchRecord] = OrderedDict()
        self._noted: WeakKeyDictionary[Rollout, tuple[StepPath, str, str]] = WeakKeyDictionary()

    def going(self, session_id: int, branch_id: int | None) -> BranchRecord | None:
        """A session's branch whose newest step was stored here and did not end it; None where the store must be asked.

        What else happens to it in the store, deletion above all, is found out when its next step is to be stored.
        """
        branch = None if branch_id is None else self._going.get(in_present(branch_id))
        return branch if branch is not None and branch.session_id == session_id else None

    def drop(self, branch_ids: Collection[int]) -> None:
        """Close the rollouts of branches that are gone, and ask the store for them again."""
        self._pool.drop(branch_ids)
        for branch_id in branch_ids:
            self._going.pop(in_present(branch_id), None)

    def steps(self, branch_id: int) -> tuple[Step, ...]:
        """The chain of a branch, from memory where it is live."""
        live = self._pool.steps(branch_id)
        return live if live is not None else self._sessions.chain(branch_id)

    @contextmanager
    def rollout(self, branch: BranchRecord, copies: int = 0, waiting: Waiting | None = None) -> Iterator[Rollout]:
        """A branch's rollout, with memory for so many forks (:meth:`RolloutPool.taken`); notes how it computed."""
        with self._pool.taken(branch.id, lambda: self._rebuilt(branch, waiting), copies, waiting) as rollout:
            self._going.pop(in_present(branch.id), None)
            yield rollout
            self._note(branch.session_id, rollout)

    def keep(self, branch: BranchRecord, rollout: Rollout, cost: StepCost | None = None) -> None:
        """Store a rollout's newest step on its branch, with what it took, and how the chain ended if it has."""
        self._append(branch, rollout.steps[-1], cost)
        rollout.release_logits()
        if rollout.finished:
            self._sessions.set_finished(branch.id, rollout.finished)
        else:
            self._going[in_present(branch.id)] = branch
            while len(self._going) > MOST_GOING:
                self._going.popitem(last=False)

    def chain_work(self, branch: BranchRecord) -> Callable[[], WrittenChain]:
        """What writes the rest of a stored branch, wherever it is done; :meth:`take` stores what it gives."""
        self._sessions.require_own(branch.session_id)
        record = self._sessions.get(branch.session_id)
        compared = settings_from_json(record.policy_settings["settings"]).controls
        steps = tuple(self._sessions.chain(branch.id))
        return partial(write_chain, self._host, self.plan(record), branch.path, steps, compared, self._words)

    def take(self, branch: BranchRecord, chain: WrittenChain) -> None:
        """Store what was written elsewhere, step by step as :meth:`keep` does, and how it was computed."""
        for written in chain.steps:
            self._append(branch, written.step, written.cost)
            if written.computed is not None:
                self._sessions.add_computation(branch.session_id, written.computed)
        if chain.finished:
            self._sessions.set_finished(branch.id, chain.finished)
        if chain.controls is not None:
            self._controls.keep(branch.id, chain.controls)

    def _append(self, branch: BranchRecord, step: Step, cost: StepCost | None) -> None:
        seconds, peak_bytes = (None, None) if cost is None else (cost.seconds, cost.peak_bytes)
        try:
            self._sessions.append_step(branch.id, step, seconds, peak_bytes)
        except CalibrationDeletedError:
            raise
        except ConflictError as error:
            # Nobody else has this rollout in this process, and the next one is built from what is stored.
            raise ServiceError(STEPPED_ELSEWHERE) from error
        if cost is not None:
            self._metrics.step(cost.seconds)

    def forked(self, parent: BranchRecord, rollout: Rollout, index: int, token: int | str) -> BranchRecord:
        """The branch that departs from a live chain at a step (0-based) with another token, with that step stored."""
        model = rollout.plan.model
        token_id = forced_token(model, token)
        path = fork_path(parent.path, index, token_id)
        branch = next((b for b in self._sessions.branches(parent.session_id) if b.path == path), None)
        # A process killed between the two writes leaves a branch without its forced step; it is completed here.
        if branch is None or len(self._sessions.chain(branch.id)) <= index:
            fork = rollout.fork(index, token_id)
            branch = branch or self._sessions.add_branch(
                parent.session_id, parent.id, index, path, name=model.token_text(token_id)
            )
            self.keep(branch, fork)
            self._pool.put(branch.id, fork)
        return branch

    def plan(self, record: SessionRecord, thresholds: bool = True) -> Plan:
        """What a session was planned as, on the model and with the detector that it was made with."""
        settings = settings_from_json(record.policy_settings["settings"])
        gone = settings.calibration_id is not None and record.calibration_id is None and certifies(settings)
        if gone and thresholds:
            raise CalibrationDeletedError(record.calibration_label)
        if self._detectors.list_is_gone(settings):
            raise ServiceError(
                f"The word list “{record.policy_settings['user_list']}” has been deleted or replaced, so this session "
                "cannot be continued; start a new one."
            )
        model, stored = self._host.get(settings.model), record.fingerprint
        now = (model.weights_digest, model.tokenizer_digest, self._detectors.choose(settings).version)
        was = (stored["weights"], stored["tokenizer"], stored["detector"])
        if not all(same_digests(str(old), new) for old, new in zip(was, now, strict=True)):
            raise ServiceError(CHANGED_MODEL)
        # What stands for masked tokens is chosen once: a later version may choose otherwise.
        settings = replace(settings, sentinel=stored["sentinel"] or None)
        spans = record.spans
        return self._planner.plan(
            model,
            record.prompt,
            spans,
            settings if thresholds else without_calibration(settings),
            rendering_of(record.rendering, model),
        )

    def _rebuilt(self, branch: BranchRecord, waiting: Waiting | None) -> Rollout:
        # The session is read here and not at every step: a live rollout has its plan already.
        self._sessions.require_own(branch.session_id)
        plan = self.plan(self._sessions.get(branch.session_id))
        steps = self._sessions.chain(branch.id)
        # Policies that look back read the whole chain again.
        with self._host.memory.budget.room(reserved_bytes(plan, len(steps)), waiting):
            return Rollout(plan, branch.path, steps, self._host.forwards)

    def _note(self, session_id: int, rollout: Rollout) -> None:
        model = rollout.plan.model
        prepared, way = step_functions(model), path_of(model)
        # What the path's words are made of: to find the words looks through the whole model, and every step asks.
        state = (way, "" if way.steps is None else way.steps.failure, "" if prepared is None else prepared.failure)
        # A model's path changes at most once or twice in its life, and a rollout's memory never.
        if rollout.steps and self._noted.get(rollout) != state:
            self._sessions.add_computation(session_id, computation_json(rollout))
            self._noted[rollout] = state


def forced_token(model: LanguageModel, token: int | str) -> int:
    """The id of a token to force."""
    if isinstance(token, int):
        return token
    require_encodable(token, "The token to force")
    token_id = model.single_token(token)
    if token_id is None:
        raise InvalidInputError(
            f"“{token}” is not one token of this model; type a shorter piece, and mind that a leading space counts."
        )
    return token_id
