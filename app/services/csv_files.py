"""CSV text as RFC 4180 wants it, safe to open in a spreadsheet, and files that are whole or not there."""

from __future__ import annotations

import csv
import io
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\0")
"""What makes a spreadsheet take a cell for a formula."""


def to_csv(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """RFC 4180 text with a header row; cells that a spreadsheet would take for a formula get a leading apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n", quoting=csv.QUOTE_MINIMAL)
    writer.writerow(columns)
    for row in rows:
        writer.writerow([neutralised(row[column]) for column in columns])
    return text.getvalue()


def neutralised(value: object) -> str:
    """A cell's text, harmless in a spreadsheet."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    text = str(value)
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text


def write_text(path: Path, text: str) -> Path:
    """Write UTF-8 text so that the file is either whole or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="", errors="replace") as file:
            file.write(text)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path
