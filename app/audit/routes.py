"""What the audit page asks before Gradio has built it: the chain that its address names."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.audit.handlers import AuditHandlers
from app.shared.errors import USER_ERRORS
from app.shared.wiring import Services

LONGEST_NUMBER = 18
"""Digits of a number that a store can have."""


def routes(services: Services) -> list[Route]:
    """The addresses of this feature beside those of Gradio's events."""
    handlers = AuditHandlers(services)

    def chain(request: Request) -> Response:
        """The message that the event ``open`` would bring; nothing where that one would say why there is none."""
        asked = {name: request.query_params.get(name, "") for name in ("session", "branch")}
        try:
            session, branch = (_number(asked[name]) for name in asked)
            if session is not None:
                return JSONResponse(handlers.first_message(session, branch), headers={"Cache-Control": "no-store"})
        except USER_ERRORS:
            pass
        return Response(status_code=404)

    return [Route("/audit/chain", chain)]


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= LONGEST_NUMBER else None
