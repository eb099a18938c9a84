"""Reading uploaded prompt sets: CSV or JSONL, with problems named by line and field."""

from __future__ import annotations

import csv
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from app.shared.errors import ServiceError
from app.shared.files import RowProblem, Table, all_records, decode, read_bytes, read_csv, read_jsonl, readable
from coft_core.assets import assets_path
from coft_core.errors import InvalidInputError
from coft_core.text.merging import validate_spans
from coft_core.text.turns import ConversationError, Turn, conversation_from, messages_of, turns_of
from coft_core.types import FAMILIES, Example, Span
from db.prompt_sets import PromptRow

PROMPT_SET_FIELDS = ("prompt", "reference", "spans", "group", "context", "weight", "messages")
"""What a row of a prompt set can hold; ``prompt`` is required, or ``messages``: a conversation in its place."""


@dataclass(frozen=True, slots=True)
class RowError:
    """Why a row of an uploaded prompt set cannot be used; ``line`` counts from 1, the header included."""

    line: int
    column: str
    message: str


@dataclass(frozen=True, slots=True)
class ParsedPromptSet:
    """An uploaded prompt set after reading."""

    filename: str
    size: int
    format: str
    rows: tuple[tuple[int, Example], ...]
    errors: tuple[RowError, ...]
    total: int
    ignored_columns: tuple[str, ...]
    digest: str
    weights: tuple[float, ...] = ()
    columns: tuple[str, ...] = ()
    mapping: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PromptPreview:
    """A row as it will be masked; its spans are those of the row, else those ``detected``."""

    line: int
    prompt: str
    reference: str | None
    spans: tuple[Span, ...]
    detected: bool
    group: str | None
    context: str | None


@dataclass(frozen=True, slots=True)
class SamplePromptSet:
    """A prompt set that comes with the program, by the name of its file and with the title of a menu."""

    name: str
    title: str
    description: str
    rows: int
    path: Path


USUAL_NAMES: dict[str, tuple[str, ...]] = {
    "prompt": ("prompt", "text", "input", "question", "prompt text"),
    "reference": ("reference", "completion", "continuation", "response", "target", "output", "answer"),
    "spans": ("spans",),
    "group": ("group",),
    "context": ("context", "context id", "pair"),
    "weight": ("weight", "weights"),
    "messages": ("messages", "conversation", "conversations"),
}
"""Names under which a field is looked for where no column has exactly its own, likeliest first."""


def map_columns(
    name: str,
    columns: Sequence[str],
    asked: Mapping[str, str] | None = None,
    usual: Mapping[str, Sequence[str]] = USUAL_NAMES,
    what: str = "A prompt set",
) -> dict[str, str]:
    """Choose a column for each field, of which ``usual`` gives the names."""
    wanted = dict(asked or {})
    _check_asked(name, columns, wanted, usual, what)
    taken = {column for column in wanted.values() if column}
    mapping: dict[str, str] = {}
    for field, names in usual.items():
        free = [column for column in columns if column not in taken]
        column = wanted[field] if field in wanted else _usual(field, names, free)
        if column:
            mapping[field] = column
            taken.add(column)
    return mapping


def grouping_note(prompts: ParsedPromptSet) -> str:
    """What is said of a set that names groups and no contexts: each row counts by itself; else empty."""
    named = dict(prompts.mapping)
    groups = [example.group for _, example in prompts.rows if example.group]
    if "group" not in named or "context" in named or len(set(groups)) == len(groups):
        return ""
    return (
        f"The column “{named['group']}” says whom a row is about, so each row counts as a context of its own. If rows "
        "belong together, as one question asked in several ways does, give them the same value in a column “context”; "
        f"if “{named['group']}” says just that, read context from it."
    )


def names_prompts(mapping: Mapping[str, str]) -> bool:
    """Whether a mapping of fields to columns says where the prompts are."""
    return "prompt" in mapping or "messages" in mapping


def require_prompts(prompts: ParsedPromptSet) -> None:
    """Refuse a prompt set of which nobody knows what column holds its prompts."""
    if not names_prompts(dict(prompts.mapping)) and prompts.columns:
        raise ServiceError(
            f"{prompts.filename} has no column “prompt” and no column “messages”; its columns are "
            f"{_listed(prompts.columns)}: name one of them "
            "“prompt”, or say which one holds the prompts."
        )


