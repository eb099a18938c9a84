"""Reading uploaded prompt sets: CSV or JSONL, with problems named by line and column."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.services.errors import ServiceError
from app.services.uploads import RowProblem, decode, read_bytes, read_table
from app.services.views import ParsedPromptSet, RowError
from coft_core.errors import InvalidInputError
from coft_core.masking.merge import validate_spans
from coft_core.types import FAMILIES, Example, Span

COLUMNS = ("prompt", "reference", "spans", "group")


def parse_prompt_set(path: Path, filename: str | None = None, max_bytes: int = 20_000_000) -> ParsedPromptSet:
    """Read a prompt set.

    CSV has a header row; JSONL has one object a line. ``prompt`` is required; ``reference`` is needed to calibrate on
    references; ``spans`` is a JSON list of ``[start, end, category]``; ``group`` names dependent rows.

    Args:
        path: The file.
        filename: Its name as uploaded; its ending decides the format.
        max_bytes: Largest file that is read.

    Returns:
        Usable rows, and what is wrong with the others.

    Raises:
        ServiceError: The file as a whole cannot be used: too large, not UTF-8, no header, no prompt column, no row.
    """
    name = filename or path.name
    data = read_bytes(path, name, max_bytes)
    text = decode(data, name)
    suffix = Path(name).suffix.lower()
    if suffix in (".jsonl", ".ndjson"):
        form, ignored, records = "JSONL", _unknown_keys(text), _jsonl(text)
    elif suffix in (".csv", ".tsv", ".txt"):
        table = read_table(text, name, COLUMNS, required="prompt")
        form, ignored, records = f"CSV, {table.delimiter}", table.ignored, table.records
    else:
        raise ServiceError(f"{name} is neither CSV nor JSONL; save it as UTF-8 .csv or .jsonl.")
    rows: list[tuple[int, Example]] = []
    errors: list[RowError] = []
    seen: dict[tuple[str, str | None], int] = {}
    total = 0
    for line, record in records:
        total += 1
        try:
            example = _example(record)
            first = seen.setdefault((example.prompt, example.reference), line)
            if first != line:
                raise RowProblem("prompt", f"same prompt and reference as line {first}")
            rows.append((line, example))
        except RowProblem as problem:
            errors.append(RowError(line, problem.column, problem.message))
    if total == 0:
        raise ServiceError(f"{name} has no rows; put one prompt on each line below the header.")
    return ParsedPromptSet(
        filename=name,
        size=len(data),
        format=form,
        rows=tuple(rows),
        errors=tuple(errors),
        total=total,
        ignored_columns=ignored,
        digest=hashlib.sha256(data).hexdigest(),
    )


def require_references(prompts: ParsedPromptSet) -> ParsedPromptSet:
    """The same set with rows that lack a reference moved to its errors."""
    missing = [RowError(line, "reference", "is empty") for line, example in prompts.rows if not example.reference]
    return replace(
        prompts,
        rows=tuple(row for row in prompts.rows if row[1].reference),
        errors=tuple(sorted((*prompts.errors, *missing), key=lambda error: error.line)),
    )


def _jsonl(text: str) -> Iterator[tuple[int, Any]]:
    for line, content in enumerate(text.split("\n"), start=1):
        if not content.strip():
            continue
        try:
            record = json.loads(content)
        except json.JSONDecodeError as error:
            yield line, RowProblem("row", f"is not JSON ({error.msg} at character {error.colno})")
            continue
        yield line, record if isinstance(record, dict) else RowProblem("row", "is not a JSON object")


def _unknown_keys(text: str) -> tuple[str, ...]:
    keys = {key: None for _, record in _jsonl(text) if isinstance(record, dict) for key in record}
    return tuple(key for key in keys if key not in COLUMNS)


def _example(record: Mapping[str, Any] | RowProblem) -> Example:
    if isinstance(record, RowProblem):
        raise record
    prompt = _text(record, "prompt")
    if prompt is None:
        raise RowProblem("prompt", "is empty")
    return Example(
        prompt=prompt,
        reference=_text(record, "reference"),
        spans=_spans(record.get("spans"), prompt),
        group=_group(record.get("group")),
    )


def _text(record: Mapping[str, Any], column: str) -> str | None:
    value = record.get(column)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise RowProblem(column, f"is {json.dumps(value)[:40]}, not text")
    return value if value.strip() else None


def _group(value: Any) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        return str(value)
    raise RowProblem("group", f"is {json.dumps(value)[:40]}, not text or a whole number")


def _spans(value: Any, prompt: str) -> tuple[Span, ...] | None:
    if value is None or value == "":
        return None
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
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
