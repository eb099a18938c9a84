"""The verdict panel: what the reviewer says of a token, a span, a branch or a session, and what others said."""

from __future__ import annotations

import gradio as gr

from app.prompts.words import Message
from app.review.log import VERDICTS, VerdictRequest
from app.review.service import VerdictService
from app.review.words import commented_sentence, given_sentence, signed_verdict, verdicts_message
from app.shared.components import place
from app.shared.events import MULTIPLE, reply, shown, shown_to, told_of_failure
from app.shared.needs import READ
from app.shared.wiring import Services

KEYS = {"fair": "C", "unfair": "U", "unclear": "X"}
SCOPES = (("steps", "this token"), ("branch", "this branch"), ("session", "whole session"))


def asked_by(event: gr.EventData, verdict: str | None, tag: str = "") -> VerdictRequest:
    """The request of an event: its target, reviewer, verdict and note."""
    return VerdictRequest(
        int(event.session), str(event.reviewer), verdict, event.branch, event.first, event.last, str(event.note), tag
    )


class VerdictHandlers:
    """What the panel asks for; every method builds one request and calls one service."""

    def __init__(self, services: Services) -> None:
        self._verdicts = services[VerdictService]

    @shown_to(READ)
    def read(self, event: gr.EventData) -> Message:
        """What stands, as far as the reviewer may see it."""
        return reply(event, self._current(int(event.session), signed_verdict(event.reviewer)))

    @shown
    def give(self, event: gr.EventData) -> Message:
        """Write a verdict, or take one back, and say what stands now."""
        entry = self._verdicts.add(asked_by(event, event.verdict, str(event.tag)))
        return self._saved(event, entry.reviewer, given_sentence(entry))

    @shown
    def comment(self, event: gr.EventData) -> Message:
        """Add to the thread on a target, and say what stands now."""
        entry = self._verdicts.comment(asked_by(event, None))
        return self._saved(event, entry.reviewer, commented_sentence(entry))

    def _saved(self, event: gr.EventData, reviewer: str, said: str) -> Message:
        return reply(event, {**self._current(int(event.session), reviewer), "said": said})

    def _current(self, session_id: int, reviewer: str) -> Message:
        return verdicts_message(self._verdicts.current(session_id, reviewer), reviewer)


def place_panel(services: Services) -> None:
    """Place the panel and connect it."""
    handlers = VerdictHandlers(services)
    panel = place(
        "review/panel.html",
        "coft.verdicts.mount(element, trigger, props, watch, ['read', 'give', 'comment'])",
        "verdicts",
        verdicts=VERDICTS,
        keys=KEYS,
        scopes=SCOPES,
    )
    told_of_failure(panel.give(handlers.give, None, panel, **MULTIPLE), "verdict")
    told_of_failure(panel.comment(handlers.comment, None, panel, **MULTIPLE), "comment")
    told_of_failure(panel.read(handlers.read, None, panel, **MULTIPLE), "verdicts")
