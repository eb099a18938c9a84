"""The command ``policies``: every decoding method with its parameters."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from app.cli_options import add_json, show
from app.services.known_policies import KNOWN_POLICIES


def add_policies(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser("policies", help="list the decoding methods and their parameters")
    add_json(command)
    command.set_defaults(run=_policies)


def _policies(options: argparse.Namespace) -> None:
    show(options, [asdict(info) for info in KNOWN_POLICIES], _print)


def _print() -> None:
    for info in KNOWN_POLICIES:
        source = f" ({info.source})" if info.source else ""
        print(f"{info.key}: {info.name}, {info.about}{source}")
        print(f"    Differs from its authors': {info.differs}")
        for own in info.parameters:
            print(f"    {own.name} = {_default(own.default)}: {own.help}")


def _default(value: object) -> str:
    """A default in a line; texts are quoted, and an empty one is none."""
    if value in (None, "", ()):
        return "none"
    return " ".join(repr(text) for text in value) if isinstance(value, tuple) else repr(value)
