"""``python -m app`` and ``coft-audit``: the web server and everything that the pages do, from the command line."""

from __future__ import annotations

import signal
import sys
from typing import Any

PROGRAM = ("app", "db", "coft_core")


def run() -> None:
    """Run a command and end the process with its code."""
    # Until a command begins there is nothing to keep: the system ends the process. An exception that a handler raises
    # is lost where it falls into a destructor, as the import of a module has many.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from app.cli import main, opened_by_settings
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in PROGRAM:
            raise
        # Installed without what it needs, as the library may be, the program has neither pages nor commands.
        sys.exit(
            f"coft-audit: the commands need the package {error.name!r}, which is not installed; run pip install "
            "coft-audit."
        )

    def opened(**options: Any) -> Any:
        # A command that is stopped, by hand or by what runs it, keeps what is done and says so.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.default_int_handler)
        return opened_by_settings(**options)

    sys.exit(main(opened=opened))


if __name__ == "__main__":
    run()
