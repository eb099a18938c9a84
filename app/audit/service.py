"""Audit sessions: planned on a model, stepped one durable token at a time, forked and reopened."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from threading import Event, Lock, RLock
from typing import Any, Literal, cast, get_args
from weakref import WeakValueDictionary

from app.audit.finding import title
from app.audit.fitting import Fitting
from app.audit.live import LiveBranches
from app.hosting.limits import DiskRoom
from app.hosting.memory import Waiting
from app.hosting.model_host import ModelHost
from app.settings import Settings
from app.shared.audits import (
    SENSITIVE,
    AuditSettings,
    AuditView,
    ChainProgress,
    MaskPreview,
    StartAudit,
    settings_from_json,
)
from app.shared.errors import ServiceError, in_one_sentence
from app.shared.format import plural, quoted, signed
from app.shared.kept_controls import KeptControls
from app.shared.kept_steps import WrittenChain
from app.shared.planning import Detectors, Planner, rendering_of, vanilla
from app.shared.project_cache import InProject, ProjectCache, in_present
from app.shared.session_views import AuditViews
from app.shared.step_words import factual_overruled
from app.shared.thresholds import Thresholds
from app.shared.wiring import Services
from coft_core.controls.measure import measuring
from coft_core.controls.result import Controls, Evidence
from coft_core.controls.words import NeutralWords, read_words, shipped_words
from coft_core.decode.contributions import SPANS_AT_ONCE, LeaveOneOut, leave_one_out
from coft_core.decode.cost import Overhead, measure_overhead, measured, reserved_bytes
from coft_core.decode.loop import ROOT_PATH, Rollout
from coft_core.decode.plan import Plan
from coft_core.decode.reread import with_logits
from coft_core.effects import masked_words
from coft_core.model.server_client import checking
from coft_core.model.slots import rows_size
from coft_core.policies.vanilla import VanillaPolicy
from coft_core.text.detection import SpanDetector
from coft_core.text.masking import check_whitelist, keep_whitelisted
from coft_core.text.thinking import named_marks
from coft_core.types import Certificate, Span, Step
from db.audits import BranchRecord, SessionRecord
from db.sessions import SessionsRepository

TIMED_TOKENS = 8
"""Steps that are timed; the first one, which reads the prompt, is not."""
KEPT_FINDINGS = 2_000
"""Sessions whose finding is not read from their steps again."""


Comparing = Generator[float, None, Controls | None]
"""Yields the share of a comparison that is done, and returns its controls."""


def neutral_words(settings: Settings) -> NeutralWords:
    """The neutral words that marked words are compared with."""
    return read_words(Path(settings.neutral_words)) if settings.neutral_words else shipped_words()


class _Paused(BaseException):
    """Ends the wait for a server; the step is taken when the reviewer continues the text."""


def _raise_if(stop: Event) -> None:
    if stop.is_set():
        raise _Paused


class AuditService:
    """What a reviewer does with an audit."""

    def __init__(self, services: Services) -> None:
        self._sessions, self._host = services[SessionsRepository], services[ModelHost]
        self._room, self._detectors = services[DiskRoom], services[Detectors]
        self.masked_families = self._detectors.masked_families
        """Families that are masked unless the settings say otherwise."""
        thresholds, settings = services[Thresholds], services.settings
        marks = named_marks(settings.thinking_marks)
        self._planner = Planner(thresholds, self._detectors, self._host, settings.full_logits_kb, marks)
        self._controls, self._words = services[KeptControls], neutral_words(settings)
        self._live = LiveBranches(services, self._planner, self._words)
        self._views = services[AuditViews]
        self.model, self.loading, self.needs = self._host.describe, self._host.loading, self._host.needs
        fitting = services[Fitting]
        self.fit, self.adopt = fitting.fit, fitting.adopt
        self._locks: WeakValueDictionary[int, RLock] = WeakValueDictionary()
        self._locks_lock = Lock()
        self._pauses: defaultdict[InProject, set[Event]] = defaultdict(set)
        self._comparing: defaultdict[InProject, set[Event]] = defaultdict(set)
        self._findings: ProjectCache[int, tuple[datetime, str]] = ProjectCache(KEPT_FINDINGS)

    def detect(self, text: str, settings: AuditSettings | None = None) -> tuple[Span, ...]:
        """Sensitive spans of a text, sorted and disjoint, suggested ones included; None takes the usual settings."""
        chosen = settings or AuditSettings()
        spans = self._detectors.choose(chosen).detect(text)
        return keep_whitelisted(text, spans, check_whitelist(chosen.whitelist))

    def preview(self, prompt: str, spans: tuple[Span, ...], settings: AuditSettings) -> MaskPreview:
        """The prompt as the masked branches read it, with its warnings."""
        return self._planner.preview(self._host.get(settings.model), prompt, spans, settings)

    def context_length(self, name: str) -> int:
        """The longest sequence that a model takes, in tokens."""
        return self._host.get(name).context_length

    def start(self, request: StartAudit) -> AuditView:
        """Begin a session without a step."""
        self._room.require()
        settings = request.settings
        model = self._host.get(settings.model)
        before = None if request.repeats is None else self._sessions.get(request.repeats)
        rendering = None if before is None else rendering_of(before.rendering, model)
        prepared = self._planner.plan(model, request.prompt, request.spans, settings, rendering)
        record = self._sessions.create(
            self._planner.session_fields(request, prepared),
            prepared.prompt.spans,
            root_path=ROOT_PATH,
            root_name="main",
        )
        return self.view(record.id)

    def view(self, session_id: int, branch_id: int | None = None) -> AuditView:
        """A session from the store; needs no model. Without a branch, the active one."""
        record = self._sessions.get(session_id)
        return self._views.view(record, self.branch(session_id, branch_id))

    def settings(self, session_id: int) -> AuditSettings:
        """What a session was started with."""
        return settings_from_json(self._sessions.get(session_id).policy_settings["settings"])

    def progress(self, session_id: int, branch_id: int | None = None) -> ChainProgress:
        """What the steps so far say of a chain as a whole; takes a few milliseconds while the chain is live."""
        branch = self.branch(session_id, branch_id)
        return self._views.progress(self._sessions.get(session_id), branch, self._live.steps(branch.id))

    def step(self, session_id: int, branch_id: int | None = None, waiting: Waiting | None = None) -> Step | None:
        """Generate one token on a branch, the active one if None; durable when this returns. None at a chain's end."""
        with self._lock(session_id), in_one_sentence():
            branch = self._live.going(session_id, branch_id) or self.branch(session_id, branch_id)
            if branch.finished:
                return None
            step = None
            for attempt in self._host.memory.attempts():
                with attempt, self._live.rollout(branch, waiting=waiting) as rollout:
                    if rollout.finished:
                        self._sessions.set_finished(branch.id, rollout.finished)
                        return None
                    # Its forward takes a turn of its own, together with those of whoever else steps at this moment.
                    with measured(rollout, self._host.memory.peaks) as cost:
                        step = rollout.step()
                    self._live.keep(branch, rollout, cost())
            return step

    def run(
        self,
        session_id: int,
        branch_id: int | None = None,
        until: RunUntil | None = None,
        waiting: Waiting | None = None,
    ) -> Iterator[Step]:
        """Generate one durable step at a time: to the end, to :meth:`pause`, or to the step that meets a condition."""
        with self._stoppable(self._pauses, session_id) as stop:
            record, written = self._sessions.get(session_id), 0
            branch_id = self.branch(session_id, branch_id).id
            wanted = None if until is None else checked(until, record.certificate)
            while (step := self._next_step(session_id, branch_id, waiting, stop)) is not None:
                written += 1
                yield step
                if wanted is not None and met(wanted, step, written):
                    return

    def _next_step(self, session_id: int, branch_id: int, waiting: Waiting | None, stop: Event) -> Step | None:
        """A step, unless it is to stop; a server that has not answered by then is not waited for."""
        try:
            with checking(partial(_raise_if, stop)):
                return None if stop.is_set() else self.step(session_id, branch_id, waiting)
        except _Paused:
            return None

    def chain_work(self, session_id: int, branch_id: int) -> Callable[[], WrittenChain]:
        """What writes the rest of a branch without storing it, which another process may do; see :meth:`take_chain`."""
        with in_one_sentence():
            return self._live.chain_work(self.branch(session_id, branch_id))

    def take_chain(self, session_id: int, branch_id: int, chain: WrittenChain) -> None:
        """Store what was written elsewhere."""
        with self._lock(session_id):
            self._live.take(self.branch(session_id, branch_id), chain)

    def pause(self, session_id: int) -> None:
        """Stop every :meth:`run` of this session after its current step, and what compares its words."""
        key = in_present(session_id)
        for stop in (*self._pauses.get(key, ()), *self._comparing.get(key, ())):
            stop.set()

    @contextmanager
    def _stoppable(self, stops: defaultdict[InProject, set[Event]], session_id: int) -> Iterator[Event]:
        """Work on a session that :meth:`pause` ends."""
        stop, key = Event(), in_present(session_id)
        with self._locks_lock:
            stops[key].add(stop)
        try:
            yield stop
        finally:
            with self._locks_lock:
                stops[key].discard(stop)
                if not stops[key]:
                    del stops[key]

    def running(self, session_id: int) -> bool:
        """Whether a :meth:`run` of this session is under way in this process."""
        return bool(self._pauses.get(in_present(session_id)))

    @contextmanager
    def resting(self, session_id: int) -> Iterator[LiveBranches]:
        """Hold a session still, so that nothing steps or forks it meanwhile; gives the live rollouts."""
        with self._lock(session_id):
            if self.running(session_id):
                raise ServiceError("This session is running; pause it first.")
            yield self._live

    @contextmanager
    def leaving(self, chains: Mapping[int, Sequence[int]]) -> Iterator[None]:
        """Hold sessions still that leave the present project, and let their live chains go once they have left."""
        with ExitStack() as held:
            for session_id in sorted(chains):
                held.enter_context(self._lock(session_id))
                if self.running(session_id):
                    raise ServiceError(f"Session {session_id} is running; pause it first. Nothing was changed.")
            yield
            self._live.drop([branch for branches in chains.values() for branch in branches])

    def fork(self, session_id: int, branch_id: int, index: int, token: int | str) -> AuditView:
        """Depart from a branch at a step (0-based) with another token: an id, or text that is one token.

        Forcing the same token at the same place again opens the branch that exists already.
        """
        with self._lock(session_id):
            parent = self.branch(session_id, branch_id)
            with in_one_sentence():
                for attempt in self._host.memory.attempts():
                    with attempt, self._live.rollout(parent, copies=1) as rollout:
                        branch = self._live.forked(parent, rollout, index, token)
            self._sessions.set_active_branch(session_id, branch.id)
        return self.view(session_id, branch.id)

    def alone(self, session_id: int) -> Iterator[Step]:
        """What the model alone writes with the same draws, with both readings of each step; it is not stored."""
        plan = self._alone(session_id)
        # Each forward takes a turn of its own, because a page may ask for each step from another thread.
        room = self._host.memory.budget.room(reserved_bytes(plan, plan.max_new_tokens))
        with room, closing(Rollout(plan, forwards=self._host.forwards)) as rollout:
            while not rollout.finished:
                step = rollout.step()
                if rollout.finished != "end":
                    yield step

    def _alone(self, session_id: int) -> Plan:
        record, settings = self._sessions.get(session_id), self.settings(session_id)
        model = self._host.get(settings.model)
        rendering = rendering_of(record.rendering, model)
        return self._planner.plan(model, record.prompt, record.spans, vanilla(settings), rendering)

    def compared(self, session_id: int, tokens: Sequence[int], watched: Sequence[Sequence[int]] = ()) -> Comparing:
        """The controls of a text that follows the prompt as the model alone reads it; nothing is stored."""
        return self._compare(session_id, lambda: self._alone(session_id), tokens, watched)

    def comparing(self, session_id: int, branch_id: int | None = None) -> Comparing:
        """The controls of a branch's chain, which are stored; those that are stored already are not measured again."""
        branch, record = self.branch(session_id, branch_id), self._sessions.get(session_id)
        tokens, known = [step.token_id for step in self._live.steps(branch.id)], self.controls(session_id, branch.id)
        if known is not None and known.steps == len(tokens):
            return known
        if self._sessions.origin(session_id) is not None:
            return known
        found = yield from self._compare(session_id, lambda: self._live.plan(record, thresholds=False), tokens)
        if found is not None:
            self._controls.keep(branch.id, found)
        return found

    def _compare(
        self, session_id: int, plan: Callable[[], Plan], tokens: Sequence[int], watched: Sequence[Sequence[int]] = ()
    ) -> Comparing:
        """None where the session compares with nothing, or where :meth:`pause` ends it."""
        count = self.settings(session_id).controls
        if not count or not tokens:
            return None
        measuring_them = measuring(
            plan(), tokens, count, words=self._words, watched=watched, room=self._host.memory.room()
        )
        with self._stoppable(self._comparing, session_id) as stop, closing(measuring_them):
            while not stop.is_set():
                try:
                    with checking(partial(_raise_if, stop)):
                        share = next(measuring_them)
                except StopIteration as end:
                    return cast("Controls", end.value)
                except _Paused:
                    return None
                yield share
        return None

    def controls(self, session_id: int, branch_id: int) -> Controls | None:
        """The stored controls of a branch."""
        return self._controls.of_session(session_id).get(branch_id)

    @property
    def evidence(self) -> Evidence:
        """What the prompts of this project that were audited one by one say together."""
        return self._controls.evidence

    def refers(self, session_id: int) -> Callable[[str], bool]:
        """What tells whether a token names a marked word, or another word of a marked family."""
        record, settings = self._sessions.get(session_id), self.settings(session_id)
        words = {word.casefold() for word in masked_words(record.prompt, record.spans)}
        families = {span.category for span in record.spans if span.masked}

        def refers(token: str) -> bool:
            word = token.strip()
            return word.casefold() in words or any(span.category in families for span in self.detect(word, settings))

        return refers

    def finding(self, session_id: int) -> str:
        """The finding of the active branch in one short sentence, as lists name it; empty before its first step."""
        record = self._sessions.get(session_id)
        known = self._findings.get(session_id)
        if known is None or known[0] != record.updated_at:
            branch = self.branch(session_id, None).id
            marks, controls = masked_words(record.prompt, record.spans), self.controls(session_id, branch)
            told = title(marks, self._live.steps(branch), self.refers(session_id), controls)
            self._findings[session_id] = known = record.updated_at, told
        return known[1]

    def contributions(self, session_id: int, branch_id: int | None = None) -> LeaveOneOut:
        """What each masked span contributes to the sensitivity of each token of a chain; needs the model."""
        record = self._sessions.get(session_id)
        tokens = [step.token_id for step in self._live.steps(self.branch(session_id, branch_id).id)]
        # Thresholds play no part in it, so that a deleted calibration is no obstacle.
        prepared = self._live.plan(record, thresholds=False)
        detector, spans = self._detector(record), prepared.prompt.spans
        model, rows = prepared.model, min(len(spans), SPANS_AT_ONCE) + 2
        size = rows_size(model, rows, len(prepared.prompt.factual_ids) + len(tokens))
        work = partial(leave_one_out, model, record.prompt, prepared.policy, tokens, spans, detector=detector)
        return self._host.memory.run(size, work)

    def read_again(
        self, session_id: int, steps: Sequence[Step], read: Callable[[Sequence[Step]], Sequence[Step]]
    ) -> list[Step]:
        """What a function reads of a chain's steps with their logits, which the model computes again."""
        prepared = self._live.plan(self._sessions.get(session_id), thresholds=False)
        prompt = prepared.prompt
        size = rows_size(prepared.model, len(prepared.policy.branches(prompt)), len(prompt.factual_ids) + len(steps))
        return self._host.memory.run(size, lambda: [one for part in with_logits(prepared, steps) for one in read(part)])

    def overhead(self, session_id: int) -> Overhead:
        """Measured time per token of the session's policy against vanilla decoding; needs the model."""
        record = self._sessions.get(session_id)
        prepared = self._live.plan(record)
        room = prepared.model.context_length - len(prepared.prompt.factual_ids) - 1
        if room < 1:
            raise ServiceError("The prompt fills the model's context, so that there is no step to time; shorten it.")
        sampling, tokens = prepared.policy.sampling, min(TIMED_TOKENS, room)
        work = partial(
            measure_overhead,
            prepared.model,
            record.prompt,
            prepared.policy,
            VanillaPolicy(
                temperature=sampling.temperature, top_p=sampling.top_p, top_k=sampling.top_k, observe_masked=False
            ),
            prepared.prompt.spans,
            tokens,
            detector=self._detector(record),
            models=prepared.models,
            scorers=self._host.scorers(prepared.policy, prepared.model),
        )
        # The baseline runs no row beside the factual one, and both are decoded one after the other.
        return self._host.memory.run(reserved_bytes(prepared, tokens + 1), work)

    def delete(self, session_id: int) -> None:
        """Delete a session with everything that belongs to it."""
        self.pause(session_id)
        with self._lock(session_id):
            branches = {branch.id for branch in self._sessions.branches(session_id)}
            self._sessions.delete(session_id)
            self._live.drop(branches)

    def _detector(self, record: SessionRecord) -> SpanDetector:
        return self._detectors.choose(settings_from_json(record.policy_settings["settings"]))

    def branch(self, session_id: int, branch_id: int | None) -> BranchRecord:
        """A branch of a session, its active one if None; one small query, since every step asks."""
        if branch_id is None:
            return self._sessions.active_branch(session_id)
        branch = self._sessions.branch(branch_id)
        if branch.session_id != session_id:
            raise ServiceError(f"Branch {branch.id} does not belong to session {session_id}; open it from its session.")
        return branch

    def _lock(self, session_id: int) -> RLock:
        with self._locks_lock:
            return self._locks.setdefault(session_id, RLock())


