"""What the audit page asks of the services for a session, its branches and its rereading."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from typing import cast

import gradio as gr
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.audit.finding import compared_message, finding_message, watched
from app.audit.panel import SettingsHandlers
from app.audit.reread import RereadService
from app.audit.rereading import RereadRequest, rereading_message
from app.audit.service import AuditService, Comparing, until_from
from app.audit.words import (
    beside_message,
    contributions_message,
    end_message,
    frame_message,
    prune_message,
    session_message,
    tree_message,
)
from app.jobs.watch import asked_number
from app.prompts.words import Message, draft_message, spans_from
from app.sessions.service import SessionLibrary
from app.shared.audits import AuditSettings, StartAudit
from app.shared.errors import USER_ERRORS
from app.shared.events import or_refusal, packed, reply, shown, shown_stream, shown_to
from app.shared.format import shown_token
from app.shared.needs import LOOK, READ, needs
from app.shared.settings_rail import (
    StoredChoices,
    as_kept,
    control_values,
    kept_settings,
    settings_from,
    usual_settings,
)
from app.shared.wiring import Services
from coft_core.controls.result import Controls
from coft_core.effects import masked_words
from coft_core.errors import CalibrationMismatch
from coft_core.types import Step

FRAME_SECONDS = 0.1
"""A run tells the page of its tokens at most this often; the first one is told at once."""


def frames(
    steps: Iterator[Step], seconds: float = FRAME_SECONDS, clock: Callable[[], float] = time.monotonic
) -> Iterator[tuple[Step, ...]]:
    """Group steps by time (seconds), each step once; the last group ends with the last step."""
    frame: list[Step] = []
    told_at: float | None = None
    for step in steps:
        frame.append(step)
        if told_at is None or clock() - told_at >= seconds:
            yield tuple(frame)
            frame, told_at = [], clock()
    if frame:
        yield tuple(frame)


class AuditHandlers(SettingsHandlers):
    """What the page asks for a session; every method builds one request and calls one service."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._library = services[SessionLibrary]

    @shown_to(READ)
    def open(self, event: gr.EventData) -> list[object]:
        """Show the asked-for session, a copy to be changed, or a blank page with the asked-for calibration."""
        stored = self.stored()
        if event.duplicate is not None:
            draft = self._library.prefill(int(event.duplicate))
            request = draft.request
            preview = or_refusal(lambda: self._audits.preview(request.prompt, request.spans or (), request.settings))
            return self._opened(event, draft_message(request, draft.notes, preview), request.settings, stored)
        if event.session is None:
            settings = usual_settings(stored, event.calibration, event.policy)
            return self._opened(event, {"kind": "blank"}, settings, stored)
        view = self._audits.view(int(event.session), event.branch)
        return self._opened(event, session_message(view), view.settings, stored)

    def first_message(self, session_id: int, branch_id: int | None) -> Message:
        """What a page whose address names a session draws first; :meth:`settle` sets its controls afterwards."""
        view = self._audits.view(session_id, branch_id)
        values = control_values(view.settings, self.stored())
        return {**session_message(view), "settings": values, "shown": values}

    @shown
    def settle(self, event: gr.EventData) -> list[object]:
        """Set the controls to the settings of a session that the page shows already."""
        return self.updates(self._audits.settings(int(event.session)), self.stored(), None)

    @shown
    def start(self, event: gr.EventData, *values: object) -> str:
        """Begin a session; a calibration of another policy is told apart, because one may proceed."""
        settings = settings_from(values, bool(event.proceed))
        try:
            view = self._audits.start(StartAudit(event.prompt, settings, spans_from(event.spans)))
        except CalibrationMismatch as mismatch:
            return packed(event, {"kind": "mismatch", "text": str(mismatch)})
        return packed(event, {**session_message(view), "settings": list(values)})

    @shown
    def step(self, event: gr.EventData) -> str:
        """Write one token."""
        ids = (event.session, event.branch)
        step = self._audits.step(*ids)
        steps = () if step is None else (step,)
        return packed(event, {**frame_message(*ids, steps, self._audits.progress(*ids)), "done": True})

    @shown_stream
    def run(self, event: gr.EventData) -> Iterator[str]:
        """Write tokens until the end, a pause, or the step that meets the asked-for condition."""
        until, ids = until_from(event.until), (event.session, event.branch)
        written, last = 0, None
        for frame in frames(self._audits.run(*ids, until)):
            written, last = written + len(frame), frame[-1]
            yield packed(event, frame_message(*ids, frame, self._audits.progress(*ids)))
        yield packed(event, end_message(*ids, self._audits.progress(*ids), until, last, written))

    @shown
    def more(self, event: gr.EventData) -> str:
        """Give the steps from a place on, to a page that has lost some of them."""
        ids = (event.session, event.branch)
        steps = self._audits.view(*ids).steps[event.since :]
        return packed(event, {**frame_message(*ids, steps, self._audits.progress(*ids)), "filled": True})

    @shown_to(LOOK)
    def pause(self, event: gr.EventData) -> None:
        """End a run after its current token."""
        self._audits.pause(event.session)

    @shown
    def fork(self, event: gr.EventData) -> str:
        """Depart from the chain at a step with another token."""
        view = self._audits.fork(event.session, event.branch, event.index, event.token)
        return packed(event, session_message(view, start=event.index))

    @shown_to(LOOK)
    def contribute(self, event: gr.EventData) -> Message:
        """Find out what each masked span contributes to each token of the chain."""
        return reply(
            event, contributions_message(event.prompt, self._audits.contributions(event.session, event.branch))
        )

    @shown_stream
    def find(self, event: gr.EventData) -> Iterator[Message]:
        """Say what the marked words change in what the model alone writes, which is told while it is written."""
        view, alone = self._audits.view(event.session), list[Step]()
        progress = {"kind": "writing", "session": view.session_id, "total": view.settings.max_new_tokens}
        for frame in frames(self._audits.alone(event.session)):
            alone += frame
            yield reply(event, {**progress, "alone": [shown_token(step.token) for step in alone]})
        told = (view.prompt, masked_words(view.prompt, view.spans), alone, self._audits.refers(event.session))
        yield reply(event, finding_message(*told))
        tokens = [step.token_id for step in alone]
        controls = yield from _told(event, self._audits.compared(event.session, tokens, watched(alone)))
        yield reply(event, finding_message(*told, controls, done=True))

    @shown_stream
    def compare(self, event: gr.EventData) -> Iterator[Message]:
        """Compare the marked words of a chain that has ended with other words, and say what all such prompts show."""
        controls = yield from _told(event, self._audits.comparing(event.session, event.branch))
        yield reply(event, compared_message(event.session, event.branch, controls, self._audits.evidence))

    @shown_to(LOOK)
    def overhead(self, event: gr.EventData) -> Message:
        """Measure what the session's policy costs."""
        return reply(event, {"kind": "overhead", "text": self._audits.overhead(event.session).sentence})

    def _opened(
        self, event: gr.EventData, message: Message, settings: AuditSettings, stored: StoredChoices
    ) -> list[object]:
        """A message with the settings that belong to it; the controls show those that the page has kept, if any."""
        kept = settings if event.values is None else kept_settings(event.values, settings)
        values = {
            "settings": control_values(settings, stored),
            "shown": as_kept(control_values(kept, stored), event.values),
        }
        return [packed(event, {**message, **values}), *self.updates(kept, stored, event.values)]


