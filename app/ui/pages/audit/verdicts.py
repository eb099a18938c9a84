"""What the audit page asks of the services for verdicts."""

from __future__ import annotations

import gradio as gr

from app.bootstrap import Services
from app.services.views.verdicts import VerdictRequest
from app.ui.components.verdict_panel import verdict_panel
from app.ui.errors import shown
from app.ui.events import reply, told_of_failure
from app.ui.pages.audit.common import MULTIPLE
from app.ui.presenters_session import Message
from app.ui.presenters_verdicts import given_sentence, signed, verdicts_message


class VerdictHandlers:
    """What the panel asks for; every method builds one request and calls one service."""

    def __init__(self, services: Services) -> None:
        """Keep the service."""
        self._verdicts = services.verdicts

    @shown
    def read(self, event: gr.EventData) -> Message:
        """What stands, as far as the reviewer may see it."""
        return reply(event, self._current(int(event.session), signed(event.reviewer)))

    @shown
    def give(self, event: gr.EventData) -> Message:
        """Write a verdict, or take one back, and say what stands now."""
        request = VerdictRequest(
            int(event.session), str(event.reviewer), event.verdict, event.branch, event.first, event.last,
            str(event.note), str(event.tag),
        )  # fmt: skip
        made = self._verdicts.add(request)
        now = self._current(request.session_id, made.reviewer)
        return reply(event, {**now, "said": given_sentence(made)})

    def _current(self, session_id: int, reviewer: str) -> Message:
        return verdicts_message(self._verdicts.current(session_id, reviewer or None), reviewer)


def verdict_part(services: Services) -> None:
    """Place the verdict panel and connect it."""
    handlers = VerdictHandlers(services)
    panel = verdict_panel()
    told_of_failure(panel.give(handlers.give, None, panel, **MULTIPLE), "verdict")  # type: ignore[attr-defined]
    told_of_failure(panel.read(handlers.read, None, panel, **MULTIPLE), "verdicts")  # type: ignore[attr-defined]
