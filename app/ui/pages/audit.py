"""The audit page: a prompt, its spans, the chain of tokens, and the selected token."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from app.services.errors import CalibrationMismatch
from app.services.ports import Services
from app.services.views import AuditSettings, StartAudit, Step
from app.ui import assets
from app.ui.components.inspector import inspector, steps_chart
from app.ui.components.settings_rail import (
    CHANGED,
    SettingsRail,
    Stored,
    calibration_note,
    control_values,
    default_calibration,
    masking_from,
    settings_from,
    settings_rail,
    updates_from,
)
from app.ui.components.span_editor import span_editor
from app.ui.components.topbar import topbar
from app.ui.components.transcript import transcript
from app.ui.errors import shown, shown_stream
from app.ui.presenters_session import (
    Message,
    preview_message,
    session_message,
    spans_from,
    spans_message,
    steps_message,
)

FRAME_SECONDS = 0.06
"""A run shows its tokens at most this often; each frame repeats the one before, so that none is lost."""

LOADING = '<p class="hint">Loading the model …</p>'
NOT_LOADED = '<p class="hint">Not loaded. The message says why; choose another model.</p>'

GENERATING = 8
"""How many reviewers may generate at once; the model itself takes them in turn."""

EVENT = {"show_progress": "hidden", "api_visibility": "private", "concurrency_limit": 16}
"""What all events of the page have in common."""


class AuditHandlers:
    """What the page asks of the services; every method builds one request and calls one service."""

    def __init__(self, services: Services) -> None:
        """Keep the services, and a folder for reports that lives as long as the page."""
        self._audits = services.audits
        self._calibrations = services.calibrations
        self._user_lists = services.user_lists
        self._reports = services.reports
        self._folder = tempfile.TemporaryDirectory(prefix="coft-reports-")

    @shown
    def open(self, event: gr.EventData) -> list[object]:
        """Show the asked-for session, or a blank page with the asked-for calibration."""
        stored = Stored(self._calibrations.list(), self._user_lists.list(), self._audits.masked_families)
        if event.session is None:
            chosen = default_calibration(stored.calibrations, event.calibration)
            values = control_values(AuditSettings(calibration_id=chosen), stored)
            return [_reply(event, {"kind": "blank"}), *updates_from(values, stored)]
        view = self._audits.view(int(event.session), event.branch)
        values = control_values(view.settings, stored)
        message = {**session_message(view), "settings": values}
        return [_reply(event, message), *updates_from(values, stored)]

    @shown
    def detect(self, event: gr.EventData, *values: object) -> Message:
        """Find the sensitive spans of the prompt."""
        return _reply(event, spans_message(self._audits.detect(event.prompt, settings_from(values))))

    @shown
    def preview(self, event: gr.EventData, *values: object) -> Message:
        """Read the prompt as the masked branch does."""
        settings = settings_from(values)
        found = self._audits.preview(event.prompt, spans_from(event.spans) or (), settings)
        return _reply(event, preview_message(found))

    @shown
    def start(self, event: gr.EventData, *values: object) -> Message:
        """Begin a session; a calibration of another policy is told apart, because one may proceed."""
        settings = settings_from(values, bool(event.proceed))
        try:
            view = self._audits.start(StartAudit(event.prompt, settings, spans_from(event.spans)))
        except CalibrationMismatch as mismatch:
            return _reply(event, {"kind": "mismatch", "text": str(mismatch)})
        return _reply(event, {**session_message(view), "settings": list(values)})

    @shown
    def step(self, event: gr.EventData) -> Message:
        """Write one token."""
        made = self._audits.step(event.session, event.branch)
        if made is None:
            finished = self._audits.view(event.session, event.branch).finished
            return _reply(event, steps_message([], finished or "length", done=True))
        return _reply(event, steps_message([made], done=True))

    @shown_stream
    def run(self, event: gr.EventData) -> Iterator[Message]:
        """Write tokens until the end or a pause."""
        before: list[Step] = []
        frame: list[Step] = []
        shown_at = time.monotonic()
        for made in self._audits.run(event.session, event.branch):
            frame.append(made)
            if time.monotonic() - shown_at >= FRAME_SECONDS:
                yield _reply(event, steps_message([*before, *frame]))
                before, frame, shown_at = frame, [], time.monotonic()
        finished = self._audits.view(event.session, event.branch).finished
        yield _reply(event, steps_message([*before, *frame], finished, done=True))

    @shown
    def pause(self, event: gr.EventData) -> None:
        """End a run after its current token."""
        self._audits.pause(event.session)

    @shown
    def fork(self, event: gr.EventData) -> Message:
        """Depart from the chain at a step with another token."""
        view = self._audits.fork(event.session, event.branch, event.index, event.token)
        return _reply(event, session_message(view, start=event.index))

    @shown
    def report(self, event: gr.EventData) -> str:
        """Write the session's report to a file for download."""
        return str(self._reports.write_csv(event.session, Path(self._folder.name)))

    @shown
    def describe_model(self, name: str) -> str:
        """Say where and how the model runs."""
        return f'<p class="hint">{escape(self._audits.model(name).note)}</p>'

    @shown
    def describe_calibration(self, number: int, alpha: float, lam: float, user_list: int, families: list[str]) -> str:
        """Say what the chosen calibration certifies at this alpha, and whether it fits the chosen detection."""
        view = self._calibrations.view(number, alpha) if number else None
        settings = AuditSettings(**masking_from(user_list, families))
        return calibration_note(view, lam, self._audits.detector(settings))


