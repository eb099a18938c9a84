"""Serve the pages on made-up data: ``python -m tests.fakes.serve [port]``, for looking at them by hand."""

from __future__ import annotations

import sys

from app.server import build_app, launch_options
from tests.fakes import FakeServices

if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 7861
    services = FakeServices(pace=0.05)
    build_app(services).launch(server_port=port, quiet=True, **launch_options(services))
