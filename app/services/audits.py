"""Audit sessions: planned on a model, stepped one durable token at a time, forked and reopened."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Lock, RLock

from app.services.calibrations import CalibrationService
from app.services.detection import Detectors
from app.services.errors import ServiceError
from app.services.mapping import (
    preview_from_json,
    settings_from_json,
    span_from,
    span_record,
    step_from,
    step_record,
)
from app.services.model_host import ModelHost, RolloutPool
from app.services.planning import Planner
from app.services.views import (
    AuditSettings,
    AuditView,
    BranchView,
    MaskPreview,
    ModelView,
    SessionSummary,
    Span,
    StartAudit,
    Step,
)
from coft_core.decode import ROOT_PATH, Rollout, fork_path
from coft_core.engine.model import LanguageModel
from coft_core.errors import InvalidInputError
from db.records import BranchRecord, SessionRecord
from db.repositories import SessionsRepository

CHANGED_MODEL = (
    "This session was made with other weights, another tokenizer or another detector than are loaded now, so it "
    "cannot be continued; start a new one."
)


class AuditService:
    """What a reviewer does with an audit."""

    def __init__(
        self,
        sessions: SessionsRepository,
        calibrations: CalibrationService,
        host: ModelHost,
        detectors: Detectors,
        live_rollouts: int = 16,
    ) -> None:
        """Wire the service.

        Args:
            sessions: The store of sessions.
            calibrations: Where thresholds come from.
            host: Owner of the models.
            detectors: Find sensitive spans.
            live_rollouts: Branches whose key-value memory is kept between requests.
        """
        self._sessions = sessions
        self._calibrations = calibrations
        self._host = host
        self._detectors = detectors
        self._planner = Planner(calibrations, detectors)
        self._pool = RolloutPool(live_rollouts)
        self._locks: defaultdict[int, RLock] = defaultdict(RLock)
        self._locks_lock = Lock()
        self._pauses: defaultdict[int, set[Event]] = defaultdict(set)

    def model(self, name: str) -> ModelView:
        """Load (once) and describe a model."""
        return self._host.describe(name)

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
            settings: Their masked families and word list count; None takes the program's own.
        """
        return tuple(self._detectors.choose(settings or AuditSettings()).detect(text))

    def preview(self, prompt: str, spans: tuple[Span, ...], settings: AuditSettings) -> MaskPreview:
        """The prompt as the masked branch reads it, with its warnings."""
        return self._planner.preview(self._host.get(settings.model), prompt, spans, settings)

    def start(self, request: StartAudit) -> AuditView:
        """Begin a session without a step.

        Raises:
            InvalidInputError: The prompt or a setting cannot be used.
            CalibrationMismatch: The calibration belongs to another policy and going on was not allowed.
            ServiceError: There is no such policy or calibration.
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
        branches = tuple(self._sessions.branches(session_id))
        branch = self._branch(record, branch_id)
        settings = settings_from_json(record.policy_settings["settings"])
        calibration = self._calibrations.find(record.calibration_id, settings.alpha)
        warnings = record.warnings
        if settings.calibration_id is not None and calibration is None:
            warnings = (*warnings, f"The calibration “{record.calibration_label}” has been deleted.")
        user_list = str(record.policy_settings.get("user_list", ""))
        if self._detectors.list_is_gone(settings):
            warnings = (*warnings, f"The word list “{user_list}” has been deleted or replaced.")
        return AuditView(
            session_id=record.id,
            name=record.name,
            prompt=record.prompt,
            spans=tuple(span_from(span) for span in record.spans),
            settings=settings,
            model=str(record.policy_settings["model_label"]),
            preview=preview_from_json(record.policy_settings["preview"]),
            branch_id=branch.id,
            branches=tuple(
                BranchView(b.id, b.parent_id, b.fork_step, b.name if b.parent_id else None, b.name) for b in branches
            ),
            steps=tuple(step_from(step) for step in self._sessions.chain(branch.id)),
            finished=branch.finished,
            certificate=record.certificate,
            fingerprint_digest=record.fingerprint_digest,
            calibration=calibration.summary if calibration else None,
            user_list=user_list,
            bins=calibration.bins if calibration else (),
            warnings=warnings,
            created_at=record.created_at,
            updated_at=record.updated_at,
        )

    def step(self, session_id: int, branch_id: int | None = None) -> Step | None:
        """Generate one token; it is durable when this returns. None when the chain is finished."""
        with self._lock(session_id):
            record = self._sessions.get(session_id)
            branch = self._branch(record, branch_id)
            if branch.finished:
                return None
            with self._rollout(record, branch) as rollout:
                if rollout.finished:
                    self._sessions.set_finished(branch.id, rollout.finished)
                    return None
                return self._advance(branch, rollout)

    def run(self, session_id: int, branch_id: int | None = None) -> Iterator[Step]:
        """Generate to the end, one durable step at a time; ends early after :meth:`pause`."""
        stop = Event()
        self._pauses[session_id].add(stop)
        try:
            branch_id = self._branch(self._sessions.get(session_id), branch_id).id
            while not stop.is_set() and (step := self.step(session_id, branch_id)) is not None:
                yield step
        finally:
            self._pauses[session_id].discard(stop)

    def pause(self, session_id: int) -> None:
        """Stop every :meth:`run` of this session after its current step."""
        for stop in tuple(self._pauses[session_id]):
            stop.set()

    def fork(self, session_id: int, branch_id: int, index: int, token: int | str) -> AuditView:
        """Depart from a branch at a step (0-based) with another token: an id, or text that is one token.

        Forcing the same token at the same place again opens the branch that exists already.

        Raises:
            InvalidInputError: The step or the token does not exist.
        """
        with self._lock(session_id):
            record = self._sessions.get(session_id)
            parent = self._branch(record, branch_id)
            with self._rollout(record, parent) as rollout:
                model = rollout.plan.model
                token_id = _token_id(model, token)
                path = fork_path(parent.path, index, token_id)
                existing = next((b for b in self._sessions.branches(session_id) if b.path == path), None)
                # A process killed between the two writes leaves a branch without its forced step; it is completed here.
                if existing is None or len(self._sessions.chain(existing.id)) <= index:
                    with self._host.turn():
                        forked = rollout.fork(index, token_id)
                    existing = existing or self._sessions.add_branch(
                        session_id, parent.id, index, path, name=model.token_text(token_id)
                    )
                    self._keep(existing, forked)
                    self._pool.put(existing.id, forked)
            self._sessions.set_active_branch(session_id, existing.id)
        return self.view(session_id, existing.id)

    def sessions(self, search: str = "", limit: int = 200) -> tuple[SessionSummary, ...]:
        """Past sessions, last changed first."""
        return tuple(
            SessionSummary(
                id=s.id,
                name=s.name,
                prompt=s.prompt,
                model=s.model,
                policy=s.policy,
                steps=s.step_count,
                certificate=s.certificate,
                created_at=s.created_at,
                updated_at=s.updated_at,
            )
            for s in self._sessions.list(search or None, limit)
        )

    def delete(self, session_id: int) -> None:
        """Delete a session with everything that belongs to it."""
        self.pause(session_id)
        with self._lock(session_id):
            branches = {branch.id for branch in self._sessions.branches(session_id)}
            self._sessions.delete(session_id)
            self._pool.drop(branches)

    def _branch(self, record: SessionRecord, branch_id: int | None) -> BranchRecord:
        branch = self._sessions.branch(record.active_branch_id if branch_id is None else branch_id)
        if branch.session_id != record.id:
            raise ServiceError(f"Branch {branch.id} does not belong to session {record.id}; open it from its session.")
        return branch

    @contextmanager
    def _rollout(self, record: SessionRecord, branch: BranchRecord) -> Iterator[Rollout]:
        """The branch's rollout, live or rebuilt; after an error it is closed, since it may be ahead of the store."""
        rollout = self._pool.take(branch.id) or self._rebuild(record, branch)
        try:
            yield rollout
        except BaseException:
            rollout.close()
            raise
        self._pool.put(branch.id, rollout)

    def _rebuild(self, record: SessionRecord, branch: BranchRecord) -> Rollout:
        settings = settings_from_json(record.policy_settings["settings"])
        if settings.calibration_id is not None and record.calibration_id is None and settings.policy == "coft":
            raise ServiceError(
                f"The calibration “{record.calibration_label}” has been deleted, so this session cannot be "
                "continued; start a new one with another calibration."
            )
        if self._detectors.list_is_gone(settings):
            raise ServiceError(
                f"The word list “{record.policy_settings['user_list']}” has been deleted or replaced, so this session "
                "cannot be continued; start a new one."
            )
        spans = tuple(span_from(span) for span in record.spans)
        model = self._host.get(settings.model)
        prepared = self._planner.plan(model, record.prompt, spans, settings)
        stored = record.fingerprint
        now = (model.weights_digest, model.tokenizer_digest, self.detector(settings))
        if (stored["weights"], stored["tokenizer"], stored["detector"]) != now:
            raise ServiceError(CHANGED_MODEL)
        steps = [step_from(step) for step in self._sessions.chain(branch.id)]
        return Rollout(prepared, branch.path, steps)

    def _advance(self, branch: BranchRecord, rollout: Rollout) -> Step:
        with self._host.turn():
            step = rollout.step()
        self._keep(branch, rollout)
        return step

    def _keep(self, branch: BranchRecord, rollout: Rollout) -> None:
        """Store a rollout's newest step on its branch."""
        self._sessions.append_step(branch.id, step_record(rollout.steps[-1]))
        if rollout.finished:
            self._sessions.set_finished(branch.id, rollout.finished)

    def _lock(self, session_id: int) -> RLock:
        with self._locks_lock:
            return self._locks[session_id]


def _token_id(model: LanguageModel, token: int | str) -> int:
    if isinstance(token, int):
        return token
    token_id = model.single_token(token)
    if token_id is None:
        raise InvalidInputError(
            f"“{token}” is not one token of this model; type a shorter piece, and mind that a leading space counts."
        )
    return token_id
