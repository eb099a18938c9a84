"""The library of sessions: the browser asks for pages of it, and for what is to be done with sessions."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, cast, get_args

import gradio as gr

from app.report.panel import place_downloads, place_imports
from app.sessions.moving import SessionMoves
from app.sessions.service import BulkResult, LibraryQuery, Run, SessionLibrary
from app.sessions.words import SIZES, export_sentence, page_message
from app.shared.bell import Bell
from app.shared.components import markup
from app.shared.errors import ServiceError
from app.shared.events import MULTIPLE, Reply, downloaded, reply, shown, shown_to, told_of_failure
from app.shared.markup import laid_out
from app.shared.needs import EXPORT, READ
from app.shared.web import topbar
from app.shared.wiring import Services
from db.library import CertificateFilter, SessionOrder
from db.types import utc_now

EVENTS = "['find', 'pick', 'act', 'gather']"
RUNS = 200
"""Runs that are listed at most."""
YES_NO: Mapping[str, bool | None] = {"yes": True, "no": False, "any": None}


def library_query(fields: Mapping[str, Any]) -> LibraryQuery:
    """What the page asks for; an empty filter does not matter."""

    def text(name: str) -> str | None:
        return str(fields.get(name) or "") or None

    def one_of(name: str, allowed: Sequence[str]) -> str | None:
        value = text(name)
        if value is not None and value not in allowed:
            raise ServiceError(f"There is no {name} {value!r} to choose; choose {', '.join(allowed)}.")
        return value

    def day(name: str) -> datetime | None:
        value = text(name)
        try:
            return None if value is None else datetime.combine(date.fromisoformat(value), time(), UTC)
        except ValueError as error:
            raise ServiceError(f"{value!r} is not a day; write it as year-month-day, such as 2026-05-04.") from error

    def number(name: str, usual: int) -> int:
        value = fields.get(name)
        try:
            return usual if value in (None, "") else int(str(value))
        except ValueError as error:
            raise ServiceError(f"The {name} {value!r} is not a whole number; write one.") from error

    since, until = day("since"), day("until")
    if since is not None and until is not None and until < since:
        raise ServiceError(f"The days run from {since:%Y-%m-%d} to {until:%Y-%m-%d}; give the earlier one first.")
    return LibraryQuery(
        text=text("text") or "",
        policy=text("policy"),
        model=text("model"),
        certificate=cast(CertificateFilter | None, one_of("certificate", get_args(CertificateFilter))),
        tag=text("tag"),
        archived=YES_NO[one_of("archived", tuple(YES_NO)) or "no"],
        judged=YES_NO[one_of("judged", tuple(YES_NO)) or "any"],
        since=since,
        before=None if until is None else until + timedelta(days=1),
        batch_id=number("batch", 0) or None,
        order=cast(SessionOrder, one_of("order", get_args(SessionOrder)) or "updated"),
        descending=bool(fields.get("down", True)),
        page=number("page", 1),
        page_size=number("size", SIZES[0]),
    )


def _opened(text: str) -> frozenset[int]:
    """Batches that are opened, from their numbers with commas between them."""
    return frozenset(int(number) for number in text.split(",") if number.strip().isdecimal())


class SessionHandlers:
    """What the page asks of the services."""

    def __init__(self, services: Services) -> None:
        """Keep the services, and a folder for reports that lives as long as the page."""
        self._library, self._moves, self._bell = services[SessionLibrary], services[SessionMoves], services[Bell]
        self._folder = tempfile.TemporaryDirectory(prefix="coft-reports-")

    @shown_to(READ)
    def find(self, event: gr.EventData) -> Reply:
        """A page of the sessions that match."""
        return self._page(event)

    @shown_to(READ)
    def pick(self, event: gr.EventData) -> Reply:
        """The ids of all sessions that match, on whatever page, or of those of one batch."""
        batch = None if event.batch is None else int(event.batch)
        query = library_query(event.query)
        ids = self._library.ids(query if batch is None else replace(query, batch_id=batch))
        return reply(event, {"kind": "ids", "ids": list(ids), "batch": batch, "off": bool(event.off)})

    @shown
    def act(self, event: gr.EventData) -> Reply:
        """Do something with one or several sessions, and list what matches now."""
        ids = [int(number) for number in event.ids]
        said = self._done(event.action, ids, str(event.text))
        return self._page(event, said) | {"gone": ids if event.action in ("move", "delete") else []}

    @shown_to(EXPORT)
    def gather(self, event: gr.EventData) -> list[Any]:
        """Write the reports of several sessions into one file for download."""
        archive = self._library.export([int(number) for number in event.ids], Path(self._folder.name))
        return [reply(event, {"kind": "said", "said": export_sentence(archive)}), str(archive.path)]

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
            "move": lambda: self._moves.move(ids, text),
            "delete": lambda: library.delete(ids),
        }
        if action not in actions:
            raise ServiceError(f"There is no action {action!r}; choose {', '.join(actions)}.")
        return actions[action]().sentence

    def _page(self, event: gr.EventData, said: str = "") -> Reply:
        query = library_query(event.query)
        page = self._library.folded(query, _opened(str(event.query.get("open") or "")), self._runs(query))
        findings, targets = self._library.findings(page), self._moves.targets()
        return reply(event, page_message(page, findings, self._library.choices(), query, said, targets))

    def _runs(self, query: LibraryQuery) -> list[Run]:
        """The runs that match, newest first; no run has what only sessions can be asked for."""
        if query.archived or query.judged is not None or query.policy or query.model or query.certificate or query.tag:
            return []
        runs, now = [], utc_now()
        for told in self._bell.told(None, RUNS):
            at = now if told["at"] is None else datetime.fromisoformat(told["at"])
            inside = (query.since is None or at >= query.since) and (query.before is None or at < query.before)
            # What a batch made is in the list already.
            made = told["kind"] == "Batch" and told["status"] == "done"
            if inside and not made and query.text.strip().lower() in f"{told['kind']} {told['name']}".lower():
                state = f"{told['percent']} %{', ' if told['said'] else ''}{told['said']}"
                runs.append(Run(told["kind"], told["name"], told["address"], state, at))
        return sorted(runs, key=lambda run: run.updated_at, reverse=True)


def build_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    handlers = SessionHandlers(services)
    topbar(services, "sessions")
    with gr.Column(elem_classes=["page"], elem_id="main"):
        markup(
            '<div class="pagehead"><h1>Audits and runs</h1><p class="sub">All are kept as they were shown.</p></div>'
        )
        library = gr.HTML(
            html_template=laid_out("sessions/browser.html", sizes=SIZES),
            js_on_load=f"coft.library.mount(element, trigger, props, watch, {EVENTS})",
            apply_default_css=False,
            elem_id="library",
            elem_classes=["coft"],
        )
        place_imports(services)
    place_downloads(services)
    file = gr.DownloadButton("Reports", elem_id="session-file", elem_classes=["offscreen"])
    library.find(handlers.find, None, library, **MULTIPLE)
    library.pick(handlers.pick, None, library, **MULTIPLE)
    gathered = library.gather(handlers.gather, None, [library, file], **MULTIPLE)
    downloaded(gathered, "session-file")
    told_of_failure(gathered, "gather")
    told_of_failure(library.act(handlers.act, None, library, **MULTIPLE), "act")
