"""Serving the web application."""

from __future__ import annotations

import os
import socket
import sys
import webbrowser

from app.bootstrap import Services
from app.services.errors import ServiceError
from app.settings import Settings
from app.ui.agents import finish_agents
from app.ui.main import build_app, launch_options


def serve(wired: Services, settings: Settings, open_page: bool = False) -> None:
    """Serve the pages until interrupted.

    Args:
        wired: The services.
        settings: Where to listen, the largest upload, and whether agents are served too.
        open_page: Open the page in a browser, where there is a screen to show it on.

    Raises:
        ServiceError: Agents are to be served, and cannot be.
    """
    app = build_app(wired)
    options = {**launch_options(settings.mcp), "max_file_size": f"{settings.max_upload_mb}mb"}
    app.launch(
        server_name=settings.host,
        server_port=settings.port,
        quiet=True,
        prevent_thread_lock=True,
        **options,
    )
    if settings.mcp:
        finish_agents(app)
    print(f"COFT Audit runs at http://{settings.host}:{settings.port} (Ctrl+C stops it).", flush=True)
    if open_page and _has_screen():
        webbrowser.open(f"http://{settings.host}:{settings.port}")
    app.block_thread()


def require_free_port(settings: Settings) -> None:
    """Refuse to start beside another server, before the store is opened and that server's jobs are taken for dead.

    Raises:
        ServiceError: The port is taken, or the address is not this computer's.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[
            0
        ]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise ServiceError(
            f"Port {settings.port} on {settings.host} cannot be used; stop what runs there, or choose another "
            "with --port."
        ) from error


def _has_screen() -> bool:
    """Without one, the standard library might start a browser inside the terminal."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
