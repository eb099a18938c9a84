"""Write the list of endpoints in docs/api.md anew, from the operations and their docstrings.

python -m bench.api_reference [--file docs/api.md]
"""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import Annotated, get_args, get_origin

from app.bootstrap import FEATURES
from app.shared.operations import Argument, Operation

BEGIN, END = "<!-- endpoints: written by python -m bench.api_reference -->", "<!-- end of the endpoints -->"


def reference() -> str:
    """All endpoints in Markdown, by name."""
    offered = [operation for feature in FEATURES for operation in feature.operations if operation.endpoint]
    return "\n\n".join(section(operation) for operation in sorted(offered, key=lambda operation: operation.name))


def section(operation: Operation) -> str:
    """One endpoint: what it does, its arguments as a table, and what it returns."""
    lines = [f"### `/{operation.name}`", "", operation.told.description, ""]
    if operation.arguments:
        lines += ["| Argument | Kind | Default | Meaning |", "| --- | --- | --- | --- |"]
        lines += [_row(argument) for argument in operation.arguments]
        lines.append("")
    return "\n".join([*lines, f"Returns: {operation.told.returns}"])


def inserted(page: str, listed: str) -> str:
    """The page with the list between its marks."""
    parts = re.split(f"{re.escape(BEGIN)}|{re.escape(END)}", page)
    if len(parts) != 3:
        raise ValueError(f"The page must hold {BEGIN!r} and then {END!r}, each once.")
    return f"{parts[0]}{BEGIN}\n\n{listed}\n\n{END}{parts[2]}"


def _row(argument: Argument) -> str:
    default = "" if argument.required else f"`{argument.plain_default!r}`"
    return f"| `{argument.name}` | {_kind(argument)} | {default} | {argument.meaning} |"


def _kind(argument: Argument) -> str:
    if argument.plain in (Path, Path | None):
        return "file"
    # What is said of a command's option beside the type is not for programs.
    plain = get_args(argument.plain)[0] if get_origin(argument.plain) is Annotated else argument.plain
    kind = plain.__name__ if isinstance(plain, type) else str(plain)
    named = re.sub(r"dict\[str, (typing\.)?Any\]", "dict", kind)
    outer = named.removesuffix(" | None")
    return f"`{outer}`, or null" if argument.required and outer != named else f"`{outer}`"


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, default=Path("docs/api.md"))
    options = parser.parse_args()
    listed = reference()
    options.file.write_text(inserted(options.file.read_text("utf-8"), listed), "utf-8")
    print(f"{listed.count('### ')} endpoints written to {os.fspath(options.file)}")


if __name__ == "__main__":
    main()
