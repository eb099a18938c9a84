"""The panel of the audit page that reads a chain at another lambda or alpha."""

from __future__ import annotations

import time
from collections.abc import Iterator

import gradio as gr

from app.bootstrap import Services
from app.services.views.rereading import Departure, RereadRequest
from app.ui.components.rereading import rereading
from app.ui.errors import or_refusal, shown, shown_stream
from app.ui.events import On, reply, wire
from app.ui.pages.audit.common import GENERATING, MULTIPLE
from app.ui.presenters_rereading import departure_message, refusal_message, rereading_message
from app.ui.presenters_session import Message

FRAME_SECONDS = 0.1
"""The way to a new audit is shown at most this often."""


class RereadingHandlers:
    """What the panel asks of the services; every method builds one request and calls one service."""

    def __init__(self, services: Services) -> None:
        """Keep the services."""
        self._rereads = services.rereads
        self._audits = services.audits

    @shown
    def reread(self, event: gr.EventData) -> Message:
        """Read the chain; why it cannot be read is shown in the panel and not as an error."""
        found = or_refusal(lambda: rereading_message(self._rereads.read(_request(event))))
        if isinstance(found, str):
            return reply(event, refusal_message(found, event.session, event.branch))
        return reply(event, found)

    @shown_stream
    def depart(self, event: gr.EventData) -> Iterator[Message]:
        """Begin an audit at these settings and run it to the step at which it departs."""
        shown_at, found = 0.0, None
        for found in self._rereads.depart(_request(event)):
            if found.done or time.monotonic() - shown_at >= FRAME_SECONDS:
                yield _departure(event, found)
                shown_at = time.monotonic()

    @shown
    def halt(self, event: gr.EventData) -> None:
        """End the way to a new audit after its current token."""
        self._audits.pause(event.session)


def rereading_panel(services: Services) -> None:
    """Place the panel and wire it."""
    handlers = RereadingHandlers(services)
    panel = rereading()
    events = {"reread": On(handlers.reread, panel), "depart": On(handlers.depart, panel, settings=GENERATING)}
    wire(panel, events, MULTIPLE)
    panel.halt(handlers.halt, None, None, **MULTIPLE)  # type: ignore[attr-defined]


def _request(event: gr.EventData) -> RereadRequest:
    return RereadRequest(event.session, event.lam, event.alpha, event.branch)


def _departure(event: gr.EventData, found: Departure) -> Message:
    return reply(event, departure_message(found))
