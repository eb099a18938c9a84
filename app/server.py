"""The application's routes, and how it is launched."""

from __future__ import annotations

import atexit
import gc
import importlib.util
import json
import os
import signal
import socket
import sys
import time
import webbrowser
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from threading import Event, Thread, Timer
from typing import Any

import gradio as gr
from gradio.route_utils import API_PREFIX
from starlette.responses import RedirectResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from app.hosting.limits import DiskRoom
from app.hosting.memory import keep_giving_back
from app.jobs.service import JobService
from app.serving.addresses import Addresses
from app.serving.endpoints import offer
from app.serving.gate import EXPLAINED, gated
from app.serving.gradio_changes import answer_in_sentences, fetch_nothing, share_queue
from app.serving.monitoring import Measured, Monitor
from app.serving.pages import served
from app.settings import Settings
from app.shared import web as assets
from app.shared.bell import Bell
from app.shared.errors import ServiceError
from app.shared.logs import begin_log, log_requests
from app.shared.metrics import Metrics
from app.shared.wiring import Services

PACKAGE = "mcp"


def require_agents_package() -> None:
    """Refuse before anything is opened."""
    if importlib.util.find_spec(PACKAGE) is None:
        raise ServiceError(
            f"The MCP server needs the package {PACKAGE!r}, which is not installed; install it with "
            f"'pip install \"{PACKAGE}>=1.21,<2\"', or start without --mcp and COFT_MCP."
        )


def finish_agents(app: gr.Blocks) -> None:
    """After the launch: make the tools answer in JSON, like the endpoints; Gradio would print Python's values."""
    server = app.mcp_server_obj
    if server is None:
        raise ServiceError(f"The MCP server could not be started ({app.mcp_error}); start without --mcp and COFT_MCP.")
    in_python = server.postprocess_output_data

    def in_json(data: Any, root_url: str) -> Any:
        return in_python([item if _is_file(item) else json.dumps(item) for item in data], root_url)

    server.postprocess_output_data = in_json


def _is_file(item: Any) -> bool:
    """Gradio gives these an address of their own."""
    return isinstance(item, dict) and (item.get("meta") or {}).get("_type") == "gradio.FileData"


TITLE = "COFT Audit"
LARGEST_UPLOAD = "20mb"
LONGEST_END = 7.0
"""Seconds from the signal to end until the process is ended: whoever sends it kills after ten."""
SIGNAL_SECONDS = 0.1
"""How often the main thread looks whether a signal has come."""
WAITING_EVENTS = 64
ENDPOINTS = "endpoints"
"""Gradio's page for what programs call."""
CACHE_SECONDS = 24 * 3600
ACCOUNTS_META = '<meta name="coft-accounts" content="on">'
"""Tells the pages' scripts that accounts sign."""


def build_app(services: Services) -> gr.Blocks:
    """The application with all its pages."""
    (first, _), *others = [(feature, feature.page) for feature in services.features if feature.page in services.pages]
    with gr.Blocks(title=TITLE, analytics_enabled=False, delete_cache=(3600, CACHE_SECONDS), fill_width=True) as app:
        # First, so that no page's handler takes one of their names; apart, so that no browser builds their components.
        _begin_page(app, ENDPOINTS, "Endpoints", listed=False)
        offer([operation for feature in services.features for operation in feature.operations], services)
        _go_on(app, "")
        first.build_page(app, services)
        for feature, page in others:
            _begin_page(app, page.path, page.title)
            feature.build_page(app, services)
    fetch_nothing(app)
    answer_in_sentences(app)
    app.queue(max_size=WAITING_EVENTS, default_concurrency_limit=4, api_open=False)
    # Gradio computes statistics of all kept events, which nobody reads, again after each one.
    app._queue.ANALYTICS_MAX_EVENTS = 0
    share_queue(app._queue)
    if services.settings.accounts == "on":
        from app.accounts.gate import AccountGate

        services[AccountGate].guard(app)
    return app


def _begin_page(app: gr.Blocks, path: str, title: str, listed: bool = True) -> None:
    """What follows is built on a page of its own, as after Gradio's ``Blocks.route``, but in the same block.

    With a block for each page, Gradio makes the configuration and all routes of the whole application again at the end
    of every one of them, and throws away all but the last: that took three quarters of the time to start.
    """
    app.pages.append((path, title, listed))
    _go_on(app, path)


def _go_on(app: gr.Blocks, path: str) -> None:
    """What follows is built on this page."""
    # Fields that stand beside each other share a frame, which must not reach over to the next page.
    app.fill_expected_parents()
    app.current_page = path


