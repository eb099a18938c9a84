"""Around the application of a server with accounts: 401 without an account, 403 for what a role may not do."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import gradio as gr
from gradio_client import Client
from starlette._utils import get_route_path
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.accounts.events import PageEvent, guard, need_of, page_events
from app.accounts.forms import COOKIE, address_of, cookie_of
from app.accounts.holdings import LOOPBACK_HEADER, Holdings, name_upload
from app.accounts.permissions import MAY, PAGES, RouteTable
from app.accounts.projects import COOKIE as PROJECT_COOKIE
from app.accounts.projects import HEADER, ProjectService
from app.accounts.service import AccountService
from app.accounts.sign_in import OWN_ACCOUNT, SignInPages
from app.shared.needs import NOBODY, READ, Need
from app.shared.visitors import SCOPE_KEY, Visitor, answering, visitor_asking
from db.accounts import ROLES, AccountRecord
from db.types import NotFoundError

LARGEST = 64 << 20
"""Bytes of an event's request; files are uploaded by themselves."""

LOOPBACK_PATHS = ("/config", "/gradio_api/info", "/gradio_api/queue/data")
"""What the server for agents reads for itself: the list of operations, and the stream on which answers come."""

BY_THEMSELVES = ("/jobs", "/gradio_api/heartbeat/")
"""What pages ask for again and again: the bell looks for jobs, and Gradio whether the page is still open."""

QUEUE = "/gradio_api/queue/join"
CANCEL = "/gradio_api/cancel"
FOREIGN = (
    "There is no such file, stream or event of yours in the project that you are in; load the page again, or name the "
    "project that it belongs to."
)
SAFE = ("GET", "HEAD", "OPTIONS")


