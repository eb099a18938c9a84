"""What a server with accounts is launched with: the gate, the doors before its events, and the pages to sign in."""

from __future__ import annotations

import secrets
from typing import Any

import gradio as gr
from gradio_client import Client
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from app.accounts.events import guard
from app.accounts.gate import LOOPBACK_HEADER, AccountGate
from app.accounts.projects import ProjectService
from app.accounts.service import AccountService
from app.accounts.sign_in import SignInPages
from app.shared.wiring import Services


class Doors:
    """Puts accounts around the web application."""

    def __init__(self, accounts: AccountService, projects: ProjectService, pages: SignInPages) -> None:
        self._accounts, self._projects, self._pages = accounts, projects, pages
        self._loopback = secrets.token_urlsafe(32)

    @classmethod
    def wired(cls, services: Services) -> Doors:
        """Built from the program's services."""
        return cls(services[AccountService], services[ProjectService], services[SignInPages])

    @property
    def routes(self) -> list[BaseRoute]:
        """Where browsers sign in and out."""
        return self._pages.routes

    def guard(self, blocks: gr.Blocks) -> None:
        """Put doors before all events and operations, once all pages are built."""
        guard(blocks, self._accounts)

    def gate(self, app: Any, behind: ASGIApp) -> ASGIApp:
        """The gate around a web application that has begun."""
        return AccountGate(behind, app.get_blocks(), self._accounts, self._projects, self._pages, self._loopback)

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

        server._get_or_create_client = client  # type: ignore[method-assign]