def launch_options(services: Services, mcp: bool = False) -> dict[str, Any]:
    """Keyword arguments of :meth:`gradio.Blocks.launch` that belong to the application, not to its host."""
    others = [one for feature in services.features for one in feature.served(services)]
    routes = [
        route for one in (services[Bell], services[Addresses], services[Monitor], *others) for route in one.routes
    ]
    with_accounts = services.settings.accounts == "on"
    app_kwargs = served(services.pages, routes, ACCOUNTS_META if with_accounts else "")
    # The page that holds the endpoints is Gradio's alone: who looks it up reads what there is.
    app_kwargs["routes"].append(Route(f"/{ENDPOINTS}", lambda _: RedirectResponse(f".{API_PREFIX}/info")))
    if services.settings.completions:
        from app.completions.routes import CompletionRoutes
        from app.completions.service import CompletionService

        # The policy is made now, so that a setting that cannot be used ends the start and not the first request.
        app_kwargs["routes"] += CompletionRoutes(services[CompletionService]).routes
    gates = None
    if with_accounts:
        from app.accounts.gate import AccountGate

        app_kwargs["routes"] += services[AccountGate].routes
        gates = services[AccountGate].around
    options: dict[str, Any] = {
        "theme": gr.themes.Base(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]),
        "app_kwargs": {
            **app_kwargs,
            "exception_handlers": EXPLAINED,
            "lifespan": gated(services.settings, services[DiskRoom], gates, partial(_measured, services)),
        },
        "footer_links": [],
        "run_history": False,
        "max_file_size": LARGEST_UPLOAD,
        "enable_monitoring": False,
        "ssr_mode": False,
        "pwa": False,
        "mcp_server": mcp,
    }
    if assets.FAVICON.is_file():
        options["favicon_path"] = str(assets.FAVICON)
    return options


def _measured(services: Services, app: ASGIApp) -> ASGIApp:
    told = log_requests if services.settings.log == "json" else None
    return Measured(app, services[Metrics], told)


def serve(wired: Services, settings: Settings, open_page: bool = False) -> None:
    """Serve the pages until a signal ends that; :func:`end_now` is called once the services are closed."""
    begin_log(settings.log)
    app = build_app(wired)
    options = {**launch_options(wired, settings.mcp), "max_file_size": f"{settings.max_upload_mb}mb"}
    app.launch(
        server_name=settings.host,
        server_port=settings.port,
        quiet=True,
        prevent_thread_lock=True,
        **options,
    )
    if settings.mcp:
        finish_agents(app)
        if settings.accounts == "on":
            from app.accounts.gate import AccountGate

            wired[AccountGate].let_agents_in()
    _keep_what_is_loaded()
    signals = _signals()
    ended = Event()
    wired.closing.callback(ended.set)
    Thread(target=keep_giving_back, args=(ended,), name="give-back", daemon=True).start()
    print(f"COFT Audit runs at http://{settings.host}:{settings.port} (Ctrl+C stops it).", flush=True)
    print(_reachable(settings), flush=True)
    if open_page and _has_screen():
        webbrowser.open(f"http://{settings.host}:{settings.port}")
    while not signals:
        time.sleep(SIGNAL_SECONDS)
    # Nobody is sent here from now on, jobs stop where they can, and the process ends in time.
    end_within(LONGEST_END)
    wired[Monitor].end()
    Thread(target=wired[JobService].shutdown, args=(False,), daemon=True).start()
    app.close(verbose=False)


def _keep_what_is_loaded() -> None:
    """Take modules and pages out of all later garbage collections: a request had to wait for those now and then.

    No model is loaded yet, so that none is kept in memory by it.
    """
    gc.collect()
    gc.freeze()


def end_now() -> None:
    """End the process without taking the interpreter apart: the libraries that run models take seconds for that."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _signals() -> list[int]:
    """The signals to end that have come so far.

    A handler runs wherever the main thread happens to be, so that it only writes down: an exception would be lost in a
    destructor, and a lock might be held there already.
    """
    come: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: come.append(number))
    return come


def end_within(seconds: float, end: Callable[[int], None] = os._exit) -> Timer:
    """See to it that the process ends, whatever is still at work in it."""
    last = Timer(seconds, end, (0,))
    last.daemon = True
    last.start()
    return last


def _reachable(settings: Settings) -> str:
    """Who can use the server, in a sentence."""
    if settings.accounts == "on":
        return "Everybody signs in; 'python -m app accounts' manages accounts."
    if is_loopback(settings.host):
        return "It serves this computer only."
    return (
        f"WARNING: it listens on {settings.host} and asks nobody who they are (COFT_ACCOUNTS=elsewhere): whoever "
        "reaches the port may read, change and delete everything."
    )


def is_loopback(host: str) -> bool:
    """Whether an address is this computer's own, which no other reaches."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def require_accounts_elsewhere(settings: Settings) -> None:
    """Refuse to listen on an address that others reach, unless somebody asks who they are."""
    if settings.accounts == "off" and not is_loopback(settings.host):
        raise ServiceError(
            f"Others could reach {settings.host}, and nobody would be asked who they are: the server does not start. "
            "Turn accounts on and add an admin:\n\n"
            "    python -m app accounts add NAME --role admin\n"
            "    export COFT_ACCOUNTS=on\n\n"
            "Where something in front of the server asks already, set COFT_ACCOUNTS=elsewhere instead."
        )


def require_free_port(settings: Settings) -> None:
    """Refuse to start beside another server, before the store is opened and that server's jobs are taken for dead."""
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
