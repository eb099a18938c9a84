"""The review page: second opinions, decisions, agreement, and the log of a session's verdicts."""

from __future__ import annotations

from typing import Any

import gradio as gr

from app.services.ports import Services
from app.ui.components.review_parts import agreement_part, review_sheet, session_picker
from app.ui.components.topbar import topbar
from app.ui.pages.audit.common import EVENT
from app.ui.pages.review.handlers import ReviewHandlers


def review_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    handlers = ReviewHandlers(services)
    topbar("review")
    with gr.Column(elem_classes=["page", "reviewing"], elem_id="main"):
        picker = session_picker()
        sheet = review_sheet()
        agreement = agreement_part()
    file = gr.DownloadButton("Log", elem_id="log-file", elem_classes=["offscreen"])
    many: dict[str, Any] = {**EVENT, "trigger_mode": "multiple"}
    events = {
        "sessions": picker.find(handlers.find, None, picker, **many),
        "sheet": sheet.read(handlers.read, None, sheet, **many),
        "act": sheet.act(handlers.act, None, sheet, **many),
        "decide": sheet.decide(handlers.decide, None, sheet, **many),
        "agree": agreement.agree(handlers.agree, None, agreement, **many),
    }
    for name, event in events.items():
        event.failure(None, None, None, js=f"() => coft.failed('review-{name}')")
    written = sheet.file(handlers.file, None, file, **many)
    written.success(None, None, None, js="() => coft.download('log-file')")