UntilKind = Literal["fallback", "sensitive", "overruled", "steps"]
"""What a run may be stopped by, beside the end of the chain."""


@dataclass(frozen=True, slots=True)
class RunUntil:
    """The step that ends a run: it is the last one written."""

    kind: UntilKind
    threshold: float = SENSITIVE
    steps: int = 20


FORMS = "fallback, sensitive, sensitive:0.5, overruled or steps:20"
MOST_STEPS = 100_000


def met(until: RunUntil, step: Step, written: int) -> bool:
    """Whether a step ends the run, which has written so many steps with this one."""
    if until.kind == "fallback":
        return step.fallback
    if until.kind == "sensitive":
        return abs(step.diagnostics.log_ratio) >= until.threshold
    return factual_overruled(step) if until.kind == "overruled" else written >= until.steps


def checked(until: RunUntil, certificate: str) -> RunUntil:
    """A condition that a session of this certificate can meet."""
    if until.kind not in get_args(UntilKind):
        raise ServiceError(f"A run cannot be stopped by {until.kind!r}; use {FORMS}.")
    if until.kind == "sensitive" and not (math.isfinite(until.threshold) and until.threshold > 0):
        raise ServiceError(f"The sensitivity to stop at is {until.threshold}; it must be a number above 0.")
    if until.kind == "steps" and not 1 <= until.steps <= MOST_STEPS:
        raise ServiceError(f"The number of steps to write is {until.steps}; it must be from 1 to {MOST_STEPS:,}.")
    thresholded = Certificate.read(certificate).thresholded
    if until.kind in ("fallback", "overruled") and not thresholded:
        raise ServiceError(
            "This session has no threshold, so no step of it can refuse a token; run until a sensitive token or for a "
            "number of steps, or start one with a calibration."
        )
    return until


