"""The commands that download the files of suites and list them."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import asdict

from app.data.fetching import FetchedFile, SuiteFiles
from app.shared.operations import Json, Tell, command
from app.shared.wiring import Services


def _json(files: list[FetchedFile]) -> list[Json]:
    return [asdict(file) for file in files]


def _print(files: list[FetchedFile]) -> None:
    """One line a file, and how many are missing or differ."""
    print(*(f"{file.state:<10}  {file.file}: {file.said}." for file in files), sep="\n")
    counts = Counter(file.state for file in files)
    if counts["missing"]:
        what = "place them as said, or fetch them with a network"
        print(f"{counts['missing']} of {len(files)} files are missing; {what}.", file=sys.stderr)
    if counts["differs"]:
        print(f"{counts['differs']} of {len(files)} files are not the published ones.", file=sys.stderr)


def _code(files: list[FetchedFile]) -> int:
    return int(any(file.state in ("missing", "differs") for file in files))


@command("data fetch", json=_json, text=_print, code=_code)
def fetch_data(
    wired: Services, suites: list[str], *, data: str = "", force: bool = False, tell: Tell | None = None
) -> list[FetchedFile]:
    """Download the published files of suites, verify them, and note where they come from beside them.

    The exit code is 1 if a file is missing, or is not the published one.

    Args:
        suites: suites by key, as 'evaluations suites' lists them, or sets of them
        data: folder for the files (default: COFT_DATA)
        force: replace files that are not known to be the published ones
    """
    return wired[SuiteFiles].fetch(suites, data, force, tell)


@command("data list", json=_json, text=_print)
def list_data(wired: Services, suites: list[str] | None = None, *, data: str = "") -> list[FetchedFile]:
    """List the files of suites: what is there, verified, and where the rest is published.

    Args:
        suites: suites by key, or sets of them (default: all)
        data: folder with the files (default: COFT_DATA)
    """
    return wired[SuiteFiles].found(suites or ["all"], data)
