"""What the audit page asks before Gradio has built it: the chain that its address names."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.audit.handlers import AuditHandlers
from app.shared.errors import USER_ERRORS

LONGEST_NUMBER = 18
"""Digits of a number that a store can have."""


class FirstChain:
    """Answers with the message that the page's event ``open`` would bring."""

    def __init__(self, handlers: AuditHandlers) -> None:
        self._handlers = handlers

    @property
    def routes(self) -> list[Route]:
        """Where the page asks."""
        return [Route("/audit/chain", self.answer)]

    def answer(self, request: Request) -> Response:
        """The chain; nothing where the event would say why there is none."""
        session, branch = (_number(request.query_params.get(name, "")) for name in ("session", "branch"))
        try:
            if session is not None:
                message = self._handlers.first_message(session, branch)
                return JSONResponse(message, headers={"Cache-Control": "no-store"})
        except USER_ERRORS:
            pass
        return Response(status_code=404)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= LONGEST_NUMBER else None