def audit_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    handlers = AuditHandlers(services)
    topbar("audit")
    gr.HTML(
        html_template='<div class="summaryline"></div>',
        js_on_load="coft.frame.line(element)",
        apply_default_css=False,
        elem_classes=["coft"],
    )
    with gr.Row(elem_classes=["audit"], elem_id="main"):
        with gr.Column(elem_classes=["rail"], min_width=0):
            rail = settings_rail(AuditSettings(), services.audits.masked_families)
        with gr.Column(elem_classes=["work"], min_width=0):
            editor = span_editor(assets.examples(), assets.phantom_examples())
            stage = transcript()
            steps_chart()
        with gr.Column(elem_classes=["inspect"], min_width=0):
            inspector()
    download = gr.DownloadButton("Report", elem_id="report-file", elem_classes=["offscreen"])
    app.load(None, list(rail.controls), None, js=CHANGED)
    _wire_session(handlers, editor, stage, rail, download)
    _wire_settings(app, handlers, rail)


def _wire_session(
    handlers: AuditHandlers, editor: gr.HTML, stage: gr.HTML, rail: SettingsRail, download: gr.DownloadButton
) -> None:
    settings = list(rail.controls)
    # errors reach the page only through the queue, so that nearly everything passes through it
    many: dict[str, Any] = {**EVENT, "trigger_mode": "multiple"}
    once: dict[str, Any] = {**EVENT, "trigger_mode": "once", "concurrency_limit": GENERATING}
    events = {
        "detect": editor.detect(handlers.detect, settings, editor, **many),
        "preview": editor.preview(handlers.preview, settings, editor, **many),
        "open": stage.open(handlers.open, None, [stage, *settings], **many),
        "start": stage.start(handlers.start, settings, stage, **once),
        "step": stage.step(handlers.step, None, stage, **once),
        "run": stage.run(handlers.run, None, stage, **once),
        "pause": stage.pause(handlers.pause, None, None, **many),
        "fork": stage.fork(handlers.fork, None, stage, **once),
    }
    for name, event in events.items():
        event.failure(None, None, None, js=f"() => coft.failed('{name}')")
    report = stage.report(handlers.report, None, download, **many)
    report.success(None, None, None, js="() => coft.download('report-file')")


def _wire_settings(app: gr.Blocks, handlers: AuditHandlers, rail: SettingsRail) -> None:
    for control in rail.controls:
        control.change(None, list(rail.controls), None, js=CHANGED)  # type: ignore[attr-defined]
    event: dict[str, Any] = dict(EVENT)
    model = rail.control("model")
    loaded = gr.on(
        [model.change, app.load],  # type: ignore[attr-defined]
        lambda: LOADING,
        None,
        rail.model_note,
        **event,
    ).then(handlers.describe_model, model, rail.model_note, **event)
    loaded.failure(lambda: NOT_LOADED, None, rail.model_note, **event)
    watched = [rail.control(field) for field in ("calibration_id", "alpha", "lam", "user_list_id", "masked_families")]
    gr.on(
        [control.change for control in watched],  # type: ignore[attr-defined]
        handlers.describe_calibration,
        watched,
        rail.calibration_note,
        trigger_mode="always_last",
        **event,
    )


def _reply(event: gr.EventData, message: Message) -> Message:
    """Give a message its request's number: the page tells replies apart by it."""
    return {**message, "nonce": event.nonce, "at": time.monotonic_ns()}
