"""Audit sessions: planned on a model, stepped one durable token at a time, forked and reopened."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from threading import Event, Lock, RLock

from app.services.calibrations import CalibrationService
from app.services.errors import ServiceError
from app.services.mapping import (
    preview_from_json,
    preview_of,
    preview_to_json,
    settings_from_json,
    span_from,
    span_record,
    step_from,
    step_record,
)
from app.services.model_host import ModelHost, RolloutPool, label_of
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
from coft_core.decode import ROOT_PATH, Plan, Rollout, fork_path, plan
from coft_core.engine.branches import BranchBatch
from coft_core.engine.model import LanguageModel
from coft_core.errors import InvalidInputError
from coft_core.masking.spans import SpanDetector
from coft_core.policies import CoftPolicy, Policy, VanillaPolicy
from coft_core.policies.fingerprint import MaskSettings, policy_fingerprint
from db.records import BranchRecord, SessionFields, SessionRecord
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
        detector: SpanDetector,
        live_rollouts: int = 16,
    ) -> None:
        """Wire the service.

        Args:
            sessions: The store of sessions.
            calibrations: Where thresholds come from.
            host: Owner of the models.
            detector: Finds sensitive spans.
            live_rollouts: Branches whose key-value memory is kept between requests.
        """
        self._sessions = sessions
        self._calibrations = calibrations
        self._host = host
        self._detector = detector
        self._pool = RolloutPool(live_rollouts)
        self._locks: defaultdict[int, RLock] = defaultdict(RLock)
        self._locks_lock = Lock()
        self._pauses: defaultdict[int, set[Event]] = defaultdict(set)

    def model(self, name: str) -> ModelView:
        """Load (once) and describe a model."""
        return self._host.describe(name)

    def detect(self, text: str) -> tuple[Span, ...]:
        """Sensitive spans of a text, sorted and disjoint."""
        return tuple(self._detector.detect(text))

    def preview(self, prompt: str, spans: tuple[Span, ...], settings: AuditSettings) -> MaskPreview:
        """The prompt as the masked branch reads it, with its warnings."""
        model = self._host.get(settings.model)
        # What is masked does not depend on the calibration, so a mismatch must not hide the preview.
        policy = _policy(replace(settings, policy="vanilla"), None)
        prepared = plan(model, prompt, policy, spans, detector=self._detector)
        _require_room(model, prepared)
        return preview_of(prepared.prompt, prepared.warnings)

    def start(self, request: StartAudit) -> AuditView:
        """Begin a session without a step.

        Raises:
            InvalidInputError: The prompt or a setting cannot be used.
            CalibrationMismatch: The calibration belongs to another policy and going on was not allowed.
            ServiceError: There is no such policy or calibration.
        """
        settings = request.settings
        model = self._host.get(settings.model)
        prepared = self._plan(model, request.prompt, request.spans, settings)
        _require_room(model, prepared)
        record = self._sessions.create(
            self._fields(request, prepared),
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
                if existing is None:
                    with self._host.turn():
                        forked = rollout.fork(index, token_id)
                    existing = self._sessions.add_branch(
                        session_id, parent.id, index, path, name=model.token_text(token_id)
                    )
                    self._store(existing, forked, forked.steps[-1])
            self._sessions.set_active_branch(session_id, existing.id)
        return self.view(session_id, existing.id)

    def open_branch(self, session_id: int, branch_id: int) -> AuditView:
        """Make a branch the one that the session reopens with."""
        self._sessions.set_active_branch(session_id, branch_id)
        return self.view(session_id, branch_id)

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

    def _plan(self, model: LanguageModel, prompt: str, spans: tuple[Span, ...] | None, settings: AuditSettings) -> Plan:
        calibration = None
        if settings.policy == "coft" and settings.calibration_id is not None:
            calibration = self._calibrations.load(settings.calibration_id).read(alpha=settings.alpha)
        return plan(
            model,
            prompt,
            _policy(settings, calibration),
            spans,
            seed=settings.seed,
            greedy=settings.greedy,
            max_new_tokens=settings.max_new_tokens,
            detector=self._detector,
        )

    def _fields(self, request: StartAudit, prepared: Plan) -> SessionFields:
        settings, model = request.settings, prepared.model
        certified = settings.policy == "coft" and settings.calibration_id is not None
        calibration = (
            self._calibrations.view(settings.calibration_id) if certified and settings.calibration_id else None
        )
        fingerprint = policy_fingerprint(
            model,
            lam=settings.lam if settings.policy == "coft" else 0.0,
            sampling=prepared.policy.sampling,
            mask=MaskSettings(sentinel=settings.sentinel),
            detector=self._detector.version,
            estimator=calibration.summary.estimator if calibration else "none",
            source=calibration.summary.source if calibration else "none",
        )
        return SessionFields(
            name=request.name or _name_of(request.prompt),
            prompt=request.prompt,
            model=model.name,
            model_revision=model.revision,
            policy=settings.policy,
            policy_settings={
                "settings": asdict(settings),
                "preview": preview_to_json(preview_of(prepared.prompt, prepared.warnings)),
                "model_label": label_of(model),
            },
            lam=settings.lam if settings.policy == "coft" else None,
            alpha=settings.alpha if certified else None,
            temperature=settings.temperature,
            top_p=settings.top_p,
            top_k=settings.top_k,
            greedy=settings.greedy,
            seed=settings.seed,
            max_new_tokens=settings.max_new_tokens,
            fingerprint=dict(fingerprint.to_dict()),
            fingerprint_digest=fingerprint.digest,
            certificate=prepared.certificate.text,
            calibration_id=settings.calibration_id if certified else None,
            calibration_label=calibration.summary.name if calibration else "",
            warnings=prepared.warnings,
        )

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
        spans = tuple(span_from(span) for span in record.spans)
        model = self._host.get(settings.model)
        prepared = self._plan(model, record.prompt, spans, settings)
        stored = record.fingerprint
        now = (model.weights_digest, model.tokenizer_digest, self._detector.version)
        if (stored["weights"], stored["tokenizer"], stored["detector"]) != now:
            raise ServiceError(CHANGED_MODEL)
        steps = [step_from(step) for step in self._sessions.chain(branch.id)]
        return Rollout(prepared, branch.path, steps)

    def _advance(self, branch: BranchRecord, rollout: Rollout) -> Step:
        with self._host.turn():
            step = rollout.step()
        self._sessions.append_step(branch.id, step_record(step))
        if rollout.finished:
            self._sessions.set_finished(branch.id, rollout.finished)
        return step

    def _store(self, branch: BranchRecord, rollout: Rollout, step: Step) -> None:
        self._sessions.append_step(branch.id, step_record(step))
        if rollout.finished:
            self._sessions.set_finished(branch.id, rollout.finished)
        self._pool.put(branch.id, rollout)

    def _lock(self, session_id: int) -> RLock:
        with self._locks_lock:
            return self._locks[session_id]


def _policy(settings: AuditSettings, calibration: object) -> Policy:
    controls = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "top_k": settings.top_k,
        "sentinel": settings.sentinel or None,
    }
    if settings.policy == "vanilla":
        return VanillaPolicy(**controls)  # type: ignore[arg-type]
    if settings.policy == "coft":
        return CoftPolicy(
            lam=settings.lam,
            calibration=calibration,  # type: ignore[arg-type]
            accept_mismatch=settings.proceed_uncertified,
            **controls,  # type: ignore[arg-type]
        )
    raise ServiceError(f"There is no policy {settings.policy!r}; choose 'coft' or 'vanilla'.")


def _require_room(model: LanguageModel, prepared: Plan) -> None:
    """Refuse a prompt that fills the context before a session of it is stored."""
    BranchBatch(model, [branch.input_ids for branch in prepared.policy.branches(prepared.prompt)]).close()


def _token_id(model: LanguageModel, token: int | str) -> int:
    if isinstance(token, int):
        return token
    token_id = model.single_token(token)
    if token_id is None:
        raise InvalidInputError(
            f"“{token}” is not one token of this model; type a shorter piece, and mind that a leading space counts."
        )
    return token_id


def _name_of(prompt: str) -> str:
    words = " ".join(prompt.split())
    return words if len(words) <= 60 else f"{words[:57].rstrip()}…"
