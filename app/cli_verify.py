"""The command ``verify``: a report or an evidence bundle is computed again and compared."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from textwrap import wrap
from typing import Any

from app.bootstrap import verifier
from app.services.views.verification import Check, Verification
from app.settings import Settings

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
