"""The batches page."""

from __future__ import annotations

import gradio as gr

from app.services.ports import Services
from app.ui.components.topbar import topbar


def batches_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    topbar("batches")
    with gr.Column(elem_classes=["page"], elem_id="main"):
        gr.HTML(
            '<div class="pagehead"><h1>Batches</h1><p class="sub">Many prompts under the same settings.</p></div>',
            apply_default_css=False,
            elem_classes=["coft"],
        )
