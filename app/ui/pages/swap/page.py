"""The swap page."""

from __future__ import annotations

import gradio as gr

from app.services.ports import Services
from app.ui.components.topbar import topbar


def swap_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    topbar("swap")
    with gr.Column(elem_classes=["page"], elem_id="main"):
        gr.HTML(
            '<div class="pagehead"><h1>Swap</h1><p class="sub">The same prompt with one attribute exchanged.</p></div>',
            apply_default_css=False,
            elem_classes=["coft"],
        )
