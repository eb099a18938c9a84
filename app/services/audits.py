"""Audit sessions: planned on a model, stepped one durable token at a time, forked and reopened."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Lock, RLock

from app.services.audit_views import AuditViews, summary_from
from app.services.calibration.fitting import Fitting
from app.services.calibration.service import CalibrationService
from app.services.calibration.thresholds import Thresholds
from app.services.detection import Detectors
from app.services.errors import ServiceError
from app.services.forced_tokens import forced_token
from app.services.mapping import span_record, step_record
from app.services.measurements import Measurements
from app.services.model_host import ModelHost
from app.services.planning import Planner
from app.services.rollouts import Rollouts
from app.services.run_until import checked, met
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
from coft_core.decode import ROOT_PATH, Rollout, fork_path
from coft_core.footprint import StepCost, measured_step
from coft_core.masking.whitelist import check_whitelist, keep_whitelisted
from db.records import BranchRecord, SessionRecord
from db.repositories import SessionsRepository


class AuditService:
    """What a reviewer does with an audit."""

    def __init__(
        self,
        sessions: SessionsRepository,
        calibrations: CalibrationService,
        host: ModelHost,
        detectors: Detectors,
        live_rollouts: int = 16,
        full_logits_kb: int = 0,
        kv_memory_mb: int | None = None,
    ) -> None:
        """Wire the service.

        Args:
            sessions: The store of sessions.
            calibrations: Where thresholds come from.
            host: Owner of the models.
            detectors: Find sensitive spans.
            live_rollouts: Branches whose key-value memory is kept between requests.
            full_logits_kb: Kilobytes up to which a step's logits are kept whole; 0 keeps none.
            kv_memory_mb: Megabytes of key-value memory of all live branches together; None sets no limit.
        """
        thresholds = Thresholds(calibrations)
        self._sessions = sessions
        self._host = host
        self._detectors = detectors
        self._planner = Planner(thresholds, detectors, host, full_logits_kb)
        self._rollouts = Rollouts(sessions, self._planner, host, detectors, live_rollouts, kv_memory_mb)
        self._views = AuditViews(sessions, thresholds, detectors)
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
        prepared = self._planner.plan(model, request.prompt, request.spans, settings)
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
        return self._views.view(record, self._branch(record, branch_id))

    def progress(self, session_id: int, branch_id: int | None = None) -> ChainProgress:
        """What the steps so far say of a chain as a whole; takes a few milliseconds while the chain is live."""
        record = self._sessions.get(session_id)
        branch = self._branch(record, branch_id)
        return ChainProgress(branch.finished, self._views.chain(record, self._rollouts.steps(branch.id)))

    def step(self, session_id: int, branch_id: int | None = None) -> Step | None:
        """Generate one token; it is durable when this returns. None when the chain is finished."""
        with self._lock(session_id):
            record = self._sessions.get(session_id)
            branch = self._branch(record, branch_id)
            if branch.finished:
                return None
            with self._rollouts.of(record, branch) as rollout:
                if rollout.finished:
                    self._sessions.set_finished(branch.id, rollout.finished)
                    return None
                return self._advance(branch, rollout)

    def run(self, session_id: int, branch_id: int | None = None, until: RunUntil | None = None) -> Iterator[Step]:
        """Generate one durable step at a time: to the end, to :meth:`pause`, or to the step that meets a condition.

        Raises:
            ServiceError: The session cannot meet the condition.
        """
        stop = Event()
        self._pauses[session_id].add(stop)
        try:
            record, written = self._sessions.get(session_id), 0
            branch_id = self._branch(record, branch_id).id
            wanted = None if until is None else checked(until, record.certificate)
            while not stop.is_set() and (step := self.step(session_id, branch_id)) is not None:
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
            record = self._sessions.get(session_id)
            parent = self._branch(record, branch_id)
            with self._rollouts.of(record, parent, copies=1) as rollout:
                model = rollout.plan.model
                token_id = forced_token(model, token)
                path = fork_path(parent.path, index, token_id)
                existing = next((b for b in self._sessions.branches(session_id) if b.path == path), None)
                # A process killed between the two writes leaves a branch without its forced step; it is completed here.
                if existing is None or len(self._sessions.chain(existing.id)) <= index:
                    forked = rollout.fork(index, token_id)
                    existing = existing or self._sessions.add_branch(
                        session_id, parent.id, index, path, name=model.token_text(token_id)
                    )
                    self._keep(existing, forked)
                    self._rollouts.keep(existing.id, forked)
            self._sessions.set_active_branch(session_id, existing.id)
        return self.view(session_id, existing.id)

    def contributions(self, session_id: int, branch_id: int | None = None) -> LeaveOneOut:
        """What each masked span contributes to the sensitivity of each token of a chain; needs the model.

        Raises:
            ServiceError: The model or the detector is no longer what it was.
            InvalidInputError: The chain has no token yet.
        """
        record = self._sessions.get(session_id)
        chain = self._rollouts.steps(self._branch(record, branch_id).id)
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

    def _branch(self, record: SessionRecord, branch_id: int | None) -> BranchRecord:
        branch = self._sessions.branch(record.active_branch_id if branch_id is None else branch_id)
        if branch.session_id != record.id:
            raise ServiceError(f"Branch {branch.id} does not belong to session {record.id}; open it from its session.")
        return branch

    def _advance(self, branch: BranchRecord, rollout: Rollout) -> Step:
        # Each forward takes its own turn, together with those of whoever else steps at this moment.
        step, cost = measured_step(rollout)
        self._keep(branch, rollout, cost)
        return step

    def _keep(self, branch: BranchRecord, rollout: Rollout, cost: StepCost | None = None) -> None:
        """Store a rollout's newest step on its branch, with what it took."""
        self._sessions.append_step(branch.id, step_record(rollout.steps[-1], cost))
        rollout.release_logits()
        if rollout.finished:
            self._sessions.set_finished(branch.id, rollout.finished)

    def _lock(self, session_id: int) -> RLock:
        with self._locks_lock:
            return self._locks[session_id]
