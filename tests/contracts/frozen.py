"""What other programs, files and people can see of this one; ``python -m tests.contracts.freeze`` keeps it.

The store was written once and is kept, so that no figure depends on the machine on which a test runs.
"""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest

from app.bootstrap import services
from app.cli import main, program
from app.report.service import ReportService
from app.server import build_app
from app.settings import Settings
from app.shared.wiring import Services
from tests.conftest import load_tiny, verifier

FOLDER = Path(__file__).parent
STORE = FOLDER / "store.sqlite3.gz"
SEEN = FOLDER / "seen"
BUNDLE = SEEN / "session-1.evidence.zip"
COMMANDS = {
    "sessions": ["sessions", "--json"],
    "reread": ["reread", "1", "--lam", "0.4", "--alpha", "0.2", "--json"],
    "calibration": ["calibrations", "show", "2", "--json"],
    "batches": ["batch", "list", "--json"],
    "batch": ["batch", "show", "1", "--json"],
    "lists": ["lists", "show", "ward", "--json"],
    "verdicts": ["verdicts", "show", "1", "--json"],
    "policies": ["policies", "--json"],
    "compare": ["compare", "1", "2", "--json"],
    "evaluation": ["evaluations", "show", "1", "--json"],
}


def restored(kept: Path, path: Path) -> str:
    """The URL of a copy of a kept store."""
    path.write_bytes(gzip.decompress(kept.read_bytes()))
    return f"sqlite:///{path}"


def keep_store(path: Path, kept: Path) -> None:
    """Keep a store without the calibration that comes with the program, which is stored again when it is opened."""
    copy = path.with_suffix(".copy")
    copy.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM INTO ?", (str(copy),))
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("DELETE FROM calibration_runs WHERE embedded")
        connection.execute("VACUUM")
    kept.write_bytes(gzip.compress(copy.read_bytes(), mtime=0))


@contextmanager
def opened(url: str) -> Iterator[Services]:
    """The services on a store."""
    with services(Settings(database_url=url, pipeline="none"), loader=load_tiny) as wired:
        yield wired


def printed(arguments: list[str], url: str) -> str:
    """What a command prints on a store."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as text:
        patch.setenv("COFT_DATABASE_URL", url)
        patch.setenv("COFT_PIPELINE", "none")
        assert main(arguments) == 0, arguments
    return text.getvalue()


def commands() -> dict[str, Any]:
    """Every command with its options: names, choices, and whether they must be given."""

    def described(command: Any, path: list[str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        with command.make_context("", path, resilient_parsing=True) as context:
            for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
                found[name] = described(command.resolve_command(context, [name])[1], [])
        for option in command.params:
            if option.expose_value and not option.is_eager:
                found[" ".join([*option.opts, *option.secondary_opts])] = {
                    "choices": choices(option.type_descriptor.annotation),
                    "required": option.required,
                    "values": values(option),
                }
        return found

    def choices(annotation: Any) -> list[str] | None:
        kinds = (annotation, *get_args(annotation))
        return next((list(get_args(kind)) for kind in kinds if get_origin(kind) is Literal), None)

    def values(option: Any) -> str:
        if option.param_type_name == "argument":
            return "+" if option.nargs == -1 else "None" if option.required else "?"
        return "0" if option.is_flag else "None"

    return described(program(services), [])


def endpoints(wired: Services) -> dict[str, Any]:
    """The named endpoints with their arguments and answers."""
    return {
        name: {
            part: [{key: item.get(key) for key in ("parameter_name", "label", "type")} for item in info[part]]
            for part in ("parameters", "returns")
        }
        for name, info in build_app(wired).get_api_info()["named_endpoints"].items()
    }


def written(url: str) -> dict[str, Callable[[], str]]:
    """Everything that is kept as text, by the name of its file."""
    keep = {"indent": 1, "sort_keys": True, "ensure_ascii": False}

    def exported(session_id: int, kind: str) -> str:
        with opened(url) as wired:
            return wired[ReportService].content(session_id, kind).decode("utf-8")

    def described(what: Callable[[Services], Any]) -> str:
        with opened(url) as wired:
            return json.dumps(what(wired), **keep)

    found: dict[str, Callable[[], str]] = {
        "commands.json": lambda: json.dumps(commands(), **keep),
        "settings.json": lambda: json.dumps(Settings.model_json_schema()["properties"], default=str, **keep),
        "endpoints.json": lambda: described(endpoints),
    }
    for session_id in (1, 2):
        for kind in ("csv", "json", "html"):
            found[f"session-{session_id}.{kind}"] = lambda n=session_id, k=kind: exported(n, k)
    for name, arguments in COMMANDS.items():
        found[f"{name}.json"] = lambda a=arguments: json.dumps(json.loads(printed(a, url)), **keep)
    return found


def verified() -> dict[str, str]:
    """What is said of each check of the kept bundle, without a replay."""
    found = verifier(Settings(pipeline="none"), loader=load_tiny).verify(BUNDLE, replay=False)
    return {check.name: check.status for check in found.checks}


def members(path: Path) -> dict[str, bytes]:
    """The files of an archive."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