def _told(event: gr.EventData, work: Comparing) -> Generator[Message, None, Controls | None]:
    """Report how far a comparison is, and return its controls."""
    while True:
        try:
            share = next(work)
        except StopIteration as end:
            return cast("Controls | None", end.value)
        yield reply(event, {"kind": "comparing", "session": event.session, "share": share})


class BranchHandlers:
    """What the page asks for the tree of branches, which is read again afterwards."""

    def __init__(self, services: Services) -> None:
        self._audits = services[AuditService]
        self._library = services[SessionLibrary]

    @shown_to(READ)
    def tree(self, event: gr.EventData) -> Message:
        """Read the tree again, as seen from the shown branch."""
        return reply(event, {**tree_message(self._audits.view(event.session, event.shown)), "said": ""})

    @shown
    def rename(self, event: gr.EventData) -> Message:
        """Give a branch another name."""
        self._library.rename_branch(event.session, event.branch, str(event.name))
        return reply(event, {**tree_message(self._audits.view(event.session, event.shown)), "said": "Renamed."})

    @shown_to(LOOK)
    def ponder(self, event: gr.EventData) -> Message:
        """Say what pruning a branch would take along, or why it cannot be pruned."""
        return reply(event, prune_message(event.branch, self._library.prune_preview(event.session, event.branch)))

    @shown
    def prune(self, event: gr.EventData) -> Message:
        """Delete a branch and all that depart from it."""
        view = self._library.prune(event.session, event.branch)
        there = any(branch.id == event.shown for branch in view.branches)
        seen = self._audits.view(event.session, event.shown) if there else view
        return reply(event, {**tree_message(seen), "said": "Pruned."})

    @shown_to(READ)
    def beside(self, event: gr.EventData) -> Message:
        """Put two chains of the session beside each other, from where they part."""
        left, right = (self._audits.view(event.session, branch) for branch in event.pair)
        return reply(event, beside_message(left, right))


