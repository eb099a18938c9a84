"""What a server with accounts is launched with: the gate, the doors before its events, and the pages to sign in."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr
from gradio_client import Client
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from app.accounts.events import PageEvent, guard, page_events
from app.accounts.gate import AccountGate, refused, with_article
from app.accounts.holdings import LOOPBACK_HEADER, Holdings
from app.accounts.own_account import OwnAccountPages
from app.accounts.projects import ProjectService
from app.accounts.service import AccountService
from app.accounts.sign_in import SignInPages
from app.accounts.words import MAY
from app.shared.visitors import visitor_asking
from app.shared.wiring import Services
from db.accounts import ROLES


class Doors:
    """Puts accounts around the web application."""

    def __init__(self, accounts: AccountService, projects: ProjectService, pages: SignInPages) -> None:
        self._accounts, self._projects, self._pages = accounts, projects, pages
        self._loopback = secrets.token_urlsafe(32)
        self._events: Mapping[str, Sequence[PageEvent]] = {}

    @classmethod
    def wired(cls, services: Services) -> Doors:
        """Built from the program's services."""
        return cls(services[AccountService], services[ProjectService], services[SignInPages])

    @property
    def routes(self) -> list[BaseRoute]:
        """Where browsers sign in and out, and ask what an account may do."""
        own = OwnAccountPages(self._accounts, self._pages)
        return [*self._pages.routes, *own.routes, Route("/account/limits", self.limits, methods=["GET"])]

    def guard(self, blocks: gr.Blocks) -> None:
        """Put doors before all events and operations, once all pages are built, and note whose their files are."""
        self._events = page_events(blocks)
        self._holdings = Holdings(blocks)
        guard(blocks, self._accounts)

    def limits(self, request: Request) -> Response:
        """What of a page the signed-in account may not use, with a sentence for it and for each control."""
        account = visitor_asking(request).account
        if account is None:
            return PlainTextResponse("Nobody is signed in.", 401)
        events = self._events.get(request.query_params.get("page", ""), ())
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

    def gate(self, app: Any, behind: ASGIApp) -> ASGIApp:
        """The gate around a web application that has begun."""
        return AccountGate(
            behind, app.get_blocks(), self._accounts, self._projects, self._pages, self._holdings, self._loopback
        )

    def let_agents_in(self, blocks: gr.Blocks) -> None:
        """After the launch: let the server for agents read the list of operations, and the answers to its calls.

        It calls operations over HTTP, with the headers of the agent's own request; what it reads for itself beside
        that carries none.
        """
        server = blocks.mcp_server_obj
        if server is None:
            return

        def client() -> Client:
            if server._client_instance is None:
                headers = {"x-gradio-user": "mcp", LOOPBACK_HEADER: self._loopback}
                server._client_instance = Client(
                    str(server.local_url or blocks.local_url), headers=headers, download_files=False, verbose=False,
                    analytics_enabled=False, ssl_verify=False, _skip_components=False,
                )  # fmt: skip
            return server._client_instance

        server._get_or_create_client = client
