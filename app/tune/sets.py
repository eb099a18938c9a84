"""Sets to tune on: CSV or JSONL with prompts, right and wrong answers, and pairs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.shared.errors import ServiceError
from app.shared.files import RowProblem, all_records, decode, read_bytes, read_csv, read_jsonl, readable
from coft_core.errors import InvalidInputError
from coft_core.text.merging import validate_spans
from coft_core.tuning.measure import TuningItem, check_items
from coft_core.types import Span

_YES, _NO = ("yes", "true", "1"), ("no", "false", "0")


@dataclass(frozen=True, slots=True)
class TuningSet:
    """A set of prompts to tune on as it was read: its name as uploaded, its prompts, and the digest of the file."""

    filename: str
    items: tuple[TuningItem, ...]
    digest: str

    @property
    def graded(self) -> int:
        """Prompts that count for accuracy."""
        return sum(item.graded for item in self.items)

    @property
    def pairs(self) -> int:
        """Groups of prompts that differ only in the attribute."""
        return len({item.pair for item in self.items} - {None})


def read_tuning_set(path: Path, filename: str | None = None, max_bytes: int = 20_000_000) -> TuningSet:
    """Read a set to tune on; a set with a row that cannot be used is refused, since every row is part of the measure.

    Columns: ``prompt``; ``answer``, the right continuation; ``others``, wrong ones as a JSON list or separated by
    ``|``; ``pair``, shared by prompts that differ only in the attribute; ``spans`` as in prompt sets; ``graded``, no
    for prompts without a right answer. All but the first two may be left out. Answers that begin with a letter or a
    digit are put behind a space.
    """
    name = filename or path.name
    data = read_bytes(path, name, max_bytes)
    read = read_jsonl if Path(name).suffix.lower() in (".jsonl", ".ndjson") else read_csv
    table = read(decode(data, name), name)
    for column in ("prompt", "answer"):
        if column not in table.columns:
            raise ServiceError(f"{name} has no column “{column}”; a set to tune on needs prompt and answer.")
    items: list[TuningItem] = []
    for line, cells in all_records(table, name):
        try:
            if isinstance(cells, RowProblem):
                raise cells
            items.append(_item(cells))
        except RowProblem as problem:
            raise ServiceError(f"{name}, line {line}: {problem.column} {problem.message}.") from problem
    try:
        check_items(items)
    except InvalidInputError as error:
        raise ServiceError(f"{name}: {error}") from error
    return TuningSet(name, tuple(items), hashlib.sha256(data).hexdigest())


def _item(cells: Mapping[str, Any]) -> TuningItem:
    given = {name: None if isinstance(cell, str) and not cell.strip() else cell for name, cell in cells.items()}
    prompt = _required(given, "prompt", "type at least one word")
    pair, graded = given.get("pair"), given.get("graded")
    graded = "yes" if graded is None else str(graded).strip().lower()
    if graded not in (*_YES, *_NO):
        raise RowProblem("graded", "must be yes or no")
    return TuningItem(
        prompt=prompt,
        answer=_continuing(_required(given, "answer", "give the right continuation")),
        others=tuple(_continuing(readable("others", other)) for other in _others(given.get("others"))),
        pair=None if pair is None else readable("pair", str(pair).strip()),
        spans=_spans(prompt, given.get("spans")),
        graded=graded not in _NO,
    )


def _required(given: Mapping[str, Any], column: str, wanted: str) -> str:
    text = readable(column, str(given.get(column) or ""))
    if not text.strip():
        raise RowProblem(column, f"is empty; {wanted}")
    return text


def _continuing(text: str) -> str:
    """A space comes before a continuation that begins with a word."""
    return f" {text}" if text[:1].isalnum() else text


def _others(cell: Any) -> list[str]:
    if isinstance(cell, str):
        if not cell.lstrip().startswith("["):
            return [part for part in cell.split("|") if part.strip()]
        try:
            cell = json.loads(cell)
        except (ValueError, RecursionError) as error:
            raise RowProblem("others", "is not a list; separate answers by |, or give a JSON list") from error
    texts = [] if cell is None else cell
    if not isinstance(texts, list) or not all(isinstance(other, str) and other.strip() for other in texts):
        raise RowProblem("others", "must hold texts; separate answers by |, or give a JSON list")
    return texts


def _spans(prompt: str, cell: Any) -> tuple[Span, ...] | None:
    if cell is None:
        return None
    try:
        listed = json.loads(cell) if isinstance(cell, str) else cell
        spans = tuple(Span(int(start), int(end), str(family)) for start, end, family in listed)
        validate_spans(prompt, spans)
    except (ValueError, TypeError, OverflowError, RecursionError, InvalidInputError) as error:
        raise RowProblem("spans", f"cannot be used ({error}); give a JSON list of [start, end, family]") from error
    return spans
