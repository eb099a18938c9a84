"""Serving the web application."""

from __future__ import annotations

from app.bootstrap import Services
from app.services.errors import ServiceError
from app.settings import Settings
from app.ui.main import build_app, launch_options


def serve(wired: Services, settings: Settings) -> None:
    """Serve the pages until interrupted.

    Raises:
        ServiceError: The port is taken.
    """
    app = build_app(wired)
    options = {**launch_options(), "max_file_size": f"{settings.max_upload_mb}mb"}
    try:
        app.launch(
            server_name=settings.host,
            server_port=settings.port,
            quiet=True,
            prevent_thread_lock=True,
            **options,
        )
    except OSError as error:
        raise ServiceError(
            f"Port {settings.port} on {settings.host} cannot be used; stop what runs there, or choose another "
            "with --port."
        ) from error
    print(f"COFT Audit runs at http://{settings.host}:{settings.port} (Ctrl+C stops it).", flush=True)
    app.block_thread()