def until_from_text(text: str) -> RunUntil:
    """Read a condition such as ``"sensitive:0.5"`` or ``"steps:20"``."""
    kind, _, value = text.strip().partition(":")
    try:
        if kind == "steps" and value:
            return RunUntil("steps", steps=int(value))
        if kind == "sensitive":
            return RunUntil("sensitive", threshold=float(value)) if value else RunUntil("sensitive")
        if kind in ("fallback", "overruled") and not value:
            return RunUntil(cast(UntilKind, kind))
    except ValueError:
        pass
    raise ServiceError(f"{text!r} is not a place to stop; use {FORMS}.")


def until_from(choice: object) -> RunUntil | None:
    """A condition as the browser sends it; None runs to the end."""
    if not isinstance(choice, dict):
        return None
    kind: Any = choice.get("kind")
    try:
        if kind == "steps":
            return RunUntil("steps", steps=int(choice["steps"]))
        if kind == "sensitive":
            return RunUntil("sensitive", threshold=float(choice["threshold"]))
    except (KeyError, TypeError, ValueError) as error:
        what = "tokens to write" if kind == "steps" else "sensitivity to stop at"
        raise ServiceError(f"The number of {what} is missing; write one beside the choice.") from error
    return RunUntil(kind)  # the service refuses what it does not know


