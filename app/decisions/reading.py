"""Files of decisions: CSV, JSON lines, logs of Inspect, samples of lm-eval and results of promptfoo, as one table."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app.prompts.sets import map_columns
from app.shared.decisions import Decision, DecisionRule, reader, rows_called
from app.shared.errors import ServiceError
from app.shared.files import (
    DoubledKeyError,
    RowProblem,
    all_records,
    decode,
    plain_json,
    read_bytes,
    read_csv,
    read_jsonl,
    readable,
    without_controls,
)
from app.shared.format import count, listed, plural

FIELDS = {
    "outcome": ("outcome", "decision", "output", "response", "result", "answer", "completion"),
    "group": ("group",),
    "pair": ("pair", "pair id", "context", "context id"),
    "variant": ("variant", "name", "wording"),
    "prompt": ("prompt", "text", "input", "question"),
}
"""What a row can hold, and under which names it is looked for."""
Records = list[tuple[int, Any]]
"""Numbers of rows, and their cells by column or what is wrong with them."""


@dataclass(frozen=True, slots=True)
class ParsedDecisions:
    """A file after reading; rows that could not be read are ``problems`` by line."""

    filename: str
    digest: str
    form: str
    columns: tuple[str, ...]
    mapping: Mapping[str, str]
    models: tuple[str, ...]
    outcomes: tuple[tuple[str, int], ...]
    rows: tuple[Decision, ...]
    problems: tuple[tuple[int, str], ...]

    @property
    def refusal(self) -> str:
        """How many rows could not be read, and why the first could not; empty for none."""
        if not self.problems:
            return ""
        line, why = self.problems[0]
        return (
            f"{count(len(self.problems))} of {plural(len(self.rows) + len(self.problems), 'row')} of {self.filename} "
            f"cannot be read, the first is {rows_called(self.form)} {line} ({why}); correct them, or go on with "
            "the good rows."
        )


def parse_decisions(
    path: Path, rule: DecisionRule, columns: Mapping[str, str] | None = None, max_bytes: int = 20_000_000,
    name: str = "",
) -> ParsedDecisions:  # fmt: skip
    """Read a file, with fields from the columns of their names or from those that are asked for.

    Outcomes are not judged yet where it is not known which of them means selected, see :func:`judged`.
    """
    name = name or path.name
    data = read_bytes(path, name, max_bytes)
    form, records = _records(path, data, name)
    if not records:
        raise ServiceError(f"{name} has no rows; export it again with its results.")
    names = tuple(dict.fromkeys(key for _, record in records if isinstance(record, dict) for key in record))
    mapping = map_columns(name, names, columns, FIELDS, "A file of decisions")
    models = tuple(
        sorted({str(record["model"]) for _, record in records if isinstance(record, dict) and record.get("model")})
    )
    rows, problems = [], []
    for line, record in records:
        try:
            if isinstance(record, RowProblem):
                raise record
            if not rule.model or record.get("model") == rule.model:
                rows.append(_decision(line, record, mapping))
        except RowProblem as problem:
            problems.append((line, f"{problem.column} {problem.message}"))
    outcomes = tuple(Counter(row.outcome for row in rows).most_common())
    digest = hashlib.sha256(data).hexdigest()
    return ParsedDecisions(name, digest, form, names, mapping, models, outcomes, tuple(rows), tuple(problems))


def judged(parsed: ParsedDecisions, rule: DecisionRule) -> ParsedDecisions:
    """A file with its outcomes read as selected or not; refuses one of which something is not known."""
    for field in ("outcome", "group"):
        if field not in parsed.mapping:
            raise ServiceError(
                f"{parsed.filename} has no column “{field}”; say which of its columns holds it: "
                f"{', '.join(parsed.columns) or 'it has none that can be read'}."
            )
    if rule.model and rule.model not in parsed.models:
        raise ServiceError(f"{parsed.filename} has no outcome of the model {rule.model!r}.")
    if len(parsed.models) > 1 and not rule.model:
        raise ServiceError(f"{parsed.filename} has outcomes of several models; choose {listed(parsed.models, 'or')}.")
    read = reader(rule, parsed.filename, parsed.form, parsed.rows)
    return replace(parsed, rows=tuple(replace(row, selected=read(row)) for row in parsed.rows))


def _decision(line: int, record: Mapping[str, Any], mapping: Mapping[str, str]) -> Decision:
    cells = {field: readable(column, _text(record.get(column))) for field, column in mapping.items()}
    if not cells.get("outcome", "-"):
        raise RowProblem(mapping["outcome"], str(record.get("error") or "is empty"))
    texts = {field: cells.get(field) or None for field in FIELDS if field != "outcome"}
    return Decision(line, outcome=cells.get("outcome", ""), selected=None, **texts)


def _text(value: Any) -> str:
    """A cell as text; lists and objects as JSON."""
    if value is None:
        return ""
    return value.strip() if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _records(path: Path, data: bytes, name: str) -> tuple[str, Records]:
    ending = Path(name).suffix.lower()
    if ending == ".eval":
        return "Inspect log", _inspect(path, name)
    text = decode(data, name)
    if ending in (".csv", ".tsv", ".txt"):
        table = read_csv(text, name)
        return table.form, all_records(table, name)
    if ending in (".jsonl", ".ndjson"):
        lines = all_records(read_jsonl(text, name), name)
        return _forms(lines), [(line, _flat(record)) for line, record in lines]
    if ending != ".json":
        raise ServiceError(f"{name} is none of .csv, .jsonl, .json and .eval; export it as one of them.")
    try:
        content = plain_json(text)
    except (DoubledKeyError, ValueError, RecursionError) as error:
        raise ServiceError(f"{name} is not JSON ({error}); export it again.") from error
    if isinstance(content, dict) and {"eval", "samples"} <= content.keys():
        return "Inspect log", _inspect(path, name)
    while isinstance(content, dict):
        content = content.get("results")
    if not isinstance(content, list):
        raise ServiceError(
            f"{name} has no list of results; give promptfoo’s JSON, a log of Inspect, or a list of rows."
        )
    rows = [
        without_controls(number, own) if isinstance(own, dict) else (number, RowProblem("row", "is not a JSON object"))
        for number, own in enumerate(content, 1)
    ]
    return _forms(rows), [(number, _flat(own)) for number, own in rows]


def _forms(rows: Records) -> str:
    first = next((own for _, own in rows if isinstance(own, dict)), {})
    return "promptfoo" if _is_promptfoo(first) else "lm-eval" if _is_lm_eval(first) else "JSON"


def _is_promptfoo(record: Mapping[str, Any]) -> bool:
    return "response" in record and ("vars" in record or "testCase" in record)


def _is_lm_eval(record: Mapping[str, Any]) -> bool:
    return isinstance(record.get("doc"), dict) and "resps" in record


def _flat(record: Any) -> Any:
    """A row in columns of its own; what cannot be read is told with the row."""
    if not isinstance(record, dict):
        return record
    try:
        if _is_promptfoo(record):
            return _promptfoo(record)
        return _lm_eval(record) if _is_lm_eval(record) else record
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        return RowProblem("row", f"cannot be read ({type(error).__name__}: {error})")


def _promptfoo(row: Mapping[str, Any]) -> dict[str, Any]:
    case, prompt, response = (row.get(name) or {} for name in ("testCase", "prompt", "response"))
    provider = row.get("provider")
    given = row.get("vars") or case.get("vars") or {}
    own = {
        "prompt": prompt.get("raw") if isinstance(prompt, dict) else prompt,
        "wording": prompt.get("label") if isinstance(prompt, dict) else None,
        "output": response.get("output") if isinstance(response, dict) else response,
        "success": row.get("success"),
        "score": row.get("score"),
        "model": (provider.get("label") or provider.get("id")) if isinstance(provider, dict) else provider,
        "error": row.get("error"),
    }
    return _beside(own, {**(case.get("metadata") or {}), **given})


def _lm_eval(row: Mapping[str, Any]) -> dict[str, Any]:
    given = row.get("arguments") or {}
    texts = [_values(own) for own in _values(given)]
    answers = row.get("filtered_resps") or row["resps"]
    if all(isinstance(own, list) and len(own) == 2 and str(own[1]) in ("True", "False") for own in answers):
        # Choices come with their log-likelihoods: the likeliest is what was chosen.
        likeliest = max(range(len(answers)), key=lambda place: float(answers[place][0]))
        output = str(texts[likeliest][1])
    else:
        output = answers[0][0] if isinstance(answers[0], list) else answers[0]
    metrics = {key: value for key, value in row.items() if isinstance(value, (int, float))}
    prompt = texts[0][0] if texts else None
    return _beside({"prompt": prompt, "output": output, "target": row.get("target"), **metrics}, row["doc"])


def _values(given: Any) -> list[Any]:
    return list(given.values()) if isinstance(given, dict) else list(given)


def _beside(own: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A row's own columns, and what its author gave it, under another name where that is taken."""
    return {**own, **{f"vars.{key}" if key in own else str(key): value for key, value in given.items()}}