class RereadingHandlers:
    """What the page asks for a chain at another lambda or alpha."""

    def __init__(self, services: Services) -> None:
        self._rereads = services[RereadService]
        self._audits = services[AuditService]

    @needs(READ)
    @shown_stream
    def reread(self, event: gr.EventData) -> Iterator[Message]:
        """Read the chain; why it cannot be read is shown in the panel and not as an error."""
        of_chain, asked = {"session": event.session, "branch": event.branch}, _reading(event)
        if or_refusal(lambda: self._rereads.needs_model(asked)) is True:
            yield reply(event, {**of_chain, "kind": "waiting", "text": "The model reads this text again …"})
        message = or_refusal(lambda: rereading_message(self._rereads.read(asked)))
        refused = {**of_chain, "kind": "refused", "text": message}
        yield reply(event, refused if isinstance(message, str) else message)

    @shown_stream
    def depart(self, event: gr.EventData) -> Iterator[Message]:
        """Begin an audit at these settings and run it to the step at which it departs."""
        told_at = 0.0
        for way in self._rereads.depart(_reading(event)):
            if way.done or time.monotonic() - told_at >= FRAME_SECONDS:
                text = way.sentence if way.done else f"Writing token {way.written + 1} of {way.target} …"
                ids = {"session": way.session_id, "branch": way.branch_id}
                yield reply(event, {**ids, "kind": "departed" if way.done else "departing", "text": text})
                told_at = time.monotonic()

    @shown_to(READ)
    def halt(self, event: gr.EventData) -> None:
        """End the way to a new audit after its current token."""
        self._audits.pause(event.session)


def _reading(event: gr.EventData) -> RereadRequest:
    return RereadRequest(event.session, event.lam, event.alpha, event.branch)


class FirstChain:
    """Answers with the message that the page's event ``open`` would bring."""

    def __init__(self, handlers: AuditHandlers) -> None:
        self._handlers = handlers

    @property
    def routes(self) -> list[Route]:
        """Where the page asks."""
        return [Route("/audit/chain", self.answer)]

    def answer(self, request: Request) -> Response:
        """The chain; nothing where the event would say why there is none."""
        session, branch = (asked_number(request, name) for name in ("session", "branch"))
        try:
            if session is not None:
                message = self._handlers.first_message(session, branch)
                return JSONResponse(message, headers={"Cache-Control": "no-store"})
        except USER_ERRORS:
            pass
        return Response(status_code=404)
