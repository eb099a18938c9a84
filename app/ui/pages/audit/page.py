"""The audit page: a prompt, its spans, the chain of tokens, and the selected token."""

from __future__ import annotations

import gradio as gr

from app.bootstrap import Services
from app.services.views import AuditSettings
from app.ui import assets
from app.ui.components.contributions import contributions
from app.ui.components.inspector import inspector, steps_chart
from app.ui.components.pictures import pictures
from app.ui.components.settings_rail import CHANGED, SettingsRail, settings_rail
from app.ui.components.span_editor import span_editor
from app.ui.components.topbar import topbar
from app.ui.components.transcript import transcript
from app.ui.events import On, downloaded, wire
from app.ui.pages.audit.branches import branches_of
from app.ui.pages.audit.common import EVENT, GENERATING, LATEST, MULTIPLE
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
    "prompt_format",
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
    wire(spans, {"contribute": On(handlers.contribute, spans)}, {**EVENT, "trigger_mode": "once"})
    wire_settings(app, handlers, rail)


def _wire_session(
    handlers: AuditHandlers, editor: gr.HTML, stage: gr.HTML, rail: SettingsRail, download: gr.DownloadButton
) -> None:
    settings = rail.inputs
    prompt = {
        "detect": On(handlers.detect, editor, settings),
        "preview": On(handlers.preview, editor, settings),
    }
    events = {
        "open": On(handlers.open, [stage, *settings]),
        "start": On(handlers.start, stage, settings, GENERATING),
        "step": On(handlers.step, stage, settings=GENERATING),
        "run": On(handlers.run, stage, settings=GENERATING),
        "more": On(handlers.more, stage),
        "pause": On(handlers.pause, None),
        "fork": On(handlers.fork, stage, settings=GENERATING),
        "overhead": On(handlers.overhead, stage, settings=GENERATING),
    }
    wire(editor, prompt, MULTIPLE)
    wire(stage, events, MULTIPLE)
    downloaded(stage.report(handlers.report, None, download, **MULTIPLE), "report-file")  # type: ignore[attr-defined]


def wire_settings(app: gr.Blocks, handlers: AuditHandlers, rail: SettingsRail) -> None:
    """Connect the rail's own events, for every page that has one."""
    changes = {name: control.change for name, control in rail.controls.items()}  # type: ignore[attr-defined]
    for change in changes.values():
        change(None, rail.inputs, None, js=CHANGED)
    gr.on([changes["policy"], changes["parameters"]], handlers.describe_method, rail.inputs, rail.method_note, **LATEST)
    model, calibration = rail.controls["model"], rail.controls["calibration_id"]
    gr.on([changes["model"], app.load], handlers.describe_model, model, rail.model_note, **LATEST)
    described = [change for name, change in changes.items() if name not in UNRELATED]
    notes = [rail.calibration_note, rail.controls["group"], rail.adopt]
    gr.on(described, handlers.describe_calibration, rail.inputs, notes, **LATEST)
    changes["calibration_id"](handlers.describe_drift, calibration, rail.drift_note, **LATEST)
    gr.on([changes["mask"], changes["model"], changes["policy"]], handlers.menu, rail.inputs, calibration, **LATEST)
    rail.adopt.click(handlers.adopt, rail.inputs, rail.inputs, **EVENT)
    wire_tuned(app, handlers, rail)


def wire_tuned(app: gr.Blocks, handlers: AuditHandlers, rail: SettingsRail) -> None:
    """Offer the strength that a tuning found for the chosen method."""
    tuned_by = [rail.controls[name].change for name in TUNED_BY]  # type: ignore[attr-defined]
    gr.on([*tuned_by, app.load], handlers.describe_tuned, rail.inputs, [rail.tuned_note, rail.use_tuned], **LATEST)
    rail.use_tuned.click(handlers.use_tuned, rail.inputs, rail.inputs, **EVENT)