def _inspect(path: Path, name: str) -> Records:
    try:
        # Loaded when it is asked for: nothing else here needs it.
        from inspect_ai.log import read_eval_log
    except ImportError as error:
        raise ServiceError(
            f"{name} is a log of Inspect, and the package inspect-ai cannot be imported ({error}); run pip install "
            "inspect-ai, or give CSV."
        ) from error
    try:
        log = read_eval_log(str(path), resolve_attachments=True)
    except Exception as error:
        raise ServiceError(
            f"{name} cannot be read as a log of Inspect ({type(error).__name__}); export it again."
        ) from error
    return list(_samples(log))


def _samples(log: Any) -> Iterator[tuple[int, Any]]:
    for number, sample in enumerate(log.samples or (), 1):
        said = sample.input if isinstance(sample.input, str) else "\n".join(turn.text for turn in sample.input)
        scores = sample.scores or {}
        own = {
            "prompt": said,
            "output": sample.output.completion,
            **{name: score.value for name, score in scores.items()},
            "answer": next((score.answer for score in scores.values() if score.answer), None),
            "target": sample.target,
            "model": log.eval.model,
            "error": None if sample.error is None else f"is empty: {sample.error.message:.80}",
            "sample_id": sample.id,
        }
        yield without_controls(number, _beside(own, sample.metadata or {}))
