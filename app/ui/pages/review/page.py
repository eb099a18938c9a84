"""The review page."""

from __future__ import annotations

import gradio as gr

from app.services.ports import Services
from app.ui.components.topbar import topbar


def review_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    topbar("review")
    with gr.Column(elem_classes=["page"], elem_id="main"):
        gr.HTML(
            '<div class="pagehead"><h1>Review</h1><p class="sub">Second opinions, decisions, and how far reviewers agree.</p></div>',
            apply_default_css=False,
            elem_classes=["coft"],
        )
