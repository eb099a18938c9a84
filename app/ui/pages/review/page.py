"""The review page: second opinions, decisions, agreement, and the log of a session's verdicts."""

from __future__ import annotations

import gradio as gr

from app.bootstrap import Services
from app.ui.components.review_parts import agreement_part, review_sheet, session_picker
from app.ui.components.topbar import topbar
from app.ui.events import On, downloaded, told_of_failure, wire
from app.ui.pages.audit.common import MULTIPLE
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
    told_of_failure(picker.find(handlers.find, None, picker, **MULTIPLE), "review-sessions")  # type: ignore[attr-defined]
    told_of_failure(sheet.read(handlers.read, None, sheet, **MULTIPLE), "review-sheet")  # type: ignore[attr-defined]
    wire(sheet, {"act": On(handlers.act, sheet), "decide": On(handlers.decide, sheet)}, MULTIPLE, "review-")
    wire(agreement, {"agree": On(handlers.agree, agreement)}, MULTIPLE, "review-")
    downloaded(sheet.file(handlers.file, None, file, **MULTIPLE), "log-file")  # type: ignore[attr-defined]
