"""What the review page asks of the services."""

from __future__ import annotations

import tempfile
from pathlib import Path

import gradio as gr

from app.bootstrap import Services
from app.services.errors import ServiceError
from app.services.views.library import LibraryQuery
from app.services.views.verdicts import VerdictRequest
from app.ui.errors import shown
from app.ui.events import reply
from app.ui.presenters_agreement import agreement_message
from app.ui.presenters_review import Message, sessions_list, sheet_message
from app.ui.presenters_verdicts import given_sentence, signed

OFFERED = 12
"""Sessions that are listed at once."""


class ReviewHandlers:
    """What the page asks for; every method builds one request and calls one service."""

    def __init__(self, services: Services) -> None:
        """Keep the services, and a folder for logs that lives as long as the page."""
        self._verdicts = services.verdicts
        self._library = services.library
        self._folder = tempfile.TemporaryDirectory(prefix="coft-verdicts-")

    @shown
    def find(self, event: gr.EventData) -> Message:
        """Sessions whose name, prompt, tags or notes hold a text."""
        found = self._library.search(LibraryQuery(text=str(event.text), archived=None, page_size=OFFERED))
        return reply(event, {"kind": "sessions", "html": sessions_list(found, str(event.text))})

    @shown
    def read(self, event: gr.EventData) -> Message:
        """A session's verdicts."""
        return self._sheet(event)

    @shown
    def act(self, event: gr.EventData) -> Message:
        """Begin or finish a review."""
        session, reviewer = int(event.session), str(event.reviewer)
        if event.action == "finish":
            self._verdicts.finish_review(session, reviewer)
            return self._sheet(event, "Your review is finished; you see what others say.")
        if event.action not in ("blind", "open"):
            raise ServiceError(f"There is no action {event.action!r}; choose blind, open or finish.")
        made = self._verdicts.start_review(session, reviewer, blind=event.action == "blind")
        return self._sheet(event, f"Your {'blind' if made.blind else 'open'} review has begun.")

    @shown
    def decide(self, event: gr.EventData) -> Message:
        """Decide a disagreement as a third person."""
        request = VerdictRequest(
            int(event.session), str(event.reviewer), event.verdict, event.branch, event.first, event.last,
            str(event.note),
        )  # fmt: skip
        made = self._verdicts.adjudicate(request)
        return self._sheet(event, given_sentence(made).replace("Saved", "Decided", 1))

    @shown
    def file(self, event: gr.EventData) -> str:
        """Write the log for download."""
        reader = signed(event.reviewer) or None
        return str(self._verdicts.write_csv(int(event.session), Path(self._folder.name), reader))

    @shown
    def agree(self, event: gr.EventData) -> Message:
        """How far two reviewers agree, on one session or on all."""
        names = self._verdicts.reviewers()
        chosen = event.first in names and event.second in names and event.first != event.second
        found = self._verdicts.agreement(event.first, event.second, event.session) if chosen else None
        return reply(event, agreement_message(names, found))

    def _sheet(self, event: gr.EventData, said: str = "") -> Message:
        reviewer = signed(event.reviewer)
        sheet = self._verdicts.sheet(int(event.session), reviewer or None)
        return reply(event, sheet_message(sheet, reviewer, bool(event.reveal), said))
