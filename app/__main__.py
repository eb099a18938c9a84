"""``python -m app``: the web server and everything that the pages do, from the command line."""

from __future__ import annotations

import signal
import sys

from app.cli import main

# Services and containers are stopped with SIGTERM; it ends what runs as Ctrl+C does, with all that was shown stored.
signal.signal(signal.SIGTERM, signal.default_int_handler)
sys.exit(main())