def _check_asked(
    name: str, columns: Sequence[str], asked: Mapping[str, str], usual: Mapping[str, Sequence[str]], what: str
) -> None:
    for field, column in asked.items():
        if field not in usual:
            raise ServiceError(f"{what} has no field “{field}”; its fields are {', '.join(usual)}.")
        if column and column not in columns:
            listed = _listed(columns)
            raise ServiceError(f"{name} has no column “{column}” to read {field} from; its columns are {listed}.")
        other = next((f for f, c in asked.items() if column and c == column and f != field), None)
        if other is not None:
            raise ServiceError(f"The column “{column}” is asked for {field} and for {other}; choose one for each.")


def _usual(field: str, names: Sequence[str], columns: Sequence[str]) -> str:
    """The column of a field's own name, else of one of its usual names; empty if there is none."""
    if field in columns:
        return field
    by_plain_name = {_plain(column): column for column in reversed(columns)}
    return next((by_plain_name[name] for name in names if name in by_plain_name), "")


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(f"“{column}”" for column in columns)


def _plain(column: str) -> str:
    return " ".join(column.replace("_", " ").replace("-", " ").lower().split())


def parse_prompt_set(
    path: Path,
    filename: str | None = None,
    max_bytes: int = 20_000_000,
    columns: Mapping[str, str] | None = None,
) -> ParsedPromptSet:
    """Read a prompt set.

    CSV has a header row; JSONL has one object a line. ``prompt`` is required, or ``messages``: a list of objects with
    ``role`` (``system``, ``user``, ``assistant``) and ``content``, as JSON text in a CSV; ``reference`` is needed to
    calibrate on references; ``spans`` is a JSON list of ``[start, end, category]``, or of ``[message, start, end,
    category]`` in messages, which count from 1; ``group`` and ``context`` are text or whole
    numbers; ``weight`` is a number above 0, given for all rows or for none. A file none of whose columns is known to
    hold the prompts is read without rows, so that its columns can be chosen from.
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
    rows, errors = _read(records, mapping) if names_prompts(mapping) or not table.columns else ([], [])
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
    turns: tuple[Turn, ...] = ()
    if _is_empty(cells.get("messages")):
        prompt = _text("prompt", cells.get("prompt"))
    elif _is_empty(cells.get("prompt")):
        prompt, turns = _conversation(cells["messages"])
    else:
        raise RowProblem("messages", "is given beside a prompt; give one of them")
    if prompt is None:
        raise RowProblem("prompt", "is empty")
    example = Example(
        prompt=prompt,
        reference=_text("reference", cells.get("reference")),
        spans=_spans(cells.get("spans"), prompt, turns),
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


def _conversation(value: Any) -> tuple[str, tuple[Turn, ...]]:
    try:
        messages = json.loads(value) if isinstance(value, str) else value
        text, turns = conversation_from(messages)
    except (ValueError, RecursionError) as error:
        told = str(error) if isinstance(error, ConversationError) else f"is no JSON: {str(value)[:40]}"
        raise RowProblem("messages", told) from error
    return readable("messages", text), turns


def _spans(value: Any, prompt: str, turns: Sequence[Turn] = ()) -> tuple[Span, ...] | None:
    if _is_empty(value):
        return None
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise RowProblem("spans", f"is not a JSON list: {value[:40]}") from error
    if not isinstance(value, list):
        raise RowProblem("spans", "is not a list of [start, end, category]")
    spans = tuple(_turn_span(item, turns) if turns else _span(item, prompt) for item in value)
    try:
        validate_spans(prompt, spans)
    except InvalidInputError as error:
        raise RowProblem("spans", str(error)) from error
    return spans


def _turn_span(item: Any, turns: Sequence[Turn]) -> Span:
    """A span within one message, which is named by its number."""
    if not isinstance(item, list) or len(item) not in (3, 4) or not _is_whole(item[0]):
        raise RowProblem("spans", f"has {json.dumps(item)[:40]}, not [message, start, end, category]")
    if not 1 <= item[0] <= len(turns):
        raise RowProblem("spans", f"names message {item[0]} of {len(turns)}")
    turn = turns[item[0] - 1]
    span = _span(item[1:], turn.content)
    return replace(span, start=span.start + turn.start, end=span.end + turn.start)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _span(item: Any, prompt: str) -> Span:
    if not isinstance(item, list) or len(item) not in (2, 3):
        raise RowProblem("spans", f"has {json.dumps(item)[:40]}, not [start, end, category]")
    start, end = item[0], item[1]
    category = item[2] if len(item) == 3 else "other"
    if not (_is_whole(start) and _is_whole(end)):
        raise RowProblem("spans", f"has {json.dumps(item)[:40]}, whose ends are not whole numbers")
    if end > len(prompt):
        raise RowProblem("spans", f"ends at {end}, the prompt has {len(prompt)} characters")
    if category not in (*FAMILIES, "other"):
        raise RowProblem("spans", f"family “{category}” is not known here")
    return Span(start, end, str(category), source="user")


class PromptSetReader:
    """Reads uploaded prompt sets up to a size in bytes, and offers those that come with the program."""

    uses: tuple[str, ...] = ()
    """What the offered ones are listed for, see :func:`listed_samples`."""

    def __init__(self, max_upload_bytes: int) -> None:
        self._max_upload_bytes = max_upload_bytes

    def samples(self) -> tuple[SamplePromptSet, ...]:
        """Prompt sets that come with the program."""
        return listed_samples(*self.uses)

    def parse(
        self, path: Path, filename: str | None = None, columns: Mapping[str, str] | None = None
    ) -> ParsedPromptSet:
        """Read a CSV or JSONL prompt set, see :func:`parse_prompt_set`; what is wrong with a row is data."""
        return parse_prompt_set(path, filename, self._max_upload_bytes, columns)


def refused_rows(prompts: ParsedPromptSet, errors: Sequence[RowError]) -> str:
    """How many rows cannot be used and why the first of them cannot, as the sentence that refuses a prompt set."""
    bad = len({error.line for error in errors})
    return (
        f"{bad} of {prompts.total} rows cannot be used, {first_refused(errors)}; correct them, or go on with the good "
        "rows."
    )


def first_refused(errors: Sequence[RowError]) -> str:
    """Where the first row is that cannot be used, and why it cannot."""
    first = errors[0]
    return f"the first on line {first.line} ({first.column} {first.message})"


SAMPLES = ("prompts", "samples.json")
"""List of the prompt sets that come with the program, among the shipped data files."""


def listed_samples(*uses: str) -> tuple[SamplePromptSet, ...]:
    """The listed sets of some uses, those of the first use first: ``calibration``, ``deployment`` or ``audit``."""
    listed = json.loads(assets_path(*SAMPLES).read_text("utf-8"))
    return tuple(sample_of(entry) for use in uses for entry in listed if entry["use"] == use)


@cache
def shipped_prompts() -> frozenset[str]:
    """The prompts of all examples and sample sets that come with the program."""
    found: set[object] = set()
    for path in assets_path(SAMPLES[0]).iterdir():
        if path.suffix == ".csv":
            with path.open(encoding="utf-8", newline="") as file:
                found.update(row["prompt"] for row in csv.DictReader(file))
            continue
        text = path.read_text("utf-8")
        for part in text.splitlines() if path.suffix == ".jsonl" else [text]:
            json.loads(part, object_hook=lambda fields: found.add(fields.get("prompt")))
    return frozenset(prompt for prompt in found if isinstance(prompt, str))


def sample_of(entry: Mapping[str, Any]) -> SamplePromptSet:
    """A set as the list tells of it; its rows are counted where the list does not say how many."""
    path = assets_path("prompts", entry["file"])
    rows = entry.get("rows") or sum(bool(line.strip()) for line in path.read_text("utf-8").splitlines())
    return SamplePromptSet(entry["file"], entry["title"], entry["description"], int(rows), path)


def rows_jsonl(rows: Iterable[PromptRow]) -> str:
    """One JSON object a row, with the fields that it has."""
    return "".join(json.dumps(_stored_row(row), ensure_ascii=False) + "\n" for row in rows)


def _stored_row(row: PromptRow) -> dict[str, Any]:
    example = row.example
    turns, messages = turns_of(example.prompt), messages_of(example.prompt)
    spans = None if example.spans is None else [_placed(s, turns) for s in example.spans if not s.kept]
    fields = {
        "prompt": None if messages else example.prompt,
        "messages": messages,
        "reference": example.reference,
        "spans": spans,
        "group": example.group,
        "context": example.context,
        "weight": row.weight,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _placed(span: Span, turns: Sequence[Turn]) -> list[int | str]:
    """A span as a file has it: in a conversation, within one of its messages."""
    for number, turn in enumerate(turns, start=1):
        if turn.start <= span.start and span.end <= turn.end:
            return [number, span.start - turn.start, span.end - turn.start, span.category]
    return [span.start, span.end, span.category]
