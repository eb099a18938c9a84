"""``python -m app`` and ``coft-audit``: the web server and everything that the pages do, from the command line."""

from __future__ import annotations

import signal
import sys

PROGRAM = ("app", "db", "coft_core")


def run() -> None:
    """Run a command and end the process with its code."""
    # Services and containers are stopped with SIGTERM; it ends what runs as Ctrl+C does, with all that was shown
    # stored.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        from app.cli import main
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in PROGRAM:
            raise
        # Installed as a library, the program has neither pages nor commands.
        sys.exit(
            f"coft-audit: the commands need the package {error.name!r}, which is not installed; run pip install "
            "'coft-audit[app]'."
        )
    sys.exit(main())


if __name__ == "__main__":
    run()
