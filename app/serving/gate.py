"""Which requests are answered at all: those to a name of this server, and from no other website.

A browser lets any website send requests to an address that its visitor can reach. ``Origin`` names the website that
asks, and ``Host`` the name that it asked by, which is foreign where a website lets its own name point to this computer
(DNS rebinding).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from fastapi.exceptions import RequestValidationError
from gradio.route_utils import API_PREFIX, FnIndexInferError
from starlette._utils import get_route_path
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.hosting.limits import DiskRoom
from app.serving.gradio_changes import SENTENCE, PageStates, is_fetching
from app.settings import Settings
from app.shared.errors import ServiceError, sentence_of
from app.shared.visitors import share_of, visitor_asking

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Names that are always answered to: they mean this very computer, and its health is checked by them."""
EVERYWHERE = ("0.0.0.0", "::")
"""Addresses to listen on that are not a name to ask by."""
PORTS = {"http": 80, "https": 443}
POLICY = "Content-Security-Policy"

EVERYWHERE_FORBIDDEN = "frame-ancestors 'self'; base-uri 'none'; object-src 'none'"
"""What no answer may do: a page of ours in somebody's frame could be clicked unawares, a changed base would fetch
scripts from elsewhere, and there are no plug-ins."""

HEADERS = {
    # Pages name their scripts more closely (:mod:`app.serving.pages`).
    POLICY: f"{EVERYWHERE_FORBIDDEN}; script-src 'self'",
    "X-Frame-Options": "SAMEORIGIN",
    "X-Content-Type-Options": "nosniff",
    # Addresses name sessions, and are nobody else's business.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""What every answer tells the browser, files and refusals included."""

ALWAYS_TLS = "max-age=31536000; includeSubDomains"
"""What answers over TLS add: to ask this host, and those below it, over TLS only for a year."""

_NAMED = "This server does not answer to the name {}. The server's owner lists its names in COFT_HOSTS."


@dataclass(frozen=True, slots=True)
class Allowed:
    """The names that a server answers to, and the websites that may ask it."""

    hosts: frozenset[str]
    origins: frozenset[tuple[str, str, int]]

    @classmethod
    def by(cls, settings: Settings) -> Allowed:
        """What the settings say, and loopback."""
        own = () if settings.host in EVERYWHERE else (settings.host.lower(),)
        return cls(
            frozenset((*LOOPBACK, *own, *(_named(name) for name in _listed(settings.hosts)))),
            frozenset(_stated(origin) for origin in _listed(settings.origins)),
        )

    def problem(self, headers: Headers) -> tuple[int, str] | None:
        """Why a request is not answered: a status and a sentence; None where it is."""
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        asked = _split(f"//{hosts[0]}") if len(hosts) == 1 else None
        if asked is None:
            return 400, "The request must name one host that it asks."
        if asked[0] not in self.hosts:
            return 421, _NAMED.format("that was asked for")
        known = self.hosts | {name for _, name, _ in self.origins}
        for name in (one for given in headers.getlist("x-forwarded-host") for one in given.split(",")):
            # Gradio tells visitors addresses by this name, which they may send themselves.
            if (passed := _split(f"//{name.strip()}")) is None or passed[0] not in known:
                return 421, _NAMED.format("in X-Forwarded-Host")
        if origins and not (len(origins) == 1 and self._trusts(origins[0], asked)):
            return 403, (
                "Other websites may not ask this server. The server's owner lists the allowed ones in COFT_ORIGINS."
            )
        return None

    def lists(self, origin: str) -> bool:
        """Whether a website may ask although it is not this server's own."""
        return _website(origin) in self.origins

    def _trusts(self, origin: str, asked: tuple[str, int | None]) -> bool:
        """Whether a request comes from a page of the very host that it asks, or from a listed website."""
        if (website := _website(origin)) is None:
            return False
        scheme, *place = website
        # Behind a proxy with TLS the request's own scheme says nothing, so that a missing port takes the page's.
        return place == [asked[0], asked[1] or PORTS[scheme]] or website in self.origins


def _website(origin: str) -> tuple[str, str, int] | None:
    """Scheme, name and port of an origin; None where it is not one."""
    scheme, _, rest = origin.partition(":")
    found = _split(rest) if scheme in PORTS and rest.startswith("//") else None
    return None if found is None else (scheme, found[0], found[1] or PORTS[scheme])


def _split(address: str) -> tuple[str, int | None] | None:
    """Name and port of an address that begins with two slashes; None where it is not one."""
    if set(address[2:]) & set("/?#@\\"):
        return None
    try:
        parts = urlsplit(address)
        name, port = parts.hostname, parts.port
    except ValueError:
        return None
    return (name.rstrip("."), port) if name else None


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _named(name: str) -> str:
    """A host's name as it is compared."""
    try:
        # An address of version 6 has brackets in a request, and none here.
        return str(ip_address(name.strip("[]")))
    except ValueError:
        found = _split(f"//{name}")
    if found is None or found[1] is not None or "*" in name:
        raise ServiceError(
            f"COFT_HOSTS names {name!r}, which is not a valid host; write names without port, as in "
            "audit.example.org, with commas between them."
        )
    return found[0]


def _stated(origin: str) -> tuple[str, str, int]:
    """A website's scheme, name and port."""
    found = _website(origin.lower())
    if found is None or "*" in origin:
        raise ServiceError(
            f"COFT_ORIGINS names {origin!r}, which is not a valid origin; write scheme and host, as in "
            "https://tools.example.org, with commas between them."
        )
    return found


def _is_over_tls(scope: Scope, headers: Headers) -> bool:
    """Whether a browser asked over TLS, and not this computer itself, where other programs may answer without."""
    host = _split(f"//{headers.get('host', '')}")
    return scope.get("scheme") == "https" and host is not None and host[0] not in LOOPBACK


class _TooLarge(Exception):  # noqa: N818 - ends the reading of a body, and is shown to nobody
    """A body went on after the limit."""


class RequestGate:
    """Around the whole application: refuses what is not allowed, and adds the headers that protect its pages."""

    def __init__(self, app: ASGIApp, allowed: Allowed, largest_body: int) -> None:
        """Stand around an application."""
        self._app, self._allowed, self._largest = app, allowed, largest_body
        self._refusal = (
            f"The request is larger than the {largest_body // 1_000_000} MB that are read. The server's owner "
            "sets that in COFT_MAX_UPLOAD_MB."
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse in one sentence."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        asked = Headers(scope=scope)
        problem = self._problem(asked, str(scope["path"]))
        if scope["type"] == "websocket":
            if problem is None:
                await self._app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008})
            return
        left, answered = self._largest, False

        async def limited() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b"")) if message["type"] == "http.request" else 0
            if left < 0:
                raise _TooLarge
            return message

        async def protected(message: Message) -> None:
            nonlocal answered
            answered = True
            if message["type"] == "http.response.start":
                self._protect(MutableHeaders(scope=message), scope, asked, listed)
            await send(message)

        listed = problem is None and self._allowed.lists(asked.get("origin", ""))
        answer = self._app if problem is None else PlainTextResponse(problem[1], problem[0])
        try:
            await answer(scope, limited, protected)
        except _TooLarge:
            if not answered:
                await PlainTextResponse(self._refusal, 413)(scope, receive, protected)
        except Exception as error:
            # It was answered by :func:`explained`, unless its answer had begun; the server would write a traceback.
            sentence_of(error)

    def _problem(self, headers: Headers, path: str) -> tuple[int, str] | None:
        """Why a request is not answered; a body that does not say its length is cut off at the limit."""
        if problem := self._allowed.problem(headers):
            return problem
        stated = headers.get("content-length", "0")
        if not stated.isdecimal():
            return 400, "The request's Content-Length is not a number."
        if len(stated) > 18 or int(stated) > self._largest:
            return 413, self._refusal
        return (403, SENTENCE) if is_fetching(path) else None

    def _protect(self, headers: MutableHeaders, scope: Scope, asked: Headers, listed: bool) -> None:
        # A page that loads less than others says so itself.
        headers.update({**HEADERS, POLICY: headers.get(POLICY, HEADERS[POLICY])})
        if _is_over_tls(scope, asked):
            headers.setdefault("Strict-Transport-Security", ALWAYS_TLS)
        if listed:
            # Gradio's own answer to other websites depends on the name that was asked for; the list decides.
            headers["Access-Control-Allow-Origin"] = asked["origin"]
            headers.add_vary_header("Origin")


