"""The swap page: the same prompt with one attribute exchanged, and what follows with and without the policy."""

from __future__ import annotations

import gradio as gr

from app.bootstrap import Services
from app.services.views import AuditSettings
from app.ui import assets
from app.ui.components.settings_rail import CHANGED, SettingsRail, settings_rail
from app.ui.components.span_editor import span_editor
from app.ui.components.swap_parts import swap_body, swap_choices, swap_stage
from app.ui.components.topbar import topbar
from app.ui.events import On, downloaded, wire
from app.ui.figures_swap import empty_swap_figure
from app.ui.pages.audit.common import GENERATING, MULTIPLE
from app.ui.pages.audit.handlers import AuditHandlers
from app.ui.pages.audit.page import wire_settings
from app.ui.pages.swap.handlers import SwapHandlers


def swap_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    audits = AuditHandlers(services)
    topbar("swap")
    with gr.Column(elem_classes=["page"], elem_id="main"):
        gr.HTML(
            '<div class="pagehead"><h1>Swap</h1><p class="sub">The same prompt with one attribute exchanged: what '
            "changes for the model alone, and what is left of it under the policy.</p></div>",
            apply_default_css=False,
            elem_classes=["coft"],
        )
        with gr.Row(elem_classes=["swapform"]):
            with gr.Column(min_width=0, elem_classes=["group"]):
                editor = span_editor(assets.examples(), assets.phantom_examples())
                rail = _settings(services)
            with gr.Column(min_width=0):
                swap_choices()
        stage = swap_stage()
        with gr.Column(elem_id="swap-found"):
            gr.Plot(empty_swap_figure(), show_label=False, container=False, elem_id="swap-plot", elem_classes=["chart"])
            swap_body()
    file = gr.DownloadButton("Table", elem_id="swap-file", elem_classes=["offscreen"])
    app.load(None, rail.inputs, None, js=CHANGED)
    wire_settings(app, audits, rail)
    _wire(SwapHandlers(services), audits, editor, stage, rail, file)


def _settings(services: Services) -> SettingsRail:
    """The settings of an audit, folded; the length of the chains is chosen beside the button that runs them."""
    with (
        gr.Accordion("Settings", open=False, elem_classes=["fold", "swap-settings"], elem_id="swap-settings"),
        gr.Column(elem_classes=["rail"], min_width=0),
    ):
        rail = settings_rail(AuditSettings(), services.audits.masked_families)
    rail.controls["max_new_tokens"].visible = False  # type: ignore[attr-defined]
    return rail


def _wire(
    handlers: SwapHandlers,
    audits: AuditHandlers,
    editor: gr.HTML,
    stage: gr.HTML,
    rail: SettingsRail,
    file: gr.DownloadButton,
) -> None:
    settings = rail.inputs
    prompt = {
        "detect": On(audits.detect, editor, settings),
        "preview": On(audits.preview, editor, settings),
    }
    events = {
        "open": On(handlers.open, [stage, *settings]),
        "look": On(handlers.look, stage, settings),
        "run": On(handlers.run, stage, settings, GENERATING),
        "cancel": On(handlers.cancel, None),
        "at": On(handlers.at, stage),
        "audit": On(handlers.audit, stage, settings=GENERATING),
        "table": On(handlers.table, file),
    }
    wire(editor, prompt, MULTIPLE)
    downloaded(wire(stage, events, MULTIPLE)["table"], "swap-file")
