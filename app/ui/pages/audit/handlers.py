"""What the audit page asks of the services for a session and its settings."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from html import escape
from pathlib import Path

import gradio as gr

from app.services.errors import CalibrationMismatch
from app.services.ports import Services
from app.services.views import AuditSettings, CalibrationView, ChainProgress, ReadingRequest, StartAudit, Step
from app.ui.components.rail_values import (
    FIELDS,
    Stored,
    calibration_note,
    control_values,
    default_calibration,
    group_menu,
    layout_from,
    settings_from,
    updates_from,
)
from app.ui.errors import or_refusal, shown, shown_stream
from app.ui.pages.audit.common import reply
from app.ui.presenters_branches import contributions_message
from app.ui.presenters_fit import calibration_choices, drift_badge
from app.ui.presenters_session import (
    Message,
    draft_message,
    preview_message,
    session_message,
    spans_from,
    spans_message,
    steps_message,
)

FRAME_SECONDS = 0.06
"""A run shows its tokens at most this often; each frame repeats the one before, so that none is lost."""


class AuditHandlers:
    """What the page asks of the services; every method builds one request and calls one service."""

    def __init__(self, services: Services) -> None:
        """Keep the services, and a folder for reports that lives as long as the page."""
        self._audits = services.audits
        self._calibrations = services.calibrations
        self._user_lists = services.user_lists
        self._reports = services.reports
        self._library = services.library
        self._folder = tempfile.TemporaryDirectory(prefix="coft-reports-")

    @shown
    def open(self, event: gr.EventData) -> list[object]:
        """Show the asked-for session, a copy to be changed, or a blank page with the asked-for calibration."""
        stored = self._stored()
        if event.duplicate is not None:
            return self._draft(event, stored)
        if event.session is None:
            chosen = default_calibration(stored.calibrations, event.calibration)
            blank = AuditSettings(calibration_id=chosen)
            return [reply(event, {"kind": "blank"}), *self._shown(blank, stored)]
        view = self._audits.view(int(event.session), event.branch)
        message = {**session_message(view), "settings": control_values(view.settings, stored)}
        return [reply(event, message), *self._shown(view.settings, stored)]

    @shown
    def detect(self, event: gr.EventData, *values: object) -> Message:
        """Find the sensitive spans of the prompt."""
        return reply(event, spans_message(self._audits.detect(event.prompt, settings_from(values))))

    @shown
    def preview(self, event: gr.EventData, *values: object) -> Message:
        """Read the prompt as the masked branch does."""
        settings = settings_from(values)
        found = self._audits.preview(event.prompt, spans_from(event.spans) or (), settings)
        return reply(event, preview_message(found))

    @shown
    def start(self, event: gr.EventData, *values: object) -> Message:
        """Begin a session; a calibration of another policy is told apart, because one may proceed."""
        settings = settings_from(values, bool(event.proceed))
        try:
            view = self._audits.start(StartAudit(event.prompt, settings, spans_from(event.spans)))
        except CalibrationMismatch as mismatch:
            return reply(event, {"kind": "mismatch", "text": str(mismatch)})
        return reply(event, {**session_message(view), "settings": list(values)})

    @shown
    def step(self, event: gr.EventData) -> Message:
        """Write one token."""
        made = self._audits.step(event.session, event.branch)
        now = self._audits.progress(event.session, event.branch)
        return reply(event, steps_message([] if made is None else [made], now, done=True))

    @shown_stream
    def run(self, event: gr.EventData) -> Iterator[Message]:
        """Write tokens until the end or a pause."""
        before: list[Step] = []
        frame: list[Step] = []
        shown_at = time.monotonic()
        for made in self._audits.run(event.session, event.branch):
            frame.append(made)
            if time.monotonic() - shown_at >= FRAME_SECONDS:
                yield reply(event, steps_message([*before, *frame], self._progress(event)))
                before, frame, shown_at = frame, [], time.monotonic()
        yield reply(event, steps_message([*before, *frame], self._progress(event), done=True))

    @shown
    def pause(self, event: gr.EventData) -> None:
        """End a run after its current token."""
        self._audits.pause(event.session)

    @shown
    def fork(self, event: gr.EventData) -> Message:
        """Depart from the chain at a step with another token."""
        view = self._audits.fork(event.session, event.branch, event.index, event.token)
        return reply(event, session_message(view, start=event.index))

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

    @shown
    def describe_model(self, name: str) -> str:
        """Say where and how the model runs."""
        return f'<p class="hint">{escape(self._audits.model(name).note)}</p>'

    @shown
    def describe_calibration(self, *values: object) -> list[object]:
        """Say what the chosen calibration certifies with these settings, how it fits, and which groups it knows."""
        settings = settings_from(values)
        fit, whole = self._audits.fit(settings), self._read(settings)
        shown_view: CalibrationView | str | None = whole
        if whole is not None and settings.group in [item.name for item in whole.groups]:
            shown_view = or_refusal(lambda: self._read(settings, settings.group))
        groups = whole.groups if whole is not None else ()
        return [calibration_note(shown_view, fit), group_menu(groups, settings.group), gr.Button(visible=fit.adoptable)]

    @shown
    def describe_drift(self, number: int) -> str:
        """Say whether the audits so far speak against the chosen calibration."""
        return drift_badge(self._calibrations.drift(number), number) if number else ""

    @shown
    def menu(self, *values: object) -> object:
        """Offer the calibrations that fit mask and model first."""
        given = dict(zip(FIELDS, values, strict=True))
        return gr.Dropdown(calibration_choices(self._calibrations.list(), layout_from(given), str(given["model"])))

    @shown
    def adopt(self, *values: object) -> list[object]:
        """Take over the settings that the chosen calibration was made with."""
        return self._shown(self._audits.adopt(settings_from(values)), self._stored())

    def _draft(self, event: gr.EventData, stored: Stored) -> list[object]:
        """A stored session's prompt, spans and settings, for a new one."""
        made = self._library.prefill(int(event.duplicate))
        request = made.request
        preview = or_refusal(lambda: self._audits.preview(request.prompt, request.spans or (), request.settings))
        message = {**draft_message(made, preview), "settings": control_values(request.settings, stored)}
        return [reply(event, message), *self._shown(request.settings, stored)]

    def _progress(self, event: gr.EventData) -> ChainProgress:
        return self._audits.progress(event.session, event.branch)

    def _stored(self) -> Stored:
        return Stored(self._calibrations.list(), self._user_lists.list(), self._audits.masked_families)

    def _read(self, settings: AuditSettings, group: str | None = None) -> CalibrationView | None:
        """The settings' calibration at their level, of one group alone if one is named."""
        number = settings.calibration_id
        return None if number is None else self._calibrations.view(number, ReadingRequest(settings.alpha, group=group))

    def _shown(self, settings: AuditSettings, stored: Stored) -> list[object]:
        """Updates that make the controls show settings."""
        known = settings.calibration_id in [item.id for item in stored.calibrations]
        view = self._read(settings) if known else None
        return updates_from(control_values(settings, stored), stored, view.groups if view else ())
