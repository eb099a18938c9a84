"""The command ``verify``: a report or an evidence bundle is computed again and compared."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from textwrap import wrap
from typing import Any

from app.bootstrap import services, verifier
from app.report.bundle import bundle_digest
from app.report.service import SUFFIXES
from app.report.verify.findings import Check, Verification
from app.settings import Settings
from app.shared.errors import ServiceError
from app.shared.files import write_bytes

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


MARKS = {"passed": "passed ", "failed": "FAILED ", "skipped": "skipped"}
WIDTH = 110


def add_verify(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "verify", help="check an evidence bundle (.zip) or a report (.json): recompute what it says"
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--replay", action="store_true", help="also load the model and write every branch again")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_verify)


def _verify(options: argparse.Namespace) -> int:
    found = verifier(Settings()).verify(options.file, options.replay)
    if options.json:
        print(json.dumps({**asdict(found), "ok": found.ok}, ensure_ascii=False, allow_nan=False))
    else:
        print_verification(found)
    return 0 if found.ok else 1


def print_verification(found: Verification) -> None:
    """The checks as a table, what does not fit, and what lies beyond."""
    print(f"{found.source}: {found.session}")
    if found.bundle_digest:
        print(f"Bundle SHA-256 {found.bundle_digest} (of its manifest)")
    width = max(len(check.name) for check in found.checks)
    print()
    for check in found.checks:
        _print_check(check, width)
    print(
        f"\n{found.count('passed')} checks passed, {found.count('failed')} failed, {found.count('skipped')} skipped: "
        + ("nothing contradicts the report." if found.ok else "the report does not hold together.")
    )
    print("\nWhat these checks cannot tell:")
    for file, listed in groupby(sorted(found.beyond, key=lambda item: item.file), key=lambda item: item.file):
        print(f"{file}:")
        for item in listed:
            sentence = f"{item.reason} ({', '.join(item.fields)})"
            print("\n".join(wrap(sentence, WIDTH, initial_indent="- ", subsequent_indent="  ")))


def _print_check(check: Check, width: int) -> None:
    print(f"{MARKS[check.status]}  {check.name:<{width}}  {check.detail}")
    for problem in check.problems:
        print("\n".join(wrap(problem, WIDTH, initial_indent="         - ", subsequent_indent="           ")))
    if (more := check.problem_count - len(check.problems)) > 0:
        print(f"         - and {more:,} more")
