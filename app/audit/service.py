"""Audit sessions: planned on a model, stepped one durable token at a time, forked and reopened."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Event, Lock, RLock

from app.audit.fitting import Fitting
from app.shared.audits import (
    AuditSettings,
    AuditView,
    ChainProgress,
    MaskPreview,
    ModelView,
    RunUntil,
    SessionSummary,
    SettingsFit,
    StartAudit,
)
from app.shared.errors import ServiceError
from app.shared.mapping import settings_from_json, span_record
from app.shared.memory import Waiting
from app.shared.model_host import ModelHost
from app.shared.planning import Detectors, Planner, rendering_of
from app.shared.rollouts import RolloutPool, Rollouts, Stepping, computations_of, session_noise
from app.shared.session_views import AuditViews, summary_from
from app.shared.thresholds import Thresholds
from coft_core.decode.contributions import SPANS_AT_ONCE, LeaveOneOut, leave_one_out
from coft_core.decode.cost import Overhead, measure_overhead, reserved_bytes
from coft_core.decode.loop import ROOT_PATH
from coft_core.decode.plan import Plan
from coft_core.model.loading import LoadingPhase
from coft_core.model.slots import rows_size
from coft_core.policies.vanilla import VanillaPolicy
from coft_core.text.detection import SpanDetector
from coft_core.text.masking import check_whitelist, keep_whitelisted
from coft_core.types import Span, Step
from db.records import BranchRecord, SessionRecord
from db.sessions import SessionsRepository

KINDS = ("fallback", "sensitive", "overruled", "steps")
FORMS = "fallback, sensitive, sensitive:0.5, overruled or steps:20"
MOST_STEPS = 100_000


def factual_overruled(step: Step) -> bool:
    """Whether the token that the factual view likes best was not certified, where there is a threshold at all.

    Comparisons and batches count something narrower: steps at which the *fused* favourite gave way to another token.
    """
    return step.state != "none" and bool(step.candidates) and not step.candidates[0].certified


def met(until: RunUntil, step: Step, written: int) -> bool:
    """Whether a step ends the run.

    Args:
        until: The condition.
        step: The step that was written last.
        written: Steps that the run has written, this one included.
    """
    if until.kind == "fallback":
        return step.fallback
    if until.kind == "sensitive":
        return abs(step.diagnostics.log_ratio) >= until.threshold
    return factual_overruled(step) if until.kind == "overruled" else written >= until.steps


def checked(until: RunUntil, certificate: str) -> RunUntil:
    """A condition that a session of this certificate can meet.

    Args:
        until: The condition.
        certificate: The session's certificate, ``"certified"`` or ``"uncertified: ..."``.

    Raises:
        ServiceError: There is no such condition, a number is outside its range, or the session has no threshold.
    """
    if until.kind not in KINDS:
        raise ServiceError(f"A run cannot be stopped by {until.kind!r}; use {FORMS}.")
    if until.kind == "sensitive" and not (math.isfinite(until.threshold) and until.threshold > 0):
        raise ServiceError(f"The sensitivity to stop at is {until.threshold}; it must be a number above 0.")
    if until.kind == "steps" and not 1 <= until.steps <= MOST_STEPS:
        raise ServiceError(f"The number of steps to write is {until.steps}; it must be from 1 to {MOST_STEPS:,}.")
    thresholded = certificate == "certified" or "policy mismatch" in certificate
    if until.kind in ("fallback", "overruled") and not thresholded:
        raise ServiceError(
            "This session has no threshold, so no step of it can refuse a token; run until a sensitive token or for a "
            "number of steps, or start one with a calibration."
        )
    return until


def until_from_text(text: str) -> RunUntil:
    """Read a condition such as ``"sensitive:0.5"`` or ``"steps:20"``.

    Raises:
        ServiceError: The text is none.
    """
    kind, _, value = text.strip().partition(":")
    try:
        if kind == "steps" and value:
            return RunUntil("steps", steps=int(value))
        if kind == "sensitive":
            return RunUntil("sensitive", threshold=float(value)) if value else RunUntil("sensitive")
        if kind in ("fallback", "overruled") and not value:
            return RunUntil("fallback" if kind == "fallback" else "overruled")
    except ValueError:
        pass
    raise ServiceError(f"{text!r} is no place to stop at; use {FORMS}.")


def stop_sentence(until: RunUntil | None, last: Step | None, written: int, finished: str | None) -> str:
    """Why a run stopped, in words; empty where it was to run to the end and did.

    Args:
        until: The condition; None ran to the end.
        last: The step that was written last; None if there was none.
        written: Steps that the run has written.
        finished: Why the chain cannot go on, None if it can.
    """
    if last is None:
        return ""
    step = last.index + 1
    if until is not None and met(until, last, written):
        return f"Stopped at step {step}: {_why(until, last, written)}."
    if finished is None:
        return f"Paused at step {step}."
    return "" if until is None else f"The chain ended at step {step}: {_why_not(until, written)}."


def _why(until: RunUntil, step: Step, written: int) -> str:
    if until.kind == "fallback":
        return "no token reached the threshold"
    if until.kind == "sensitive":
        ratio = step.diagnostics.log_ratio
        shown = f"{'+' if ratio > 0 else '−'}{abs(ratio):.2f}"
        return f"the sensitivity of “{step.token.strip()}” is {shown}, {until.threshold:g} was asked for"
    if until.kind == "overruled":
        return f"“{step.candidates[0].token.strip()}” is likeliest without the mask, and not certified"
    return "1 token was written" if written == 1 else f"{written} tokens were written"


def _why_not(until: RunUntil, written: int) -> str:
    if until.kind == "fallback":
        return "at every step that was written some token reached the threshold"
    if until.kind == "sensitive":
        return f"no token that was written reached a sensitivity of {until.threshold:g}"
    if until.kind == "overruled":
        return "the likeliest token without the mask was always certified"
    return f"only {written} of {until.steps} tokens could be written"


TIMED_TOKENS = 8
"""Steps that are timed; the first one, which reads the prompt, is not."""


class Measurements:
    """Runs the model again on stored sessions; nothing of it is stored."""

    def __init__(self, rollouts: Rollouts, detectors: Detectors, host: ModelHost) -> None:
        """Wire to the sessions' plans, their detectors and the models."""
        self._rollouts = rollouts
        self._detectors = detectors
        self._host = host

    def contributions(self, record: SessionRecord, tokens: Sequence[int]) -> LeaveOneOut:
        """What each masked span contributes to the sensitivity of each token of a chain.

        Args:
            record: The session.
            tokens: The chain.

        Raises:
            ServiceError: The model or the detector is no longer what it was.
            InvalidInputError: The chain has no token.
        """
        # Thresholds play no part in it, so that a deleted calibration is no obstacle.
        prepared = self._rollouts.plan(record, thresholds=False)
        detector, spans = self._detector(record), prepared.prompt.spans
        model, rows = prepared.model, min(len(spans), SPANS_AT_ONCE) + 2
        size = rows_size(model, rows, len(prepared.prompt.factual_ids) + len(tokens))
        work = partial(leave_one_out, model, record.prompt, prepared.policy, tokens, spans, detector=detector)
        return self._host.memory.run(size, work)

    def overhead(self, record: SessionRecord) -> Overhead:
        """Time per token of the session's policy against vanilla decoding, measured now.

        Raises:
            ServiceError: The session cannot be continued, or its prompt leaves no room to measure.
        """
        prepared = self._rollouts.plan(record)
        sampling, spans = prepared.policy.sampling, prepared.prompt.spans
        baseline = VanillaPolicy(sampling.temperature, sampling.top_p, sampling.top_k, observe_masked=False)
        tokens, detector = _room(prepared), self._detector(record)
        work = partial(
            measure_overhead,
            prepared.model,
            record.prompt,
            prepared.policy,
            baseline,
            spans,
            tokens,
            detector=detector,
            models=prepared.models,
            scorers=self._host.scorers(prepared.policy, prepared.model),
        )
        # The baseline runs no row beside the factual one, and both are decoded one after the other.
        return self._host.memory.run(reserved_bytes(prepared, tokens + 1), work)

    def _detector(self, record: SessionRecord) -> SpanDetector:
        return self._detectors.choose(settings_from_json(record.policy_settings["settings"]))


def _room(prepared: Plan) -> int:
    room = prepared.model.context_length - len(prepared.prompt.factual_ids) - 1
    if room < 1:
        raise ServiceError("The prompt fills the model's context, so that there is no step to time; shorten it.")
    return min(TIMED_TOKENS, room)


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
