"""The audit page: a prompt, its spans, the chain of tokens, and the selected token."""

from __future__ import annotations

from typing import Any

import gradio as gr

from app.services.ports import Services
from app.services.views import AuditSettings
from app.ui import assets
from app.ui.components.contributions import contributions
from app.ui.components.inspector import inspector, steps_chart
from app.ui.components.pictures import pictures
from app.ui.components.settings_rail import CHANGED, SettingsRail, settings_rail
from app.ui.components.span_editor import span_editor
from app.ui.components.topbar import topbar
from app.ui.components.transcript import transcript
from app.ui.pages.audit.branches import branches_of
from app.ui.pages.audit.common import EVENT, GENERATING
from app.ui.pages.audit.handlers import AuditHandlers
from app.ui.pages.audit.rereading import rereading_panel
from app.ui.pages.audit.verdicts import verdict_part

UNRELATED = ("greedy", "max_new_tokens", "seed")
"""Settings that no calibration depends on."""

TUNED_BY = (
    "policy",
    "model",
    "mask",
    "temperature",
    "top_p",
    "top_k",
    "sentinel",
    "mask_mode",
    "mask_hint",
    "whitelist",
)
"""Settings that must be those of a tuning for its strengths to be offered."""


def audit_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    handlers = AuditHandlers(services)
    topbar("audit")
    gr.HTML(
        html_template='<h1 class="vh">Audit</h1><div class="summaryline"></div>',
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
            branches_of(services)
            rereading_panel(services)
            steps_chart()
            pictures()
            spans = contributions()
        with gr.Column(elem_classes=["inspect"], min_width=0):
            inspector()
            verdict_part(services)
    download = gr.DownloadButton("Report", elem_id="report-file", elem_classes=["offscreen"])
    app.load(None, rail.inputs, None, js=CHANGED)
    _wire_session(handlers, editor, stage, rail, download)
    measured = spans.contribute(handlers.contribute, None, spans, **{**EVENT, "trigger_mode": "once"})
    measured.failure(None, None, None, js="() => coft.failed('contribute')")
    wire_settings(app, handlers, rail)


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
        "more": stage.more(handlers.more, None, stage, **many),
        "pause": stage.pause(handlers.pause, None, None, **many),
        "fork": stage.fork(handlers.fork, None, stage, **once),
        "overhead": stage.overhead(handlers.overhead, None, stage, **once),
    }
    for name, event in events.items():
        event.failure(None, None, None, js=f"() => coft.failed('{name}')")
    report = stage.report(handlers.report, None, download, **many)
    report.success(None, None, None, js="() => coft.download('report-file')")


def wire_settings(app: gr.Blocks, handlers: AuditHandlers, rail: SettingsRail) -> None:
    """Connect the rail's own events, for every page that has one."""
    event: dict[str, Any] = dict(EVENT)
    latest: dict[str, Any] = {**EVENT, "trigger_mode": "always_last"}
    changes = {name: control.change for name, control in rail.controls.items()}  # type: ignore[attr-defined]
    for change in changes.values():
        change(None, rail.inputs, None, js=CHANGED)
    gr.on([changes["policy"], changes["parameters"]], handlers.describe_method, rail.inputs, rail.method_note, **latest)
    model, calibration = rail.controls["model"], rail.controls["calibration_id"]
    gr.on([changes["model"], app.load], handlers.describe_model, model, rail.model_note, **latest)
    described = [change for name, change in changes.items() if name not in UNRELATED]
    notes = [rail.calibration_note, rail.controls["group"], rail.adopt]
    gr.on(described, handlers.describe_calibration, rail.inputs, notes, **latest)
    changes["calibration_id"](handlers.describe_drift, calibration, rail.drift_note, **latest)
    gr.on([changes["mask"], changes["model"], changes["policy"]], handlers.menu, rail.inputs, calibration, **latest)
    rail.adopt.click(handlers.adopt, rail.inputs, rail.inputs, **event)
    wire_tuned(app, handlers, rail)


def wire_tuned(app: gr.Blocks, handlers: AuditHandlers, rail: SettingsRail) -> None:
    """Offer the strength that a tuning found for the chosen method."""
    tuned_by = [rail.controls[name].change for name in TUNED_BY]  # type: ignore[attr-defined]
    gr.on(
        [*tuned_by, app.load], handlers.describe_tuned, rail.inputs, [rail.tuned_note, rail.use_tuned],
        **{**EVENT, "trigger_mode": "always_last"},
    )  # fmt: skip
    rail.use_tuned.click(handlers.use_tuned, rail.inputs, rail.inputs, **EVENT)
