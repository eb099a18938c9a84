"""The application's routes, and how it is launched."""

from __future__ import annotations

from typing import Any

import gradio as gr

from app.bootstrap import Services
from app.ui import assets
from app.ui.api import endpoints
from app.ui.pages.audit import audit_page
from app.ui.pages.batches import batches_page
from app.ui.pages.calibrate import calibrate_page
from app.ui.pages.compare import compare_page
from app.ui.pages.lists import lists_page
from app.ui.pages.review import review_page
from app.ui.pages.sessions import sessions_page
from app.ui.pages.swap import swap_page
from app.ui.pages.tune import tune_page

TITLE = "COFT Audit"
LARGEST_UPLOAD = "20mb"
WAITING_EVENTS = 64
CACHE_SECONDS = 24 * 3600


def build_app(services: Services) -> gr.Blocks:
    """The application with all its pages.

    Args:
        services: What the pages call.

    Returns:
        Blocks to be launched with :func:`launch_options`.
    """
    with gr.Blocks(title=TITLE, analytics_enabled=False, delete_cache=(3600, CACHE_SECONDS), fill_width=True) as app:
        endpoints(services)  # first, so that no page's handler takes one of their names
        audit_page(app, services)
    with app.route("Calibrate", "/calibrate"):
        calibrate_page(app, services)
    with app.route("Compare", "/compare"):
        compare_page(app, services)
    with app.route("Tune", "/tune"):
        tune_page(app, services)
    with app.route("Swap", "/swap"):
        swap_page(app, services)
    with app.route("Batches", "/batches"):
        batches_page(app, services)
    with app.route("Sessions", "/sessions"):
        sessions_page(app, services)
    with app.route("Review", "/review"):
        review_page(app, services)
    with app.route("Word lists", "/lists"):
        lists_page(app, services)
    app.queue(max_size=WAITING_EVENTS, default_concurrency_limit=4, api_open=False)
    return app


def launch_options(mcp: bool = False) -> dict[str, Any]:
    """Keyword arguments of :meth:`gradio.Blocks.launch` that belong to the application, not to its host.

    Args:
        mcp: Offer the endpoints to agents too; :func:`app.ui.agents.finish_agents` is called after the launch.
    """
    options: dict[str, Any] = {
        "theme": gr.themes.Base(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]),
        "head": assets.head(),
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
