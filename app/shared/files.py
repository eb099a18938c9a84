"""Reading uploaded tables: what prompt sets and word lists have in common."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from app.shared.errors import ServiceError
from coft_core.text.tokens import surrogate_problem

WIDE_STARTS = ("\uff1d", "\uff0b", "\uff0d", "\uff20")
"""The signs of a formula in the width of Chinese characters, which spreadsheets in some languages read alike."""

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\0", *WIDE_STARTS)
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


class DoubledKeyError(ValueError):
    """An object in JSON has a key twice, so that programs read it differently."""

    def __init__(self, key: str) -> None:
        self.key, self.message = key, "appears twice in the same object; keep one"
        super().__init__(f"the key {key!r} {self.message}")


def plain_json(text: str | bytes) -> Any:
    """JSON whose objects have every key once."""
    return json.loads(text, object_pairs_hook=_single)


def _single(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise DoubledKeyError(next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1))
    return record


DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab"}
LARGEST_FIELD = 1_000_000
MOST_COLUMNS = 1_000
MOST_ROWS = 100_000
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""What nobody types and no page shows: all control characters but tab and ends of lines."""
DEEPEST = 8
"""Lists or objects within each other in a row; spans, the deepest that is read, have two."""


class RowProblem(Exception):  # noqa: N818 - data about a row, collected and never shown as an error
    """A row that cannot be used: the column and what is wrong with it."""

    def __init__(self, column: str, message: str) -> None:
        super().__init__(message)
        self.column, self.message = column, message


def readable(field: str, text: str) -> str:
    """A text that a tokenizer can read, and a person can see; JSON lines can hold halves of characters."""
    if problem := surrogate_problem(text) or control_problem(text):
        raise RowProblem(field, problem)
    return text


def control_problem(text: str) -> str:
    """Where a text holds a control character; ends of lines and tabs are none. Empty where it holds none."""
    found = CONTROL.search(text)
    return f"holds the control character U+{ord(found[0]):04X} at character {found.start() + 1}" if found else ""


def without_controls(line: int, record: Mapping[str, Any]) -> tuple[int, Mapping[str, Any] | RowProblem]:
    """A line of a table, or that a cell of it holds a control character, which no page would show."""
    for column, value in record.items():
        if problem := control_problem(column) or next(filter(None, map(control_problem, _texts(value))), ""):
            return line, RowProblem(CONTROL.sub("\ufffd", column), f"{problem}; remove it")
    return line, record


def _texts(value: Any) -> Iterator[str]:
    """The texts in a cell; that of a JSON line may hold lists and objects."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from _texts(item)


@dataclass(frozen=True, slots=True)
class Table:
    """An uploaded table."""

    form: str
    columns: tuple[str, ...]
    ignored: tuple[str, ...]
    records: Iterator[tuple[int, Any]]


def read_bytes(path: Path, name: str, max_bytes: int) -> bytes:
    """The bytes of an uploaded file."""
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
    """The text of an uploaded file, without a byte order mark."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ServiceError(f"{name} is not UTF-8 (line {line}); save it again as UTF-8.") from error


def read_csv(text: str, name: str, known: Sequence[str] = (), required: str = "") -> Table:
    """Read CSV text with a header row; where its columns are known, their letter case does not matter."""
    delimiter, header, reader = _open(text, name)
    header = [column.lower() for column in header] if known else header
    if required and required not in header:
        raise ServiceError(f"{name} has no column “{required}” in its first line; name the columns {', '.join(known)}.")
    _require_single(header, name)
    ignored = tuple(column for column in header if known and column and column not in known)
    named = tuple(column for column in header if column)
    return Table(f"CSV, {DELIMITERS[delimiter]}", named, ignored, _rows(reader, header))


def read_jsonl(text: str, name: str) -> Table:
    """Read text with one JSON object a line; its columns are the keys of all objects, in the order of their coming."""
    records = list(_objects(text))
    columns = {key: None for _, record in records if isinstance(record, dict) for key in record}
    _require_single(tuple(columns), name)
    return Table("JSONL", tuple(columns), (), iter(records))


def all_records(table: Table, name: str) -> list[tuple[int, Any]]:
    """The records of a table."""
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
    if problem := next(filter(None, map(control_problem, header)), ""):
        raise ServiceError(f"{name} has a column whose name {problem}; remove it.")


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
            counted = f"has {len(cells)} cells, the header has {len(header)}"
            if len(cells) > len(header):
                yield line, RowProblem("row", counted)
            elif len(cells) < len(header):
                # Which cell was left out cannot be told: what is under a column may belong under the next one.
                absent = header[len(cells)] or "row"
                yield line, RowProblem(absent, f"is missing: the row {counted}; leave unused cells empty")
            else:
                yield without_controls(line, dict(zip(header, cells, strict=True)))
        line = reader.line_num + 1


def _objects(text: str) -> Iterator[tuple[int, Any]]:
    """Line number and object, or what is wrong with the line."""
    for line, content in enumerate(text.split("\n"), start=1):
        if not content.strip():
            continue
        try:
            record = plain_json(content)
        except DoubledKeyError as problem:
            yield line, RowProblem(CONTROL.sub("\ufffd", problem.key), problem.message)
            continue
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
            yield without_controls(line, record)


def _is_deeper(value: Any, levels: int) -> bool:
    """Whether a value holds more than so many lists or objects within each other."""
    if not isinstance(value, (dict, list)):
        return False
    parts = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(part, levels - 1) for part in parts)
