"""The sessions page: past audits as a library that is searched, ordered, exported and cleared out."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from app.bootstrap import Services
from app.services.errors import ServiceError
from app.services.views.library import BulkResult
from app.ui.components.session_browser import session_browser
from app.ui.components.topbar import topbar
from app.ui.errors import shown
from app.ui.events import MULTIPLE, Reply, downloaded, reply, told_of_failure
from app.ui.presenters_library import export_sentence, page_message
from app.ui.presenters_library_form import library_query


class SessionHandlers:
    """What the page asks of the services."""

    def __init__(self, services: Services) -> None:
        """Keep the services, and a folder for reports that lives as long as the page."""
        self._library = services.library
        self._exports = services.exports
        self._folder = tempfile.TemporaryDirectory(prefix="coft-reports-")

    @shown
    def find(self, event: gr.EventData) -> Reply:
        """A page of the sessions that match."""
        return self._page(event)

    @shown
    def pick(self, event: gr.EventData) -> Reply:
        """The ids of all sessions that match, on whatever page."""
        return reply(event, {"kind": "ids", "ids": list(self._library.ids(library_query(event.query)))})

    @shown
    def act(self, event: gr.EventData) -> Reply:
        """Do something with one or several sessions, and list what matches now."""
        return self._page(event, self._done(event.action, [int(number) for number in event.ids], str(event.text)))

    @shown
    def export(self, event: gr.EventData) -> str:
        """Write one session's report for download."""
        return str(self._exports.write(int(event.id), str(event.kind), Path(self._folder.name)))

    @shown
    def gather(self, event: gr.EventData) -> list[Any]:
        """Write the reports of several sessions into one file for download."""
        made = self._library.export([int(number) for number in event.ids], Path(self._folder.name))
        return [reply(event, {"kind": "said", "said": export_sentence(made)}), str(made.path)]

    def _done(self, action: str, ids: Sequence[int], text: str) -> str:
        """Carry out an action, and say what it did."""
        library = self._library
        if action == "rename":
            library.rename(ids[0], text)
            return "Renamed."
        actions: dict[str, Callable[[], BulkResult]] = {
            "tag": lambda: library.tag(ids, text),
            "untag": lambda: library.untag(ids, text),
            "archive": lambda: library.archive(ids),
            "unarchive": lambda: library.archive(ids, archived=False),
            "delete": lambda: library.delete(ids),
        }
        if action not in actions:
            raise ServiceError(f"There is no action {action!r}; choose {', '.join(actions)}.")
        return actions[action]().sentence

    def _page(self, event: gr.EventData, said: str = "") -> Reply:
        query = library_query(event.query)
        return reply(event, page_message(self._library.search(query), self._library.choices(), query, said))


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
        library = session_browser()
    file = gr.DownloadButton("Report", elem_id="session-file", elem_classes=["offscreen"])
    library.find(handlers.find, None, library, **MULTIPLE)
    library.pick(handlers.pick, None, library, **MULTIPLE)
    exported = {
        "export": library.export(handlers.export, None, file, **MULTIPLE),
        "gather": library.gather(handlers.gather, None, [library, file], **MULTIPLE),
    }
    told_of_failure(library.act(handlers.act, None, library, **MULTIPLE), "act")
    for name, event in exported.items():
        downloaded(event, "session-file", f"coft.library.written('{name}');")
        told_of_failure(event, "export")
