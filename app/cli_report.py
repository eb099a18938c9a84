"""The command ``report``: a past audit as CSV, JSON, HTML, an archive of tables, or an evidence bundle."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from app.bootstrap import services
from app.services.errors import ServiceError
from app.services.reporting.archive import write_bytes
from app.services.reporting.bundle import bundle_digest
from app.services.reporting.exports import SUFFIXES
from app.settings import Settings

TEXTS = ("csv", "json")


def add_report(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser("report", help="export a past audit")
    command.add_argument("session", type=int, help="session number")
    command.add_argument(
        "--format",
        choices=tuple(SUFFIXES),
        default="csv",
        help="csv: steps (default); json: everything; html: for people; zip: all tables; bundle: evidence that "
        "'verify' recomputes",
    )
    command.add_argument("--branch", type=int, help="only the chain of this branch (csv)")
    command.add_argument("--out", type=Path, help="file to write; default for csv and json: standard output")
    command.set_defaults(run=_report)


def _report(options: argparse.Namespace) -> None:
    if options.branch is not None and options.format != "csv":
        raise ServiceError("Only the format csv can be of one branch; leave --branch out.")
    if options.out is None and options.format not in TEXTS:
        raise ServiceError(f"The format {options.format} is written to a file; name it with --out.")
    with services(Settings()) as wired:
        if options.branch is not None:
            content = wired.reports.csv(options.session, options.branch).encode("utf-8", "replace")
        else:
            content = wired.exports.content(options.session, options.format)
    if options.out is None:
        sys.stdout.write(content.decode("utf-8"))
        return
    print(write_bytes(options.out, content))
    if options.format == "bundle":
        print(f"Bundle SHA-256 {bundle_digest(content)} (of its manifest): publish it, so that others can compare.")
