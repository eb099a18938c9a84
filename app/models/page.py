"""The page of models."""

from __future__ import annotations

import gradio as gr

from app.models.service import ModelShelf
from app.shared.components import markup
from app.shared.events import EVENT, shown_to
from app.shared.markup import laid_out
from app.shared.needs import READ
from app.shared.web import topbar
from app.shared.wiring import Services


def amount(size: int) -> str:
    """Bytes in a table."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"


def build_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    topbar(services, "models")
    with gr.Column(elem_classes=["page"], elem_id="main"):
        markup(
            '<div class="pagehead"><h1>Models</h1><p class="sub">Models that are known here. A model is loaded when '
            "something first runs on it.</p></div>"
        )
        known = markup('<p class="sub">Loading …</p>', "known-models")

    @shown_to(READ)
    def listed() -> str:
        return str(laid_out("models/known.html", shelf=services[ModelShelf].list(), amount=amount))

    app.load(listed, None, known, **EVENT)
