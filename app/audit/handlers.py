"""What the audit page asks of the services for a session and its settings."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path

import gradio as gr

from app.audit.events import packed
from app.audit.until import until_from
from app.audit.words import (
    Message,
    contributions_message,
    draft_message,
    end_message,
    frame_message,
    preview_message,
    session_message,
    spans_from,
    spans_message,
)
from app.bootstrap import Services
from app.shared.audits import AuditSettings, CalibrationView, ReadingRequest, StartAudit
from app.shared.chain_words import calibration_choices, drift_badge
from app.shared.errors import USER_ERRORS
from app.shared.events import or_refusal, or_told, reply, shown, shown_stream, told
from app.shared.settings_rail import (
    FIELDS,
    Stored,
    as_kept,
    calibration_note,
    control_values,
    default_calibration,
    group_menu,
    kept_settings,
    known_policy,
    layout_from,
    method_note,
    settings_from,
    updates_from,
    without_parameters,
)
from app.tune.words import tuned_line
from coft_core.errors import CalibrationMismatch
from coft_core.model.loading import LoadingPhase
from coft_core.types import Step

FRAME_SECONDS = 0.1
"""A run tells the page of its tokens at most this often; the first one is told at once."""


def frames(
    steps: Iterator[Step], seconds: float = FRAME_SECONDS, clock: Callable[[], float] = time.monotonic
) -> Iterator[tuple[Step, ...]]:
    """Group steps by time, each step once; the last group ends with the last step.

    Args:
        steps: Steps as they are written.
        seconds: Shortest time between two groups.
        clock: Seconds that never go back.
    """
    frame: list[Step] = []
    told_at: float | None = None
    for step in steps:
        frame.append(step)
        if told_at is None or clock() - told_at >= seconds:
            yield tuple(frame)
            frame, told_at = [], clock()
    if frame:
        yield tuple(frame)


LOADING = '<p class="hint">Loading the model …</p>'
LOADING_PHASES = {
    LoadingPhase.TOKENIZER: "reading the tokenizer",
    LoadingPhase.WEIGHTS: "reading the weights",
    LoadingPhase.DIGEST: "taking the digest of the weights",
    LoadingPhase.WARM_UP: "running it for the first time",
}
NOT_LOADED = '<p class="hint">Not loaded. {why}</p>'


class AuditHandlers:
    """What the page asks of the services; every method builds one request and calls one service."""

    def __init__(self, services: Services) -> None:
        """Keep the services, and a folder for reports that lives as long as the page."""
        self._audits = services.audits
        self._calibrations = services.calibrations
        self._user_lists = services.user_lists
        self._reports = services.reports
        self._library = services.library
        self._tunings = services.tunings
        self._folder = tempfile.TemporaryDirectory(prefix="coft-reports-")

    @shown
    def open(self, event: gr.EventData) -> list[object]:
        """Show the asked-for session, a copy to be changed, or a blank page with the asked-for calibration."""
        stored = self._stored()
        if event.duplicate is not None:
            return self._draft(event, stored)
        if event.session is None:
            chosen = default_calibration(stored.calibrations, event.calibration)
            asked = AuditSettings(policy=known_policy(event.policy), calibration_id=chosen)
            return self._opened(event, {"kind": "blank"}, asked, stored)
        view = self._audits.view(int(event.session), event.branch)
        return self._opened(event, session_message(view), view.settings, stored)

    @shown
    def detect(self, event: gr.EventData, *values: object) -> Message:
        """Find the sensitive spans of the prompt."""
        return reply(event, spans_message(self._audits.detect(event.prompt, settings_from(without_parameters(values)))))

    @shown
    def preview(self, event: gr.EventData, *values: object) -> Message:
        """Read the prompt as the masked branch does."""
        settings = settings_from(without_parameters(values))
        found = self._audits.preview(event.prompt, spans_from(event.spans) or (), settings)
        return reply(event, preview_message(found))

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
        made = self._audits.step(*ids)
        steps = () if made is None else (made,)
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

    @shown
    def pause(self, event: gr.EventData) -> None:
        """End a run after its current token."""
        self._audits.pause(event.session)

    @shown
    def fork(self, event: gr.EventData) -> str:
        """Depart from the chain at a step with another token."""
        view = self._audits.fork(event.session, event.branch, event.index, event.token)
        return packed(event, session_message(view, start=event.index))

    @shown
    def report(self, event: gr.EventData) -> str:
        """Write the session's report to a file for download."""
        return str(self._reports.write_csv(event.session, Path(self._folder.name)))

    @shown
    def contribute(self, event: gr.EventData) -> Message:
        """Find out what each masked span contributes to each token of the chain."""
        found = self._audits.contributions(event.session, event.branch)
        return reply(event, dict(contributions_message(event.prompt, found)))

    @shown
    def overhead(self, event: gr.EventData) -> Message:
        """Measure what the session's policy costs."""
        return reply(event, {"kind": "overhead", "text": self._audits.overhead(event.session).sentence})

    def describe_model(self, name: str) -> Iterator[str]:
        """Say where and how the model runs, from loading to loaded in one event, so that no late part of it comes."""
        yield LOADING
        try:
            for phase in self._audits.loading(name):
                yield f'<p class="hint">Loading the model: {LOADING_PHASES[phase]} …</p>'
            model = self._audits.model(name)
        except USER_ERRORS as error:
            told(error)
            yield NOT_LOADED.format(why=escape(str(error), quote=False))
        else:
            yield f'<p class="hint" title="{escape(f"{model.details} {model.sentinel}")}">{escape(model.note)}</p>'

    def describe_calibration(self, *values: object) -> list[object]:
        """Say what the chosen calibration certifies with these settings, how it fits, and which groups it knows."""
        return or_told(lambda: self._calibration(values)) or [gr.skip()] * 3

    def describe_method(self, *values: object) -> str:
        """Say what keeps the chosen method from running with its parameters, where no single field says it already."""
        return method_note(values)

    def _calibration(self, values: tuple[object, ...]) -> list[object]:
        settings = settings_from(without_parameters(values))
        fit, whole = self._audits.fit(settings), self._read(settings)
        shown_view: CalibrationView | str | None = whole
        if whole is not None and settings.group in [item.name for item in whole.groups]:
            shown_view = or_refusal(lambda: self._read(settings, settings.group))
        groups = whole.groups if whole is not None else ()
        note = calibration_note(shown_view, fit, settings.policy)
        return [note, group_menu(groups, settings.group), gr.Button(visible=fit.adoptable)]

    def describe_tuned(self, *values: object) -> list[object]:
        """Say at which strength the chosen method was found to be best, if it was tuned."""
        found = or_told(lambda: self._tunings.tuned(settings_from(without_parameters(values))))
        return [tuned_line(found), gr.Button(visible=found is not None)]

    @shown
    def use_tuned(self, *values: object) -> list[object]:
        """Take over the tuned strength of the chosen method."""
        return self._shown(self._tunings.applied(settings_from(values)), self._stored())

    def describe_drift(self, number: int) -> str:
        """Say whether the audits so far speak against the chosen calibration."""
        return or_told(lambda: drift_badge(self._calibrations.drift(number), number)) or "" if number else ""

    @shown
    def menu(self, *values: object) -> object:
        """Offer the calibrations that fit mask, model and policy first."""
        given = dict(zip(FIELDS, values, strict=True))
        wanted = layout_from(given), str(given["model"]), str(given["policy"])
        return gr.Dropdown(calibration_choices(self._calibrations.list(), *wanted))

    @shown
    def adopt(self, *values: object) -> list[object]:
        """Take over the settings that the chosen calibration was made with."""
        return self._shown(self._audits.adopt(settings_from(values)), self._stored())

    def _draft(self, event: gr.EventData, stored: Stored) -> list[object]:
        """A stored session's prompt, spans and settings, for a new one."""
        made = self._library.prefill(int(event.duplicate))
        request = made.request
        preview = or_refusal(lambda: self._audits.preview(request.prompt, request.spans or (), request.settings))
        return self._opened(event, draft_message(made, preview), request.settings, stored)

    def _opened(self, event: gr.EventData, message: Message, settings: AuditSettings, stored: Stored) -> list[object]:
        """A message with the settings that belong to it; the controls show those that the page has kept, if any."""
        kept = settings if event.values is None else kept_settings(event.values, settings)
        shown_values = as_kept(control_values(kept, stored), event.values)
        values = {"settings": control_values(settings, stored), "shown": shown_values}
        return [packed(event, {**message, **values}), *self._shown(kept, stored, event.values)]

    def _stored(self) -> Stored:
        return Stored(self._calibrations.list(), self._user_lists.list(), self._audits.masked_families)

    def _read(self, settings: AuditSettings, group: str | None = None) -> CalibrationView | None:
        """The settings' calibration at their level, of one group alone if one is named."""
        number = settings.calibration_id
        return None if number is None else self._calibrations.view(number, ReadingRequest(settings.alpha, group=group))

    def _shown(self, settings: AuditSettings, stored: Stored, kept: object = None) -> list[object]:
        """Updates that make the controls show settings, with what was typed before a reload."""
        known = settings.calibration_id in [item.id for item in stored.calibrations]
        view = self._read(settings) if known else None
        values = as_kept(control_values(settings, stored), kept)
        return updates_from(values, stored, view.groups if view else ())
