"""The command line: one program, with a module for each command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from transformers.utils.logging import disable_progress_bar

from app.audit.commands import add_audit, add_policies, add_reread
from app.batch.operations import add_batch
from app.bootstrap import services
from app.calibrate.commands import add_calibrate, add_calibrations
from app.compare.commands import add_compare, add_compare_set
from app.lists.operations import add_lists
from app.report.operations import add_report, add_verify
from app.review.operations import add_verdicts
from app.settings import Settings
from app.shared.errors import USER_ERRORS
from app.shared.json import summary_json
from app.shared.terminal import add_json, print_sessions, show
from app.swap.operations import add_swap
from app.tune.operations import add_tune


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        0; 1 when the input cannot be used, with one sentence on standard error; 2 for a usage error.
    """
    # Commands print tables and JSON; the library's progress bars would run through them.
    disable_progress_bar()
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options) or 0)
    except USER_ERRORS as error:
        print(f"coft-audit: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("coft-audit: stopped; everything shown so far is stored.", file=sys.stderr)
        return 130


def _serve(options: argparse.Namespace) -> None:
    # Gradio takes seconds to import, which no other command should wait for.
    from app.server import require_agents_package, require_free_port, serve

    settings = Settings(**{k: v for k in ("host", "port", "mcp") if (v := getattr(options, k)) is not None})
    if settings.mcp:
        require_agents_package()
    require_free_port(settings)
    with services(settings, owns_store=True) as wired:
        serve(wired, settings, options.open)


def _sessions(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        if options.delete is not None:
            wired.audits.delete(options.delete)
            print(f"Session {options.delete} deleted.")
            return
        found = wired.audits.sessions(options.search, options.limit)
        show(options, [summary_json(s) for s in found], lambda: print_sessions(found))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m app", description="Audit language models for bias, token by token."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_serve(commands)
    add_audit(commands)
    add_compare(commands)
    add_compare_set(commands)
    add_policies(commands)
    add_tune(commands)
    add_batch(commands)
    add_calibrate(commands)
    add_calibrations(commands)
    add_lists(commands)
    _add_sessions(commands)
    add_reread(commands)
    add_report(commands)
    add_swap(commands)
    add_verdicts(commands)
    add_verify(commands)
    return parser


def _add_serve(commands: Any) -> None:
    command = commands.add_parser("serve", help="start the web application")
    command.add_argument("--host", help="address to listen on (default: COFT_HOST or 127.0.0.1)")
    command.add_argument("--port", type=int, help="port to listen on (default: COFT_PORT or 7860)")
    command.add_argument(
        "--mcp", action="store_true", default=None, help="offer the endpoints to agents too, as an MCP server"
    )
    command.add_argument("--open", action="store_true", help="open the page in a browser")
    command.set_defaults(run=_serve)


def _add_sessions(commands: Any) -> None:
    command = commands.add_parser("sessions", help="list or delete past audits")
    command.add_argument("--search", default="", help="only sessions that mention this text")
    command.add_argument("--limit", type=int, default=50)
    command.add_argument("--delete", type=int, metavar="ID", help="delete this session")
    add_json(command)
    command.set_defaults(run=_sessions)
