"""Write the generated pages of the documentation: commands, endpoints, settings, models and the security checklist.

python -m bench.reference [--out docs/reference]
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer

from app.bootstrap import FEATURES, services
from app.cli import program
from app.settings import Settings
from app.shared.commands import commands_of
from app.shared.operations import Argument, Operation

ROOT = Path(__file__).resolve().parents[1]
CHECKLIST = ROOT / "tests" / "project" / "asvs.csv"
MODELS = ROOT / "tests" / "models" / "classes.md"


def pages() -> dict[str, str]:
    """The Markdown of each page, by its file name."""
    return {
        "commands.md": commands(),
        "endpoints.md": endpoints(),
        "settings.md": settings(),
        "models.md": MODELS.read_text("utf-8"),
        "security_checklist.md": checklist(),
    }


def commands() -> str:
    """Every command with its arguments and options."""
    root = program(services)
    words = [("serve", root.commands["serve"])]
    for feature in FEATURES:
        words += [(word, commands_of(word, feature.operations, services)) for word in feature.commands]
    sections = (section for word, command in words for section in _command(f"python -m app {word}", command))
    return "# Commands\n\n" + "\n\n".join(sections) + "\n"


def _command(name: str, command: Any) -> Iterator[str]:
    if below := getattr(command, "commands", {}):
        for word, each in below.items():
            yield from _command(f"{name} {word}", each)
        return
    lines = [f"## `{name}`", "", _plain(command.help or "")]
    if asked := [each for each in command.params if each.name != "help"]:
        lines += ["", "| Argument | Default | Meaning |", "| --- | --- | --- |", *map(_parameter, asked)]
    yield "\n".join(lines)


def _parameter(parameter: Any) -> str:
    named = ", ".join(f"`{each}`" for each in parameter.opts) if parameter.opts[0].startswith("-") else parameter.name
    silent = callable(parameter.default) or not parameter.default
    required = "required" if parameter.required else "" if silent else f"`{parameter.default}`"
    return f"| {named} | {required} | {_plain(getattr(parameter, 'help', None) or '')} |"


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;").strip()


def offered() -> list[Operation]:
    """The operations that have an endpoint, by name."""
    found = [operation for feature in FEATURES for operation in feature.operations if operation.endpoint]
    return sorted(found, key=lambda operation: operation.name)


def endpoints() -> str:
    """Every endpoint: what it does, its arguments, and what it returns."""
    return "# Endpoints\n\n" + "\n\n".join(map(_endpoint, offered())) + "\n"


def _endpoint(operation: Operation) -> str:
    lines = [f"## `/{operation.name}`", "", operation.told.description, ""]
    if operation.arguments:
        lines += ["| Argument | Kind | Default | Meaning |", "| --- | --- | --- | --- |"]
        lines += [_argument(argument) for argument in operation.arguments]
        lines.append("")
    return "\n".join([*lines, f"Returns: {operation.told.returns}"])


def _argument(argument: Argument) -> str:
    default = "" if argument.required else f"`{argument.plain_default!r}`"
    return f"| `{argument.name}` | {_kind(argument)} | {default} | {_plain(argument.meaning)} |"


def _kind(argument: Argument) -> str:
    if argument.plain in (Path, Path | None):
        return "file"
    # What is said of a command's option beside the type is not for programs.
    plain = get_args(argument.plain)[0] if get_origin(argument.plain) is Annotated else argument.plain
    kind = plain.__name__ if isinstance(plain, type) else str(plain)
    named = re.sub(r"dict\[str, (typing\.)?Any\]", "dict", kind)
    outer = named.removesuffix(" | None")
    return f"`{outer}`, or null" if argument.required and outer != named else f"`{outer}`"


def settings() -> str:
    """Every setting with its default and meaning, from the docstring of the settings."""
    lines = ["# Settings", "", "All settings are environment variables; none is needed. A value that is not allowed"]
    lines += ["ends every command with exit code 2 and one sentence that names it.", ""]
    lines += ["| Variable | Default | Meaning |", "| --- | --- | --- |"]
    meanings = dict(re.findall(r"``(COFT_\w+)``: (.*?)(?=\n {8}\w+: |\n {4}\Z|\Z)", Settings.__doc__ or "", re.DOTALL))
    for name, field in Settings.model_fields.items():
        variable = f"COFT_{name.upper()}"
        default = "empty" if field.default == "" else f"`{field.default}`"
        meaning = _plain(meanings[variable]).replace("``", "`")
        lines.append(f"| `{variable}` | {default} | {meaning[0].upper()}{meaning[1:]} |")
    return "\n".join(lines) + "\n"


def checklist() -> str:
    """The requirements of OWASP ASVS 5.0.0 with their states."""
    lines = ["# Security checklist", "", "OWASP ASVS 5.0.0, levels 1 and 2, for a server with accounts behind TLS.", ""]
    lines += [
        "| Requirement | Level | Subject | State | What holds it, or why not |",
        "| --- | --- | --- | --- | --- |",
    ]
    with CHECKLIST.open(newline="", encoding="utf-8") as file:
        lines += [f"| {' | '.join(row.values())} |" for row in csv.DictReader(file)]
    return "\n".join(lines) + "\n"


def main(out: Path = Path("docs/reference")) -> None:
    """Write the pages."""
    out.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (out / name).write_text(text, "utf-8")
    print(f"{len(pages())} pages written to {out}")


if __name__ == "__main__":
    typer.run(main)
