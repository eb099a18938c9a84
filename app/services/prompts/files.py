"""Reading uploaded prompt sets: CSV or JSONL, with problems named by line and field."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.services.errors import ServiceError
from app.services.mapping import span_from, span_record
from app.services.prompts.columns import map_columns
from app.services.prompts.uploads import (
    RowProblem,
    Table,
    all_records,
    decode,
    read_bytes,
    read_csv,
    read_jsonl,
    readable,
)
from app.services.views import Example, ParsedPromptSet, RowError, Span
from coft_core.errors import InvalidInputError
from coft_core.masking.merge import validate_spans
from coft_core.types import FAMILIES
from db.records import PromptRowRecord


@dataclass(frozen=True, slots=True)
class PromptRow:
    """A usable row: its line in the file, its example, and its shift weight if the set has weights."""

    line: int
    example: Example
    weight: float | None = None


def parse_prompt_set(
    path: Path,
    filename: str | None = None,
    max_bytes: int = 20_000_000,
    columns: Mapping[str, str] | None = None,
) -> ParsedPromptSet:
    """Read a prompt set.

    CSV has a header row; JSONL has one object a line. ``prompt`` is required; ``reference`` is needed to calibrate on
    references; ``spans`` is a JSON list of ``[start, end, category]``; ``group`` and ``context`` are text or whole
    numbers; ``weight`` is a number above 0, given for all rows or for none. A file none of whose columns is known to
    hold the prompts is read without rows, so that its columns can be chosen from.

    Args:
        path: The file.
        filename: Its name as uploaded; its ending decides the format.
        max_bytes: Largest file that is read.
        columns: Column by field, see :func:`app.services.prompts.columns.map_columns`.

    Returns:
        Usable rows, and what is wrong with the others.

    Raises:
        ServiceError: The file as a whole cannot be used: too large, not UTF-8, no header, no row; or the columns asked
            for do not fit it.
    """
    name = filename or path.name
    data = read_bytes(path, name, max_bytes)
    table = _table(decode(data, name), name)
    records = all_records(table, name)
    if not records and not table.columns:
        raise ServiceError(f"{name} is empty, it has no rows; put one prompt on each line.")
    mapping = map_columns(name, table.columns, columns)
    if not records:
        raise ServiceError(f"{name} has no rows; put one prompt on each line below the header.")
    # A file without any readable object has no columns to choose from; what is wrong with its lines says more.
    rows, errors = _read(records, mapping) if "prompt" in mapping or not table.columns else ([], [])
    return ParsedPromptSet(
        filename=name,
        size=len(data),
        format=table.form,
        rows=tuple((row.line, row.example) for row in rows),
        errors=tuple(errors),
        total=len(records),
        ignored_columns=tuple(column for column in table.columns if column not in mapping.values()),
        digest=hashlib.sha256(data).hexdigest(),
        weights=tuple(row.weight for row in rows if row.weight is not None),
        columns=table.columns,
        mapping=tuple(mapping.items()),
    )


def rows_of(prompts: ParsedPromptSet) -> tuple[PromptRow, ...]:
    """The usable rows with their weights."""
    weights = prompts.weights or (None,) * len(prompts.rows)
    return tuple(PromptRow(*row, weight) for row, weight in zip(prompts.rows, weights, strict=True))


def row_record(row: PromptRow) -> PromptRowRecord:
    """A row as the store keeps it."""
    example = row.example
    return PromptRowRecord(
        line=row.line,
        prompt=example.prompt,
        reference=example.reference,
        spans=None if example.spans is None else tuple(span_record(span) for span in example.spans),
        group=example.group,
        context=example.context,
        weight=row.weight,
    )


def row_from(record: PromptRowRecord) -> PromptRow:
    """A stored row as it was uploaded."""
    spans = None if record.spans is None else tuple(span_from(span) for span in record.spans)
    example = Example(record.prompt, record.reference, spans, record.group, record.context)
    return PromptRow(record.line, example, record.weight)


def _table(text: str, name: str) -> Table:
    suffix = Path(name).suffix.lower()
    if suffix in (".jsonl", ".ndjson"):
        return read_jsonl(text, name)
    if suffix in (".csv", ".tsv", ".txt"):
        return read_csv(text, name)
    raise ServiceError(f"{name} is neither CSV nor JSONL; save it as UTF-8 .csv or .jsonl.")


def _read(records: list[tuple[int, Any]], mapping: Mapping[str, str]) -> tuple[list[PromptRow], list[RowError]]:
    rows: list[PromptRow] = []
    errors: list[RowError] = []
    seen: dict[tuple[str, str | None], int] = {}
    weighted = "weight" in mapping and any(
        isinstance(record, dict) and not _is_empty(record.get(mapping["weight"])) for _, record in records
    )
    for line, record in records:
        try:
            row = _row(line, record, mapping, weighted)
            first = seen.setdefault((row.example.prompt, row.example.reference), line)
            if first != line:
                raise RowProblem("prompt", f"same prompt and reference as line {first}")
            rows.append(row)
        except RowProblem as problem:
            errors.append(RowError(line, problem.column, problem.message))
    return rows, errors


def _row(line: int, record: Any, mapping: Mapping[str, str], weighted: bool) -> PromptRow:
    if isinstance(record, RowProblem):
        raise record
    cells = {field: record.get(column) for field, column in mapping.items()}
    prompt = _text("prompt", cells.get("prompt"))
    if prompt is None:
        raise RowProblem("prompt", "is empty")
    example = Example(
        prompt=prompt,
        reference=_text("reference", cells.get("reference")),
        spans=_spans(cells.get("spans"), prompt),
        group=_label("group", cells.get("group")),
        context=_label("context", cells.get("context")),
    )
    return PromptRow(line, example, _weight(cells.get("weight")) if weighted else None)


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _text(field: str, value: Any) -> str | None:
    if _is_empty(value):
        return None
    if not isinstance(value, str):
        raise RowProblem(field, f"is {json.dumps(value)[:40]}, not text")
    return readable(field, value)


def _label(field: str, value: Any) -> str | None:
    if _is_empty(value):
        return None
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        return readable(field, str(value).strip())
    raise RowProblem(field, f"is {json.dumps(value)[:40]}, not text or a whole number")


def _weight(value: Any) -> float:
    if _is_empty(value):
        raise RowProblem("weight", "is missing, and other rows have one; give every row a weight, or none")
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if math.isfinite(number) and number > 0:
        return number
    raise RowProblem("weight", f"is {json.dumps(value)[:40]}, not a number above 0")


def _spans(value: Any, prompt: str) -> tuple[Span, ...] | None:
    if _is_empty(value):
        return None
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise RowProblem("spans", f"is not a JSON list: {value[:40]}") from error
    if not isinstance(value, list):
        raise RowProblem("spans", "is not a list of [start, end, category]")
    spans = tuple(_span(item, prompt) for item in value)
    try:
        validate_spans(prompt, spans)
    except InvalidInputError as error:
        raise RowProblem("spans", str(error)) from error
    return spans


def _span(item: Any, prompt: str) -> Span:
    if not isinstance(item, list) or len(item) not in (2, 3):
        raise RowProblem("spans", f"has {json.dumps(item)[:40]}, not [start, end, category]")
    start, end = item[0], item[1]
    category = item[2] if len(item) == 3 else "other"
    if not all(isinstance(n, int) and not isinstance(n, bool) for n in (start, end)):
        raise RowProblem("spans", f"has {json.dumps(item)[:40]}, whose ends are not whole numbers")
    if end > len(prompt):
        raise RowProblem("spans", f"ends at {end}, the prompt has {len(prompt)} characters")
    if category not in (*FAMILIES, "other"):
        raise RowProblem("spans", f"family “{category}” is not known here")
    return Span(start, end, str(category), source="user")
