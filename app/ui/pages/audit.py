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
from app.services.views import AuditSettings, CalibrationView, ChainProgress, ReadingRequest, StartAudit, Step
from app.ui import assets
from app.ui.components.contributions import contributions
from app.ui.components.inspector import inspector, steps_chart
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
from app.ui.components.settings_rail import CHANGED, SettingsRail, settings_rail
from app.ui.components.span_editor import span_editor
from app.ui.components.topbar import topbar
from app.ui.components.transcript import transcript
from app.ui.errors import or_refusal, shown, shown_stream
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

LOADING = '<p class="hint">Loading the model …</p>'
NOT_LOADED = '<p class="hint">Not loaded. The message says why; choose another model.</p>'

GENERATING = 8
"""How many reviewers may generate at once; the model itself takes them in turn."""

UNRELATED = ("greedy", "max_new_tokens", "seed")
"""Settings that no calibration depends on."""

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
            return [_reply(event, {"kind": "blank"}), *self._shown(blank, stored)]
        view = self._audits.view(int(event.session), event.branch)
        message = {**session_message(view), "settings": control_values(view.settings, stored)}
        return [_reply(event, message), *self._shown(view.settings, stored)]

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
        now = self._audits.progress(event.session, event.branch)
        return _reply(event, steps_message([] if made is None else [made], now, done=True))

    @shown_stream
    def run(self, event: gr.EventData) -> Iterator[Message]:
        """Write tokens until the end or a pause."""
        before: list[Step] = []
        frame: list[Step] = []
        shown_at = time.monotonic()
        for made in self._audits.run(event.session, event.branch):
            frame.append(made)
            if time.monotonic() - shown_at >= FRAME_SECONDS:
                yield _reply(event, steps_message([*before, *frame], self._progress(event)))
                before, frame, shown_at = frame, [], time.monotonic()
        yield _reply(event, steps_message([*before, *frame], self._progress(event), done=True))

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
    def contribute(self, event: gr.EventData) -> Message:
        """Find out what each masked span contributes to each token of the chain."""
        found = self._audits.contributions(event.session, event.branch)
        return _reply(event, dict(contributions_message(event.prompt, found)))

    @shown
    def overhead(self, event: gr.EventData) -> Message:
        """Measure what the session's policy costs."""
        return _reply(event, {"kind": "overhead", "text": self._audits.overhead(event.session).sentence})

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
        return [_reply(event, message), *self._shown(request.settings, stored)]

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
            spans = contributions()
        with gr.Column(elem_classes=["inspect"], min_width=0):
            inspector()
    download = gr.DownloadButton("Report", elem_id="report-file", elem_classes=["offscreen"])
    app.load(None, rail.inputs, None, js=CHANGED)
    _wire_session(handlers, editor, stage, rail, download)
    measured = spans.contribute(handlers.contribute, None, spans, **{**EVENT, "trigger_mode": "once"})
    measured.failure(None, None, None, js="() => coft.failed('contribute')")
    _wire_settings(app, handlers, rail)


def _wire_session(
    handlers: AuditHandlers, editor: gr.HTML, stage: gr.HTML, rail: SettingsRail, download: gr.DownloadButton
) -> None:
    settings = rail.inputs
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
        "overhead": stage.overhead(handlers.overhead, None, stage, **once),
    }
    for name, event in events.items():
        event.failure(None, None, None, js=f"() => coft.failed('{name}')")
    report = stage.report(handlers.report, None, download, **many)
    report.success(None, None, None, js="() => coft.download('report-file')")


def _wire_settings(app: gr.Blocks, handlers: AuditHandlers, rail: SettingsRail) -> None:
    event: dict[str, Any] = dict(EVENT)
    latest: dict[str, Any] = {**EVENT, "trigger_mode": "always_last"}
    changes = {name: control.change for name, control in rail.controls.items()}  # type: ignore[attr-defined]
    for change in changes.values():
        change(None, rail.inputs, None, js=CHANGED)
    model, calibration = rail.controls["model"], rail.controls["calibration_id"]
    loaded = gr.on([changes["model"], app.load], lambda: LOADING, None, rail.model_note, **event).then(
        handlers.describe_model, model, rail.model_note, **event
    )
    loaded.failure(lambda: NOT_LOADED, None, rail.model_note, **event)
    described = [change for name, change in changes.items() if name not in UNRELATED]
    notes = [rail.calibration_note, rail.controls["group"], rail.adopt]
    gr.on(described, handlers.describe_calibration, rail.inputs, notes, **latest)
    changes["calibration_id"](handlers.describe_drift, calibration, rail.drift_note, **latest)
    gr.on([changes["mask"], changes["model"]], handlers.menu, rail.inputs, calibration, **latest)
    rail.adopt.click(handlers.adopt, rail.inputs, rail.inputs, **event)


def _reply(event: gr.EventData, message: Message) -> Message:
    """Give a message its request's number: the page tells replies apart by it."""
    return {**message, "nonce": event.nonce, "at": time.monotonic_ns()}