HOUR = 3600.0


class UploadShares:
    """How much each visitor has uploaded in the last hour."""

    def __init__(
        self, megabytes: int, clock: Callable[[], float] = time.monotonic, room: DiskRoom | None = None
    ) -> None:
        """Allow each visitor so many megabytes an hour, 0 setting no limit, while the store has room."""
        self._most = megabytes * 1_000_000
        self._room = room
        self._clock = clock
        self._taken: deque[tuple[float, str, int]] = deque()

    def take(self, address: str, size: int) -> bool:
        """Count an upload; False where it is more than the visitor may, and is not counted."""
        if not self._most:
            return True
        now = self._clock()
        while self._taken and self._taken[0][0] <= now - HOUR:
            self._taken.popleft()
        if sum(one for _, whose, one in self._taken if whose == address) + size > self._most:
            return False
        self._taken.append((now, address, size))
        return True

    def problem(self, connection: HTTPConnection, largest: int) -> tuple[int, str] | None:
        """Why an upload is not taken; None where it is, or is none. One without a length counts as the largest."""
        if not connection.url.path.endswith("/upload"):
            return None
        if self._room is not None and (full := self._room.problem(visitor_asking(connection).account)):
            return 507, full
        stated = Headers(scope=connection.scope).get("content-length", "")
        if self.take(share_of(connection), int(stated) if stated.isdecimal() else largest):
            return None
        return 429, (
            f"More than {self._most // 1_000_000} MB were uploaded from here within an hour; upload more later. "
            "The server's owner sets that in COFT_UPLOADS_MB_PER_HOUR."
        )


