"""The compare page: one prompt run several ways, or stored audits and branches, beside each other."""

from __future__ import annotations

import gradio as gr

from app.bootstrap import Services
from app.ui import assets
from app.ui.components.compared import compare_head, compare_setup, compare_side, compare_stage
from app.ui.components.compared_sets import set_stage
from app.ui.components.span_editor import span_editor
from app.ui.components.topbar import topbar
from app.ui.events import MULTIPLE, On, downloaded, wire
from app.ui.pages.compare.handlers import CompareHandlers
from app.ui.pages.compare.sets import set_controls, wire_sets


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
    wire(editor, {"detect": On(handlers.detect, editor)})
    whole = [stage, *plots]
    events = {
        "begin": On(handlers.begin, whole),
        "run": On(handlers.run, whole),
        "open": On(handlers.open, whole),
        "menu": On(handlers.menu, stage),
        "find": On(handlers.find, stage),
        "pick": On(handlers.pick, stage),
        "pause": On(handlers.pause, None),
        "discard": On(handlers.discard, stage),
    }
    wire(stage, events)
    downloaded(stage.csv(handlers.csv, None, file, **MULTIPLE), "comparison-file")  # type: ignore[attr-defined]
    wire_sets(sets, opened, file)
