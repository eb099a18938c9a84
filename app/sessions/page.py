"""The library of sessions: filters, rows, menus and the questions that it asks. The browser asks for pages of it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from app.bootstrap import Services
from app.sessions.service import BulkResult
from app.sessions.words import EXPORTS, export_sentence, filters, library_query, page_message, page_sizes
from app.shared.errors import ServiceError
from app.shared.events import MULTIPLE, Reply, downloaded, reply, shown, told_of_failure
from app.shared.markup import icon
from app.shared.web import topbar

EVENTS = "['find', 'pick', 'act', 'export', 'gather']"

BULK = (
    ("tag", "Add a tag", ""),
    ("untag", "Remove a tag", ""),
    ("compare", "Compare", ""),
    ("archive", "Archive", ""),
    ("unarchive", "Take out of the archive", ""),
    ("gather", "Export reports", "down"),
)
"""What can be done with several sessions at once, deleting apart."""


def session_browser() -> gr.HTML:
    """Place the library; it triggers what concerns sessions and receives its messages."""
    return gr.HTML(
        html_template=f"""<section aria-labelledby="h-sessions">
        <form class="filters" role="search" aria-label="Filters">{filters()}</form>
        <div class="bar foundbar"><h2 id="h-sessions" class="vh">Results</h2>
          <span class="sub tnum where" role="status"></span><span class="sub told" role="status"></span>
          <div class="end pager">{page_sizes()}
            <button type="button" class="btn small" data-do="page" data-by="-1" disabled>{icon("back")}Previous</button>
            <span class="hint tnum leaf"></span>
            <button type="button" class="btn small" data-do="page" data-by="1" disabled>Next{icon("step")}</button>
          </div></div>
        <div class="bulk" role="toolbar" aria-label="Chosen sessions" hidden>{_bulk()}</div>
        <div id="sessions" class="results" tabindex="-1" aria-busy="true"><p class="sub">Loading …</p></div>
        {_downloads()}{_more()}{_question()}</section>""",
        js_on_load=f"coft.library.mount(element, trigger, props, watch, {EVENTS})",
        apply_default_css=False,
        elem_id="library",
        elem_classes=["coft"],
    )


def _bulk() -> str:
    buttons = "".join(
        f'<button type="button" class="btn small" data-do="bulk" data-action="{action}">'
        f"{icon(mark) if mark else ''}{text}</button>"
        for action, text, mark in BULK
    )
    return (
        '<strong class="tnum chosen" role="status"></strong>'
        '<button type="button" class="btn small quiet" data-do="pick-found" hidden></button>'
        f'<span class="acts">{buttons}<button type="button" class="btn small danger" data-do="bulk" '
        'data-action="delete">Delete</button></span>'
        '<button type="button" class="btn small quiet" data-do="pick-none">Choose none</button>'
    )


def _downloads() -> str:
    items = "".join(
        f'<button type="button" role="menuitem" tabindex="-1" data-do="export" data-kind="{kind}">'
        f'<span class="title">{title}</span><span class="hint">{why}</span></button>'
        for kind, title, why in EXPORTS
    )
    return f'<div class="menu" id="menu-download" popover role="menu" aria-label="Download">{items}</div>'


def _more() -> str:
    def item(action: str, text: str, classes: str = "") -> str:
        return (
            f'<button type="button" role="menuitem" tabindex="-1" class="{classes}" data-do="one" '
            f'data-action="{action}"><span class="title">{text}</span></button>'
        )

    copy = (
        '<a role="menuitem" tabindex="-1" data-do="duplicate" href="./"><span class="title">Duplicate with other '
        'settings</span><span class="hint">Opens the audit page with this prompt, its spans and settings.</span></a>'
    )
    return (
        '<div class="menu" id="menu-more" popover role="menu" aria-label="More actions">'
        f"{item('rename', 'Rename')}{item('tag', 'Add a tag')}{copy}{item('archive', 'Archive')}"
        f"{item('unarchive', 'Take out of the archive')}{item('delete', 'Delete', 'danger')}</div>"
    )


def _question() -> str:
    return """<dialog id="ask" class="sheet coft" aria-labelledby="ask-title"><form method="dialog">
          <h2 id="ask-title"></h2>
          <div class="field"><label for="ask-text"></label>
            <input class="input" id="ask-text" autocomplete="off" required></div>
          <datalist id="known-tags"></datalist>
          <div class="row"><button type="button" class="btn" data-do="cancel">Cancel</button>
            <button class="btn primary" value="yes"></button></div></form></dialog>"""


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
