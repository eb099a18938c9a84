"""What each role may do: the routes and pages of the web application; handlers and operations declare it themselves.

What is not listed or declared is refused: a route to everybody, an operation to all but admins, a page's event to
those who may not work on its page.
"""

from __future__ import annotations

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

ROUTES: tuple[tuple[Rule, str], ...] = (
    # Signing in, and what the pages consist of: scripts, styles and pictures, which are the same for everybody.
    ("open", "/sign-in /sign-in/{path:path} /sign-out"),
    (
        READ,
        "/account /account/project /account/limits /account/sign-ins /account/sign-ins/end /account/password",
    ),
    (
        "open",
        "/own/{digest}/{path:path} /static/{path:path} /assets/{path:path} /svelte/{path:path} "
        "/favicon.ico /robots.txt /manifest.json /theme.css",
    ),
    # What those outside check the signatures of bundles with.
    ("open", "/public-key.pem"),
    # What a proxy asks before it sends anybody here; whoever asks for the figures sends the token of an account.
    ("open", "/health /ready"),
    (READ, "/metrics"),
    ("open", "/gradio_api/theme.css"),
    # Gradio asks itself for this when it is launched: it starts the queue, once.
    ("open", "/gradio_api/startup-events"),
    # What pages ask for beside their events.
    (
        READ,
        "/config /jobs /jobs/seen /jobs/dismissed /address /address/{page:path} /audit/chain "
        "/endpoints /gradio_api/info /gradio_api/openapi.json /openapi.json /gradio_api/app_id "
        "/gradio_api/heartbeat/{session_hash} /gradio_api/reset /gradio_api/cancel "
        "/gradio_api/queue/status /gradio_api/queue/data /gradio_api/upload "
        "/gradio_api/upload_progress /gradio_api/file={path_or_url:path} /gradio_api/file/{path:path}",
    ),
    # Events of pages and operations.
    (
        "event",
        "/gradio_api/queue/join /gradio_api/run/{api_name} /gradio_api/api/{api_name} "
        "/gradio_api/call/v2/{api_name} /gradio_api/call/{api_name}",
    ),
    (READ, "/gradio_api/call/v2/{api_name}/{event_id} /gradio_api/call/{api_name}/{event_id}"),
    ("tools", "/gradio_api/mcp /gradio_api/mcp/{path:path}"),
    # Completions in the shape of OpenAI's interface.
    (READ, "/v1/models"),
    (WORK, "/v1/completions /v1/chat/completions"),
    # What Gradio can do, and this program does not use.
    (
        NOBODY,
        "/login /logout /pwa_icon /pwa_icon/{size} /monitoring /monitoring/summary /monitoring/{key} "
        "/gradio_api/deep_link /gradio_api/user /gradio_api/token /gradio_api/login_check "
        "/gradio_api/dev/reload /gradio_api/proxy={url_path:path} /gradio_api/component_server "
        "/gradio_api/custom_component/{id}/{environment}/{type}/{file_name} "
        "/gradio_api/process_recording /gradio_api/runs /gradio_api/run-history/{path:path} "
        "/gradio_api/stream/{path:path} /gradio_api/profiling/{path:path} /gradio_api/vibe-edit "
        "/gradio_api/undo-vibe-edit /gradio_api/vibe-code /gradio_api/vibe-starter-queries",
    ),
)
"""What a request to a path takes; the first pattern that fits counts."""


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
    "decisions": PageNeeds(READ, WORK),
    "sessions": PageNeeds(READ, LEAD),
    "review": PageNeeds(READ, WORK),
    "lists": PageNeeds(READ, LEAD),
    "models": PageNeeds(READ, WORK),
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


class RouteTable:
    """Finds the row of a request's path; the first that fits counts, and what has none is for nobody."""

    def __init__(self) -> None:
        self._rows = [(compile_path(path)[0], rule) for rule, paths in ROUTES for path in paths.split()]

    def rule(self, path: str) -> Rule:
        """What a path takes; a slash at the end changes nothing."""
        stripped = path.rstrip("/")
        page = PAGES.get(stripped.removeprefix("/"))
        if page is not None:
            return page.opening
        return next((rule for pattern, rule in self._rows if pattern.match(stripped)), NOBODY)