async def unreadable(request: Request, error: Exception) -> Response:
    """422 for a request to Gradio's routes that cannot be read; the log does not repeat what was sent."""
    if not get_route_path(request.scope).startswith(f"{API_PREFIX}/"):
        raise error
    first = error.errors()[0] if isinstance(error, RequestValidationError) else {"loc": (), "msg": ""}
    field = ".".join(str(part) for part in first["loc"][1:2])
    reason = f" ({field}: {first['msg']})" if field else ""
    told = f"The request cannot be read{reason}; GET {API_PREFIX}/info lists what the endpoints take."
    return JSONResponse({"detail": told}, 422)


async def explained(request: Request, error: Exception) -> Response:
    """500 in one sentence."""
    del request, error
    return JSONResponse({"detail": "The program met an error that it does not know; the log has its place."}, 500)


EXPLAINED: dict[Any, Any] = {
    **dict.fromkeys((RequestValidationError, FnIndexInferError, LookupError, TypeError), unreadable),
    Exception: explained,
}
"""What answers a request that ends in an error, by the error's kind."""


def gated(
    settings: Settings,
    room: DiskRoom | None = None,
    inner: Callable[[ASGIApp], ASGIApp] | None = None,
    around: Callable[[ASGIApp], ASGIApp] = lambda app: app,
) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """What runs when the web application begins: it puts the gate around all else, and keeps little of each page.

    Gradio adds its own middleware, which answers other websites before any that the application is made with is asked,
    when it begins; so the gate is put around them all before the first request.
    """
    allowed, uploads = Allowed.by(settings), UploadShares(settings.uploads_mb_per_hour, room=room)

    @asynccontextmanager
    async def begun(app: Any) -> AsyncIterator[None]:
        stack = app.middleware_stack

        async def uploading(scope: Scope, receive: Receive, send: Send) -> None:
            # Within all gates, where it is known whose share an upload takes.
            http = scope["type"] == "http"
            problem = uploads.problem(HTTPConnection(scope), settings.largest_body) if http else None
            await (stack if problem is None else PlainTextResponse(problem[1], problem[0]))(scope, receive, send)

        behind = uploading if inner is None else inner(uploading)
        app.state_holder = PageStates(app.get_blocks())
        app.middleware_stack = around(RequestGate(behind, allowed, settings.largest_body))
        yield

    return begun
