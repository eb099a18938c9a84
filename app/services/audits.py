"""Audit sessions: planned on a model, stepped one durable token at a time, forked and reopened."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Lock, RLock

from app.services.audit_views import AuditViews, summary_from
from app.services.calibration.fitting import Fitting
from app.services.calibration.thresholds import Thresholds
from app.services.computations import computations_of, session_noise
from app.services.detection import Detectors
from app.services.errors import ServiceError
from app.services.mapping import span_record
from app.services.measurements import Measurements
from app.services.memory_budget import Waiting
from app.services.model_host import ModelHost
from app.services.planning import Planner
from app.services.prompting import rendering_of
from app.services.rollout_pool import RolloutPool
from app.services.rollouts import Rollouts
from app.services.run_until import checked, met
from app.services.stepping import Stepping
from app.services.views import (
    AuditSettings,
    AuditView,
    ChainProgress,
    LeaveOneOut,
    LoadingPhase,
    MaskPreview,
    ModelView,
    Overhead,
    RunUntil,
    SessionSummary,
    SettingsFit,
    Span,
    StartAudit,
    Step,
)
from coft_core.decode import ROOT_PATH
from coft_core.masking.whitelist import check_whitelist, keep_whitelisted
from db.records import BranchRecord
from db.repositories import SessionsRepository


class AuditService:
    """What a reviewer does with an audit."""

    def __init__(
        self,
        sessions: SessionsRepository,
        thresholds: Thresholds,
        host: ModelHost,
        detectors: Detectors,
        pool: RolloutPool,
        full_logits_kb: int = 0,
    ) -> None:
        """Wire the service.

        Args:
            sessions: The store of sessions.
            thresholds: The calibrations that audits use.
            host: Owner of the models.
            detectors: Find sensitive spans.
            pool: Keeps live rollouts between requests.
            full_logits_kb: Kilobytes up to which a step's logits are kept whole; 0 keeps none.
        """
        self._sessions = sessions
        self._host = host
        self._detectors = detectors
        self._planner = Planner(thresholds, detectors, host, full_logits_kb)
        self._rollouts = Rollouts(sessions, self._planner, host, detectors, pool)
        self._views = AuditViews(sessions, thresholds, detectors)
        self._stepping = Stepping(sessions, self._rollouts)
        self._measurements = Measurements(self._rollouts, detectors, host)
        self._fitting = Fitting(thresholds, detectors, host)
        self._locks: defaultdict[int, RLock] = defaultdict(RLock)
        self._locks_lock = Lock()
        self._pauses: defaultdict[int, set[Event]] = defaultdict(set)

    def model(self, name: str) -> ModelView:
        """Load (once) and describe a model."""
        return self._host.describe(name)

    def loading(self, name: str) -> Iterator[LoadingPhase]:
        """Load a model if need be, and tell of each phase as it begins."""
        return self._host.loading(name)

    @property
    def masked_families(self) -> tuple[str, ...]:
        """Families that are masked unless the settings say otherwise."""
        return self._detectors.masked_families

    def detector(self, settings: AuditSettings) -> str:
        """Version of the detector that these settings choose, as in fingerprints."""
        return self._detectors.choose(settings).version

    def detect(self, text: str, settings: AuditSettings | None = None) -> tuple[Span, ...]:
        """Sensitive spans of a text, sorted and disjoint, suggested ones included.

        Args:
            text: The text exactly as typed.
            settings: Their masked families, word list and whitelist count; None takes the program's own.
        """
        chosen = settings or AuditSettings()
        found = self._detectors.choose(chosen).detect(text)
        return keep_whitelisted(text, found, check_whitelist(chosen.whitelist))

    def fit(self, settings: AuditSettings) -> SettingsFit:
        """How the settings and the calibration that they name agree; needs no model.

        Raises:
            CoftError: A setting is outside its range.
            NotFoundError: The calibration or the word list has been deleted.
        """
        return self._fitting.fit(settings)

    def adopt(self, settings: AuditSettings) -> AuditSettings:
        """The settings with everything that the calibration they name was made with; needs no model.

        Raises:
            ServiceError: The settings name no calibration.
            NotFoundError: It has been deleted.
        """
        return self._fitting.adopt(settings)

    def preview(self, prompt: str, spans: tuple[Span, ...], settings: AuditSettings) -> MaskPreview:
        """The prompt as the masked branches read it, with its warnings."""
        return self._planner.preview(self._host.get(settings.model), prompt, spans, settings)

    def start(self, request: StartAudit) -> AuditView:
        """Begin a session without a step.

        Raises:
            InvalidInputError: The prompt or a setting cannot be used.
            CalibrationMismatch: The calibration belongs to another policy and going on was not allowed.
            ServiceError: There is no such policy, mask or group.
            NotFoundError: There is no such calibration.
        """
        settings = request.settings
        model = self._host.get(settings.model)
        before = None if request.repeats is None else self._sessions.get(request.repeats)
        rendering = None if before is None else rendering_of(before.rendering, model)
        prepared = self._planner.plan(model, request.prompt, request.spans, settings, rendering)
        record = self._sessions.create(
            self._planner.session_fields(request, prepared),
            [span_record(span) for span in prepared.prompt.spans],
            root_path=ROOT_PATH,
            root_name="main",
        )
        return self.view(record.id)

    def view(self, session_id: int, branch_id: int | None = None) -> AuditView:
        """A session from the store; needs no model. Without a branch, the active one."""
        record = self._sessions.get(session_id)
        return self._views.view(record, self._branch(session_id, branch_id))

    def progress(self, session_id: int, branch_id: int | None = None) -> ChainProgress:
        """What the steps so far say of a chain as a whole; takes a few milliseconds while the chain is live."""
        record = self._sessions.get(session_id)
        branch = self._branch(session_id, branch_id)
        chain = self._views.chain(record, self._rollouts.steps(branch.id), branch.finished)
        return ChainProgress(branch.finished, chain, session_noise(record), computations_of(record))

    def step(self, session_id: int, branch_id: int | None = None, waiting: Waiting | None = None) -> Step | None:
        """Generate one token; it is durable when this returns. None when the chain is finished.

        Args:
            session_id: The session.
            branch_id: The branch; None takes the active one.
            waiting: Told while the step waits for memory.

        Raises:
            DeviceMemoryError: The device's memory ran out; the chain is as it was.
        """
        with self._lock(session_id):
            branch = self._stepping.going(session_id, branch_id) or self._branch(session_id, branch_id)
            return None if branch.finished else self._stepping.step(branch, waiting)

    def run(
        self,
        session_id: int,
        branch_id: int | None = None,
        until: RunUntil | None = None,
        waiting: Waiting | None = None,
    ) -> Iterator[Step]:
        """Generate one durable step at a time: to the end, to :meth:`pause`, or to the step that meets a condition.

        Args:
            session_id: The session.
            branch_id: The branch; None takes the active one.
            until: The condition; None runs to the end.
            waiting: Told while a step waits for memory.

        Raises:
            ServiceError: The session cannot meet the condition.
            DeviceMemoryError: The device's memory ran out; the chain is as it was.
        """
        stop = Event()
        self._pauses[session_id].add(stop)
        try:
            record, written = self._sessions.get(session_id), 0
            branch_id = self._branch(session_id, branch_id).id
            wanted = None if until is None else checked(until, record.certificate)
            while not stop.is_set() and (step := self.step(session_id, branch_id, waiting)) is not None:
                written += 1
                yield step
                if wanted is not None and met(wanted, step, written):
                    return
        finally:
            self._pauses[session_id].discard(stop)

    def pause(self, session_id: int) -> None:
        """Stop every :meth:`run` of this session after its current step."""
        for stop in tuple(self._pauses[session_id]):
            stop.set()

    def running(self, session_id: int) -> bool:
        """Whether a :meth:`run` of this session is under way in this process."""
        return bool(self._pauses.get(session_id))

    @contextmanager
    def resting(self, session_id: int) -> Iterator[Rollouts]:
        """Hold a session still, so that nothing steps or forks it meanwhile; gives the live rollouts.

        Raises:
            ServiceError: It is running.
        """
        with self._lock(session_id):
            if self.running(session_id):
                raise ServiceError("This session is running; pause it first.")
            yield self._rollouts

    def fork(self, session_id: int, branch_id: int, index: int, token: int | str) -> AuditView:
        """Depart from a branch at a step (0-based) with another token: an id, or text that is one token.

        Forcing the same token at the same place again opens the branch that exists already.

        Raises:
            InvalidInputError: The step or the token does not exist.
        """
        with self._lock(session_id):
            forked = self._stepping.fork(self._branch(session_id, branch_id), index, token)
            self._sessions.set_active_branch(session_id, forked.id)
        return self.view(session_id, forked.id)

    def contributions(self, session_id: int, branch_id: int | None = None) -> LeaveOneOut:
        """What each masked span contributes to the sensitivity of each token of a chain; needs the model.

        Raises:
            ServiceError: The model or the detector is no longer what it was.
            InvalidInputError: The chain has no token yet.
        """
        record = self._sessions.get(session_id)
        chain = self._rollouts.steps(self._branch(session_id, branch_id).id)
        return self._measurements.contributions(record, [step.token_id for step in chain])

    def overhead(self, session_id: int) -> Overhead:
        """Measured time per token of the session's policy against vanilla decoding; needs the model.

        Raises:
            ServiceError: The session cannot be continued, or its prompt leaves no room to measure.
        """
        return self._measurements.overhead(self._sessions.get(session_id))

    def sessions(self, search: str = "", limit: int = 200) -> tuple[SessionSummary, ...]:
        """Past sessions, last changed first."""
        return tuple(summary_from(found) for found in self._sessions.list(search or None, limit))

    def delete(self, session_id: int) -> None:
        """Delete a session with everything that belongs to it."""
        self.pause(session_id)
        with self._lock(session_id):
            branches = {branch.id for branch in self._sessions.branches(session_id)}
            self._sessions.delete(session_id)
            self._rollouts.drop(branches)
            self._stepping.forget(branches)

    def _branch(self, session_id: int, branch_id: int | None) -> BranchRecord:
        """A branch of a session, its active one if None; one small query, since every step asks."""
        if branch_id is None:
            return self._sessions.active_branch(session_id)
        branch = self._sessions.branch(branch_id)
        if branch.session_id != session_id:
            raise ServiceError(f"Branch {branch.id} does not belong to session {session_id}; open it from its session.")
        return branch

    def _lock(self, session_id: int) -> RLock:
        with self._locks_lock:
            return self._locks[session_id]
