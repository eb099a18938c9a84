"""The compare page."""

from __future__ import annotations

import gradio as gr

from app.services.ports import Services
from app.ui.components.topbar import topbar


def compare_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    topbar("compare")
    with gr.Column(elem_classes=["page"], elem_id="main"):
        gr.HTML(
            '<div class="pagehead"><h1>Compare</h1><p class="sub">One prompt, several ways to decode it.</p></div>',
            apply_default_css=False,
            elem_classes=["coft"],
        )
