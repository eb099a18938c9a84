"""The compare page: one prompt run several ways, or stored audits and branches, beside each other."""

from __future__ import annotations

from typing import Any

import gradio as gr

from app.services.ports import Services
from app.ui import assets
from app.ui.components.compared import compare_head, compare_setup, compare_side, compare_stage
from app.ui.components.compared_sets import set_stage
from app.ui.components.span_editor import span_editor
from app.ui.components.topbar import topbar
from app.ui.pages.compare.handlers import CompareHandlers
from app.ui.pages.compare.sets import set_controls, wire_sets

EVENT: dict[str, Any] = {
    "show_progress": "hidden",
    "api_visibility": "private",
    "concurrency_limit": 8,
    "trigger_mode": "multiple",
}
"""What all events of the page have in common: errors and messages pass only through the queue."""


def compare_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    handlers = CompareHandlers(services)
    topbar("compare")
    with gr.Column(elem_classes=["page", "compare"], elem_id="main"):
        compare_head()
        with gr.Column(elem_classes=["cmp-setup"]):
            with gr.Column(elem_classes=["cmp-new"]):
                editor = span_editor(assets.examples(), assets.phantom_examples())
            sets = set_controls(services)
            compare_setup()
        opened = set_stage()
        with gr.Row(elem_classes=["cmp"]):
            with gr.Column(elem_classes=["cmp-main"], min_width=0):
                stage = compare_stage()
            with gr.Column(elem_classes=["cmp-side"], min_width=0):
                plots = compare_side()
    file = gr.DownloadButton("Comparison", elem_id="comparison-file", elem_classes=["offscreen"])
    detected = editor.detect(handlers.detect, None, editor, **EVENT)
    detected.failure(None, None, None, js="() => coft.failed('detect')")
    whole = [stage, *plots]
    events = {
        "begin": stage.begin(handlers.begin, None, whole, **EVENT),
        "run": stage.run(handlers.run, None, whole, **EVENT),
        "open": stage.open(handlers.open, None, whole, **EVENT),
        "menu": stage.menu(handlers.menu, None, stage, **EVENT),
        "find": stage.find(handlers.find, None, stage, **EVENT),
        "pick": stage.pick(handlers.pick, None, stage, **EVENT),
        "pause": stage.pause(handlers.pause, None, None, **EVENT),
        "discard": stage.discard(handlers.discard, None, stage, **EVENT),
    }
    for name, event in events.items():
        event.failure(None, None, None, js=f"() => coft.failed('{name}')")
    saved = stage.csv(handlers.csv, None, file, **EVENT)
    saved.success(None, None, None, js="() => coft.download('comparison-file')")
    wire_sets(sets, opened, file, EVENT)