def stop_sentence(until: RunUntil | None, last: Step | None, written: int, finished: str | None) -> str:
    """Why a run stopped, in words; empty where it was to run to the end and did."""
    if last is None:
        return ""
    step = last.index + 1
    if until is not None and met(until, last, written):
        return f"Stopped at step {step}: {_reason(until, last, written)}."
    if finished is None:
        return f"Paused at step {step}."
    return "" if until is None else f"The text ended at step {step}: {_never(until, written)}."


def _reason(until: RunUntil, step: Step, written: int) -> str:
    ratio, likeliest = signed(step.diagnostics.log_ratio), quoted(step.candidates[0].token) if step.candidates else ""
    return {
        "fallback": "no token reached the threshold",
        "sensitive": f"the sensitivity of {quoted(step.token)} is {ratio}, {until.threshold:g} was asked for",
        "overruled": f"{likeliest} is likeliest without the mask, and not certified",
        "steps": f"{plural(written, 'token')} {'was' if written == 1 else 'were'} written",
    }[until.kind]


def _never(until: RunUntil, written: int) -> str:
    return {
        "fallback": "at every step that was written some token reached the threshold",
        "sensitive": f"no token that was written reached a sensitivity of {until.threshold:g}",
        "overruled": "the likeliest token without the mask was always certified",
        "steps": f"only {written} of {until.steps} tokens could be written",
    }[until.kind]
