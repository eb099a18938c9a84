"""The sessions page: past audits, searched, reopened, exported and deleted."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import gradio as gr

from app.services.ports import Services
from app.ui.components.topbar import topbar
from app.ui.errors import shown
from app.ui.presenters_sessions import sessions_table

EVENT: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "concurrency_limit": 8}
"""What all events of the page have in common: errors and changes of state pass only through the queue."""


class SessionHandlers:
    """What the page asks of the services."""

    def __init__(self, services: Services) -> None:
        """Keep the services, and a folder for reports that lives as long as the page."""
        self._audits = services.audits
        self._reports = services.reports
        self._folder = tempfile.TemporaryDirectory(prefix="coft-reports-")

    @shown
    def listed(self, search: str) -> str:
        """Past audits that match."""
        return sessions_table(self._audits.sessions(search), search)

    @shown
    def delete(self, event: gr.EventData, search: str) -> str:
        """Delete one audit and list the others."""
        self._audits.delete(event.id)
        return sessions_table(self._audits.sessions(search), search)

    @shown
    def export(self, event: gr.EventData) -> str:
        """Write one audit's report for download."""
        return str(self._reports.write_csv(event.id, Path(self._folder.name)))


def sessions_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    handlers = SessionHandlers(services)
    topbar("sessions")
    with gr.Column(elem_classes=["page"], elem_id="main"):
        gr.HTML(
            '<div class="pagehead"><h1>Sessions</h1><p class="sub">Every audit is kept as it was shown.</p></div>',
            apply_default_css=False,
            elem_classes=["coft"],
        )
        search = gr.Textbox(
            label="Search", placeholder="Name or prompt", max_lines=1, elem_id="search", elem_classes=["search"]
        )
        listed = gr.HTML(
            js_on_load="coft.list.mount(element, trigger); /* 'delete' 'export' */",
            apply_default_css=False,
            elem_id="sessions",
            elem_classes=["coft"],
        )
    file = gr.DownloadButton("Report", elem_id="session-file", elem_classes=["offscreen"])
    gr.on([app.load, search.change], handlers.listed, search, listed, trigger_mode="always_last", **EVENT)
    listed.delete(handlers.delete, search, listed, **EVENT)
    exported = listed.export(handlers.export, None, file, trigger_mode="multiple", **EVENT)
    exported.success(None, None, None, js="() => coft.download('session-file')")
