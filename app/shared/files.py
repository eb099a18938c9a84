"""Reading uploaded tables: what prompt sets and word lists have in common."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from app.shared.errors import ServiceError
from coft_core.text.tokens import surrogate_problem

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
    # A lone surrogate has no UTF-8.
    return write_bytes(path, text.encode("utf-8", "replace"))


def write_bytes(path: Path, data: bytes) -> Path:
    """Write a file so that it is either whole or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab"}
LARGEST_FIELD = 1_000_000
MOST_COLUMNS = 1_000
MOST_ROWS = 100_000
DEEPEST = 8
"""Lists or objects within each other in a row; spans, the deepest that is read, have two."""


class RowProblem(Exception):  # noqa: N818 - data about a row, collected and never shown as an error
    """A row that cannot be used: the column and what is wrong with it."""

    def __init__(self, column: str, message: str) -> None:
        super().__init__(message)
        self.column, self.message = column, message


def readable(field: str, text: str) -> str:
    """A text that a tokenizer can read; JSON lines can hold halves of characters.

    Raises:
        RowProblem: It holds one.
    """
    if problem := surrogate_problem(text):
        raise RowProblem(field, problem)
    return text


@dataclass(frozen=True, slots=True)
class Table:
    """An uploaded table.

    Attributes:
        form: ``"CSV, comma"``, ``"CSV, semicolon"``, ``"CSV, tab"`` or ``"JSONL"``.
        columns: Its columns in order, as they stand in the file.
        ignored: Columns that are not known to whoever reads it.
        records: Line number and cells by column, or what is wrong with the row; rows are read as they are asked for.
    """

    form: str
    columns: tuple[str, ...]
    ignored: tuple[str, ...]
    records: Iterator[tuple[int, Any]]


def read_bytes(path: Path, name: str, max_bytes: int) -> bytes:
    """The bytes of an uploaded file.

    Raises:
        ServiceError: It is too large or cannot be read.
    """
    try:
        size = path.stat().st_size
        if size > max_bytes:
            raise ServiceError(
                f"{name} has {size / 1e6:.0f} MB and at most {max_bytes / 1e6:.0f} MB are read; split it."
            )
        return path.read_bytes()
    except OSError as error:
        raise ServiceError(f"{name} cannot be read ({error.strerror}); check the file.") from error


def decode(data: bytes, name: str) -> str:
    """The text of an uploaded file, without a byte order mark.

    Raises:
        ServiceError: It is not UTF-8.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ServiceError(f"{name} is not UTF-8 (line {line}); save it again as UTF-8.") from error


def read_csv(text: str, name: str) -> Table:
    """Read CSV text with a header row; the delimiter is the one that the header has most of. The name is for messages.

    Raises:
        ServiceError: The header cannot be read, or names a column twice.
    """
    delimiter, header, reader = _open(text, name)
    _require_single(header, name)
    columns = tuple(column for column in header if column)
    return Table(f"CSV, {DELIMITERS[delimiter]}", columns, (), _rows(reader, header))


def read_table(text: str, name: str, columns: Sequence[str], required: str) -> Table:
    """Read CSV text whose columns are known; their letter case does not matter.

    Args:
        text: The text.
        name: The file's name, for messages.
        columns: Columns that are known, in lower case.
        required: The one that must be there.

    Raises:
        ServiceError: The header cannot be read, lacks the required column, or names a column twice.
    """
    delimiter, typed, reader = _open(text, name)
    header = [column.lower() for column in typed]
    if required not in header:
        raise ServiceError(f"{name} has no column “{required}” in its first line; name the columns {_all(columns)}.")
    _require_single(header, name)
    ignored = tuple(column for column in header if column not in columns and column)
    named = tuple(column for column in header if column)
    return Table(f"CSV, {DELIMITERS[delimiter]}", named, ignored, _rows(reader, header))


def read_jsonl(text: str, name: str) -> Table:
    """Read text with one JSON object a line; its columns are the keys of all objects, in the order of their coming.

    Raises:
        ServiceError: The objects have too many keys.
    """
    records = list(_objects(text))
    columns = {key: None for _, record in records if isinstance(record, dict) for key in record}
    _require_single(tuple(columns), name)
    return Table("JSONL", tuple(columns), (), iter(records))


def all_records(table: Table, name: str) -> list[tuple[int, Any]]:
    """The records of a table.

    Raises:
        ServiceError: There are too many.
    """
    records = list(islice(table.records, MOST_ROWS + 1))
    if len(records) > MOST_ROWS:
        raise ServiceError(f"{name} has more than {MOST_ROWS:,} rows; split it into several files.")
    return records


def _open(text: str, name: str) -> tuple[str, list[str], Any]:
    """Delimiter, header and the reader of the rows below it."""
    csv.field_size_limit(LARGEST_FIELD)
    header_line = text.split("\n", 1)[0]
    delimiter = max(DELIMITERS, key=header_line.count) if any(d in header_line for d in DELIMITERS) else ","
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        return delimiter, [column.strip() for column in next(reader, [])], reader
    except csv.Error as error:
        raise ServiceError(f"{name} has a header that cannot be read ({error}); check its quotes.") from error


def _require_single(header: Sequence[str], name: str) -> None:
    if len(header) > MOST_COLUMNS:
        raise ServiceError(f"{name} has {len(header):,} columns and at most {MOST_COLUMNS} are read; leave some out.")
    doubled = next((column for column, times in Counter(header).items() if column and times > 1), None)
    if doubled is not None:
        raise ServiceError(f"{name} has the column “{doubled}” twice; keep one.")


def _all(columns: Collection[str]) -> str:
    return ", ".join(columns)


def _rows(reader: Any, header: list[str]) -> Iterator[tuple[int, Any]]:
    """Line number and cells by column, or what is wrong with the row."""
    line = reader.line_num + 1
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield line, RowProblem("row", f"cannot be read ({error}); check its quotes")
            return
        if cells and any(cell.strip() for cell in cells):
            if len(cells) > len(header):
                yield line, RowProblem("row", f"has {len(cells)} cells, the header has {len(header)}")
            else:
                yield line, dict(zip(header, cells, strict=False))
        line = reader.line_num + 1


def _objects(text: str) -> Iterator[tuple[int, Any]]:
    """Line number and object, or what is wrong with the line."""
    for line, content in enumerate(text.split("\n"), start=1):
        if not content.strip():
            continue
        try:
            record = json.loads(content)
        except json.JSONDecodeError as error:
            yield line, RowProblem("row", f"is not JSON ({error.msg} at character {error.colno})")
            continue
        except (ValueError, RecursionError):
            yield line, RowProblem("row", "holds a number that is too long, or lists in lists without end")
            continue
        if not isinstance(record, dict):
            yield line, RowProblem("row", "is not a JSON object")
        elif _is_deeper(record, DEEPEST):
            yield line, RowProblem("row", f"holds lists in lists, more than {DEEPEST} deep")
        else:
            yield line, record


def _is_deeper(value: Any, levels: int) -> bool:
    """Whether a value holds more than so many lists or objects within each other."""
    if not isinstance(value, (dict, list)):
        return False
    parts = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(part, levels - 1) for part in parts)
