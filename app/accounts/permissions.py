"""What each role may do: the routes and pages of the web application; handlers and operations declare it themselves.

What is not listed or declared is refused: a route to everybody, an operation to all but admins, a page's event to
those who may not work on its page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from starlette.routing import compile_path

from app.shared.needs import ADMIN, LEAD, NOBODY, READ, WORK, Need
from db.accounts import Role

MAY: Mapping[Role, str] = {
    "viewer": "read and export",
    "reviewer": "read, audit and judge",
    "lead": "audit, judge, start long work and assign reviews",
    "admin": "do everything, and manage accounts",
}
"""What a role may do, to go on after "may"."""

Rule = Need | Literal["open", "event", "tools"]
"""``open`` needs no account; for ``event`` and ``tools`` the request's content says what is asked for."""

ROUTES: tuple[tuple[str, Rule], ...] = (
    # Signing in, and what the pages consist of: scripts, styles and pictures, which are the same for everybody.
    ("/sign-in", "open"),
    ("/sign-in/{path:path}", "open"),
    ("/sign-out", "open"),
    ("/account", READ),
    ("/account/project", READ),
    ("/account/limits", READ),
    ("/account/sign-ins", READ),
    ("/account/sign-ins/end", READ),
    ("/account/password", READ),
    ("/own/{digest}/{path:path}", "open"),
    ("/static/{path:path}", "open"),
    ("/assets/{path:path}", "open"),
    ("/svelte/{path:path}", "open"),
    ("/favicon.ico", "open"),
    ("/robots.txt", "open"),
    ("/manifest.json", "open"),
    ("/theme.css", "open"),
    # What those outside check the signatures of bundles with.
    ("/public-key.pem", "open"),
    # What a proxy asks before it sends anybody here; whoever asks for the figures sends the token of an account.
    ("/health", "open"),
    ("/ready", "open"),
    ("/metrics", READ),
    ("/gradio_api/theme.css", "open"),
    # Gradio asks itself for this when it is launched: it starts the queue, once.
    ("/gradio_api/startup-events", "open"),
    # What pages ask for beside their events.
    ("/config", READ),
    ("/jobs", READ),
    ("/jobs/seen", READ),
    ("/jobs/dismissed", READ),
    ("/address", READ),
    ("/address/{page:path}", READ),
    ("/audit/chain", READ),
    ("/endpoints", READ),
    ("/gradio_api/info", READ),
    ("/gradio_api/openapi.json", READ),
    ("/openapi.json", READ),
    ("/gradio_api/app_id", READ),
    ("/gradio_api/heartbeat/{session_hash}", READ),
    ("/gradio_api/reset", READ),
    ("/gradio_api/cancel", READ),
    ("/gradio_api/queue/status", READ),
    ("/gradio_api/queue/data", READ),
    ("/gradio_api/upload", READ),
    ("/gradio_api/upload_progress", READ),
    ("/gradio_api/file={path_or_url:path}", READ),
    ("/gradio_api/file/{path:path}", READ),
    # Events of pages and operations.
    ("/gradio_api/queue/join", "event"),
    ("/gradio_api/run/{api_name}", "event"),
    ("/gradio_api/api/{api_name}", "event"),
    ("/gradio_api/call/v2/{api_name}", "event"),
    ("/gradio_api/call/{api_name}", "event"),
    ("/gradio_api/call/v2/{api_name}/{event_id}", READ),
    ("/gradio_api/call/{api_name}/{event_id}", READ),
    ("/gradio_api/mcp", "tools"),
    ("/gradio_api/mcp/{path:path}", "tools"),
    # Completions in the shape of OpenAI's interface.
    ("/v1/models", READ),
    ("/v1/completions", WORK),
    ("/v1/chat/completions", WORK),
    # What Gradio can do, and this program does not use.
    ("/login", NOBODY),
    ("/logout", NOBODY),
    ("/pwa_icon", NOBODY),
    ("/pwa_icon/{size}", NOBODY),
    ("/monitoring", NOBODY),
    ("/monitoring/summary", NOBODY),
    ("/monitoring/{key}", NOBODY),
    ("/gradio_api/deep_link", NOBODY),
    ("/gradio_api/user", NOBODY),
    ("/gradio_api/token", NOBODY),
    ("/gradio_api/login_check", NOBODY),
    ("/gradio_api/dev/reload", NOBODY),
    ("/gradio_api/proxy={url_path:path}", NOBODY),
    ("/gradio_api/component_server", NOBODY),
    ("/gradio_api/custom_component/{id}/{environment}/{type}/{file_name}", NOBODY),
    ("/gradio_api/process_recording", NOBODY),
    ("/gradio_api/runs", NOBODY),
    ("/gradio_api/run-history/{path:path}", NOBODY),
    ("/gradio_api/stream/{path:path}", NOBODY),
    ("/gradio_api/profiling/{path:path}", NOBODY),
    ("/gradio_api/vibe-edit", NOBODY),
    ("/gradio_api/undo-vibe-edit", NOBODY),
    ("/gradio_api/vibe-code", NOBODY),
    ("/gradio_api/vibe-starter-queries", NOBODY),
)


@dataclass(frozen=True, slots=True)
class PageNeeds:
    """What a page takes."""

    opening: Need
    working: Need


PAGES: Mapping[str, PageNeeds] = {
    "": PageNeeds(READ, WORK),
    "calibrate": PageNeeds(READ, LEAD),
    "compare": PageNeeds(READ, WORK),
    "tune": PageNeeds(READ, LEAD),
    "evaluate": PageNeeds(READ, LEAD),
    "swap": PageNeeds(READ, WORK),
    "paths": PageNeeds(READ, WORK),
    "batches": PageNeeds(READ, LEAD),
    "sessions": PageNeeds(READ, LEAD),
    "review": PageNeeds(READ, WORK),
    "lists": PageNeeds(READ, LEAD),
    # What is done there the trail takes down with the names that it is about.
    "accounts": PageNeeds(Need("admin", trailed=False), Need("admin", trailed=False)),
}
"""By the page's address."""


def event_need(page: str, function: Callable[..., Any] | None, public: bool) -> Need:
    """What an event takes: what is declared at its function, or what working on its page takes."""
    handler = "" if function is None else getattr(function, "__qualname__", "")
    if not public and (not handler or handler.endswith("<lambda>")):
        # Written where the page is built: they show, empty or hide parts of a form.
        return READ
    needs = PAGES.get(page)
    declared: Need | None = getattr(function, "need", None)
    return declared or (ADMIN if public or needs is None else needs.working)


def _compiled() -> list[tuple[re.Pattern[str], Rule]]:
    return [(compile_path(pattern)[0], rule) for pattern, rule in ROUTES]


class RouteTable:
    """Finds the row of a request's path; the first that fits counts, and what has none is for nobody."""

    def __init__(self) -> None:
        self._rows = _compiled()

    def rule(self, path: str) -> Rule:
        """What a path takes; a slash at the end changes nothing."""
        stripped = path.rstrip("/")
        page = PAGES.get(stripped.removeprefix("/"))
        if page is not None:
            return page.opening
        return next((rule for pattern, rule in self._rows if pattern.match(stripped)), NOBODY)