class AccountGate:
    """Checks for every request who sent it and what it asks for, before anything else is done with it."""

    def __init__(self, accounts: AccountService, projects: ProjectService, pages: SignInPages) -> None:
        self._accounts, self._projects, self._pages = accounts, projects, pages
        self._loopback = secrets.token_urlsafe(32)
        self._table = RouteTable()
        self._page_events: Mapping[str, Sequence[PageEvent]] = {}
        self._operations: Mapping[str, Need] = {}
        self._blocks: gr.Blocks
        self._holdings: Holdings
        self._app: ASGIApp

    @property
    def routes(self) -> list[BaseRoute]:
        """Where browsers sign in and out, and ask what an account may do."""
        return [*self._pages.routes, Route("/account/limits", self.limits)]

    def guard(self, blocks: gr.Blocks) -> None:
        """Check roles before all events and operations, once all pages are built, and note whose their files are."""
        self._blocks, self._page_events, self._holdings = blocks, page_events(blocks), Holdings(blocks)
        public = (function for function in blocks.fns.values() if function.api_visibility == "public")
        self._operations = dict(map(need_of, public))
        guard(blocks, self._accounts)

    def around(self, app: ASGIApp) -> AccountGate:
        """Wrap the web application."""
        self._app = app
        return self

    def let_agents_in(self) -> None:
        """After the launch: let the server for agents read the list of operations, and the answers to its calls.

        It calls operations over HTTP with the headers of the agent's own request; what it reads for itself carries
        none of them.
        """
        server = self._blocks.mcp_server_obj
        if server is None:
            return

        def client() -> Client:
            if server._client_instance is None:
                server._client_instance = Client(
                    str(server.local_url or self._blocks.local_url),
                    headers={"x-gradio-user": "mcp", LOOPBACK_HEADER: self._loopback},
                    download_files=False, verbose=False, analytics_enabled=False, ssl_verify=False,
                    _skip_components=False,
                )  # fmt: skip
            return server._client_instance

        server._get_or_create_client = client

    def limits(self, request: Request) -> Response:
        """What of a page the signed-in account may not use, with a sentence for it and for each control."""
        account = visitor_asking(request).account
        if account is None:
            return PlainTextResponse("Nobody is signed in.", 401)
        events = self._page_events.get(request.query_params.get("page", ""), ())
        beyond = [event for event in events if not event.need.allows(account.role)]
        allowed = {event.name for event in events if event.need.allows(account.role)}
        least = sorted({event.need.role for event in beyond if event.need.role is not None}, key=ROLES.index)
        told = {
            "said": f"You are {with_article(account.role)} here: you may {MAY[account.role]}. What is switched off on "
            f"this page takes {' or '.join(with_article(role) for role in least)}; ask an admin of this server.",
            "events": [
                {
                    "within": event.within,
                    "name": event.name,
                    "native": event.native,
                    "only": event.name not in allowed,
                    "why": refused(account, event.need),
                }
                for event in beyond
            ],
        }
        return JSONResponse(told, headers={"Cache-Control": "no-store"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse in one sentence."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            # Nothing here answers them; one that does some day must not do so unasked.
            await send({"type": "websocket.close", "code": 1008})
            return
        request = Request(scope, receive)
        path = get_route_path(scope)
        rule = self._table.rule(path)
        if rule == "open":
            await self._app(scope, receive, send)
            return
        try:
            visitor, by_cookie = await run_in_threadpool(self._asking, request)
        except NotFoundError as error:
            await _refusal(path, 404, str(error))(scope, receive, send)
            return
        if visitor is None:
            answer = None if self._is_loopback(request, path) else self._nobody(request, path)
            await (self._app if answer is None else answer)(scope, receive, send)
            return
        if by_cookie and request.method not in SAFE and not _from_own_page(request):
            await _refusal(path, 403, "The request was not sent by a page of this server.")(scope, receive, send)
            return
        needs: list[tuple[str, Need]] = [(f"{request.method} {path}", rule)] if isinstance(rule, Need) else []
        given: Mapping[str, Any] = {}
        if request.method not in SAFE and (not needs or path.rstrip("/") == CANCEL):
            try:
                body = await _body(request)
            except ValueError as error:
                await _refusal(path, 413, str(error))(scope, receive, send)
                return
            receive, given = _again(body, receive), _object(body)
            needs = needs or (self._tools(body) if rule == "tools" else self._events(path, given))
        shown = self._shows_loopback(request)
        if not shown and self._holdings.is_foreign(visitor, path, request.query_params, given):
            await _refusal(path, 404, FOREIGN)(scope, receive, send)
            return
        name_upload(scope, visitor)
        await self._answered(visitor, needs, request, path, receive, send)

    async def _answered(
        self, visitor: Visitor, needs: Iterable[tuple[str, Need]], request: Request, path: str, receive: Receive,
        send: Send,
    ) -> None:  # fmt: skip
        """Answer an account whose role suffices."""
        scope, account = request.scope, visitor.account
        assert account is not None
        for what, need in needs:
            if not need.allows(account.role):
                await run_in_threadpool(self._accounts.note, what, "", "refused", address_of(request), account.name)
                await _refusal(path, 403, refused(account, need))(scope, receive, send)
                return
            if need.trailed and what.startswith(request.method):
                # Events are taken down where they are done, with what came of them.
                await run_in_threadpool(self._accounts.note, what, "", "done", address_of(request), account.name)
        scope[SCOPE_KEY] = visitor

        async def unkept(message: Message) -> None:
            if message["type"] == "http.response.start":
                # No browser keeps what only this account may see; an answer that says for how long it holds knows.
                MutableHeaders(scope=message).setdefault("Cache-Control", "no-store")
            await send(message)

        with answering(visitor):
            await self._app(scope, receive, unkept)

    def _asking(self, request: Request) -> tuple[Visitor | None, bool]:
        """Who a request comes from and which project it is about, and whether a cookie says so."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        only: int | None = None
        if by_cookie := kind.lower() != "bearer":
            account = self._accounts.by_cookie(cookie_of(request, COOKIE), not _by_itself(request))
        else:
            account, only = self._accounts.by_token(token.strip()) or (None, None)
            if account is None:
                self._accounts.attempts.note_strange_token(address_of(request))
        if account is None:
            return None, by_cookie
        named, chosen = unquote(request.headers.get(HEADER, "")), cookie_of(request, PROJECT_COOKIE)
        project = self._projects.asked(account, named, chosen if by_cookie else "", only)
        return Visitor(account.name, "", account, project, only is not None, not by_cookie), by_cookie

    def _is_loopback(self, request: Request, path: str) -> bool:
        return request.method in SAFE and path in LOOPBACK_PATHS and self._shows_loopback(request)

    def _shows_loopback(self, request: Request) -> bool:
        return secrets.compare_digest(request.headers.get(LOOPBACK_HEADER, "").encode(), self._loopback.encode())

    def _nobody(self, request: Request, path: str) -> Response:
        """401: the sign-in page where a browser opens a page, and else a sentence."""
        page = path.strip("/")
        is_opened = request.method in SAFE and "text/html" in request.headers.get("accept", "")
        if page == OWN_ACCOUNT and is_opened:
            root = request.scope.get("root_path", "")
            return RedirectResponse(f"{root}/sign-in?next={OWN_ACCOUNT}", 303)
        if page in PAGES and is_opened:
            query = request.url.query
            return self._pages.page(request, 401, following=f"{page}?{query}" if query else page)
        sentence = (
            "This server asks who you are: sign in with a browser, or send a token as 'Authorization: Bearer TOKEN'."
        )
        return _refusal(path, 401, sentence)

    def _events(self, path: str, given: Mapping[str, Any]) -> list[tuple[str, Need]]:
        """What the event takes that a request names, by its number or by its name, or both."""
        functions = self._blocks.fns
        number = given.get("fn_index")
        # The queue's own address names no event, whatever events are called.
        named = None if path.rstrip("/") == QUEUE else path.rstrip("/").rpartition("/")[2]
        wanted = [function for function in functions.values() if function.api_name == named]
        if number is not None and not path.startswith("/gradio_api/call/"):
            # Gradio reads numbers in text too.
            found = functions.get(int(number)) if str(number).isdecimal() else None
            wanted = [*wanted, *([] if found is None else [found])]
            if found is None:
                return [(f"event {number!r:.20}", NOBODY)]
        return [need_of(function) for function in wanted] or [("an unknown event", NOBODY)]

    def _tools(self, body: bytes) -> list[tuple[str, Need]]:
        """What the tools take that an agent's request calls; all else that agents ask only reads."""
        try:
            read = json.loads(body)
        except (ValueError, RecursionError):
            return [("an agent's request", READ)]
        calls = [call for call in (read if isinstance(read, list) else [read]) if isinstance(call, Mapping)]
        names = [
            str((call.get("params") or {}).get("name", "")) if isinstance(call.get("params"), Mapping) else ""
            for call in calls
            if call.get("method") == "tools/call"
        ]
        return [(name, self._operations.get(name, NOBODY)) for name in names] or [("an agent's request", READ)]


def refused(account: AccountRecord, need: Need) -> str:
    """Why a role does not suffice."""
    if need.role is None:
        return "This server offers nothing of this kind."
    has, takes = with_article(account.role), with_article(need.role)
    return f"{account.name} is {has} here, and this takes {takes}. Ask an admin of this server for the role."


def with_article(role: str) -> str:
    """A role in a sentence."""
    return f"an {role}" if role.startswith("a") else f"a {role}"


def _by_itself(request: Request) -> bool:
    """Whether pages send a request without anybody at them: then it keeps nobody signed in."""
    return get_route_path(request.scope).startswith(BY_THEMSELVES)


def _from_own_page(request: Request) -> bool:
    """Whether a browser says that a page of this server, or a listed website, has sent a request.

    Which origins there are was looked at before (:mod:`app.serving.gate`); browsers name one with every request
    that may change something.
    """
    return "origin" in request.headers or request.headers.get("sec-fetch-site") == "same-origin"


def _refusal(path: str, status: int, sentence: str) -> Response:
    """A refusal in the form that is read at the path."""
    headers = {"WWW-Authenticate": "Bearer", "Cache-Control": "no-store"} if status == 401 else {}
    if path.startswith("/v1/"):
        kind = "authentication_error" if status == 401 else "permission_error"
        error = {"message": sentence, "type": kind, "param": None, "code": None}
        return JSONResponse({"error": error}, status, headers)
    if path.startswith("/gradio_api/"):
        return JSONResponse({"detail": sentence}, status, headers)
    return PlainTextResponse(sentence, status, headers)


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        read = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


async def _body(request: Request) -> bytes:
    """The whole content of a request."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > LARGEST:
            raise ValueError(f"The request has more than {LARGEST >> 20} megabytes; send less at a time.")
        parts.append(part)
    return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    """Gives a content that was read already, and then what else comes: that the browser has gone."""
    given = False

    async def replayed() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
