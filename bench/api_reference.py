"""Write the list of endpoints in docs/api.md anew, from what the program offers and its docstrings.

python -m bench.api_reference [--file docs/api.md]
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr

from app.bootstrap import services
from app.server import build_app
from app.settings import Settings
from app.shared.events import EndpointText, text_of

BEGIN, END = "<!-- endpoints: written by python -m bench.api_reference -->", "<!-- end of the endpoints -->"


def reference(app: gr.Blocks) -> str:
    """All public endpoints of an application in Markdown, by name."""
    offered = app.get_api_info()["named_endpoints"]
    methods = {f"/{item.api_name}": item.fn for item in app.fns.values() if item.fn is not None}
    return "\n\n".join(section(name, offered[name]["parameters"], methods[name]) for name in sorted(offered))


def section(name: str, parameters: list[dict[str, Any]], method: Callable[..., Any]) -> str:
    """One endpoint: what it does, its arguments as a table, and what it returns."""
    text = text_of(method)
    lines = [f"### `{name}`", "", text.description, ""]
    if parameters:
        lines += ["| Argument | Kind | Default | Meaning |", "| --- | --- | --- | --- |"]
        lines += [_row(parameter, method, text) for parameter in parameters]
        lines.append("")
    return "\n".join([*lines, f"Returns: {text.returns}"])


def inserted(page: str, listed: str) -> str:
    """The page with the list between its marks.

    Raises:
        ValueError: The page does not have both marks once.
    """
    parts = re.split(f"{re.escape(BEGIN)}|{re.escape(END)}", page)
    if len(parts) != 3:
        raise ValueError(f"The page must hold {BEGIN!r} and then {END!r}, each once.")
    return f"{parts[0]}{BEGIN}\n\n{listed}\n\n{END}{parts[2]}"


def _row(parameter: dict[str, Any], method: Callable[..., Any], text: EndpointText) -> str:
    name = parameter["parameter_name"]
    own = inspect.signature(method).parameters[name]
    needed = own.default is inspect.Parameter.empty
    kind = "file" if parameter["component"] == "File" else _kind(str(own.annotation), needed)
    default = "" if needed else f"`{own.default!r}`"
    return f"| `{name}` | {kind} | {default} | {dict(text.arguments)[name]} |"


def _kind(annotation: str, needed: bool) -> str:
    plain = annotation.replace("dict[str, Any]", "dict")
    outer = plain.removesuffix(" | None")
    return f"`{outer}`, or null" if needed and outer != plain else f"`{outer}`"


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, default=Path("docs/api.md"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Settings(database_url=f"sqlite:///{Path(folder) / 'reference.sqlite3'}")
        with services(store, owns_store=True) as wired:
            listed = reference(build_app(wired))
    options.file.write_text(inserted(options.file.read_text("utf-8"), listed), "utf-8")
    print(f"{listed.count('### ')} endpoints written to {os.fspath(options.file)}")


if __name__ == "__main__":
    main()
