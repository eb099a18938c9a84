"""Reads lexicon files, CSV or JSONL, with errors that name the file, the line and the field."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from spacy.matcher import Matcher
from spacy.vocab import Vocab

from coft_core.errors import LexiconError
from coft_core.masking.context import ContextRules
from coft_core.masking.lexicon_records import FALSE_FRIEND, LexiconEntry, TokenPattern
from coft_core.types import FAMILIES

_FIELDS = ("term", "family", "detail", "source", "case", "match", "forms", "context")
_REQUIRED = ("term", "family")
_CASES = ("any", "capital", "exact")
_MATCHES = ("exact", "lemma")


def read_lexicon(path: Path, rules: ContextRules) -> Iterator[LexiconEntry | TokenPattern]:
    """Read one lexicon file.

    Args:
        path: A CSV file with a header, or a JSONL file with one object a line; UTF-8.
        rules: The rules that the ``context`` field may name.

    Yields:
        The file's entries and patterns.

    Raises:
        LexiconError: The file is missing or malformed; names the file, the line and the field.
    """
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".jsonl"):
        raise LexiconError(f"{path.name}: a lexicon must be a .csv or .jsonl file; rename or convert it.")
    lines = read_text(path)
    for line, record in _csv_records(path, lines) if suffix == ".csv" else _jsonl_records(path, lines):
        yield _parse_record(_Row(path, line, record), rules)


def read_text(path: Path) -> str:
    """Read a UTF-8 file.

    Args:
        path: The file.

    Returns:
        Its text, without a byte-order mark and with the line ends that it has.

    Raises:
        LexiconError: It cannot be read or is not UTF-8.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise LexiconError(f"{path}: the lexicon file cannot be read ({reason}); check the path.") from error
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise LexiconError(f"{path.name}, line {line}: the text is not UTF-8; save the file as UTF-8.") from error


def _csv_records(path: Path, text: str) -> Iterator[tuple[int, dict[str, str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        _check_fields(path, 1, header, _FIELDS)
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            if len(row) > len(header):
                raise LexiconError(
                    f"{path.name}, line {reader.line_num}, field {len(header) + 1}: the line has {len(row)} "
                    f"cells and the header {len(header)}; quote cells that hold a comma."
                )
            yield reader.line_num, dict(zip(header, row, strict=False))
    except csv.Error as error:
        raise LexiconError(f"{path.name}, line {reader.line_num}: not valid CSV ({error}).") from error


def _jsonl_records(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, content in enumerate(text.split("\n"), start=1):
        if not content.strip():
            continue
        try:
            record = json.loads(content)
        except json.JSONDecodeError as error:
            raise LexiconError(f"{path.name}, line {line}: not valid JSON ({error.msg}).") from error
        if not isinstance(record, dict):
            raise LexiconError(f"{path.name}, line {line}: expected a JSON object, one a line.")
        _check_fields(path, line, record, (*_FIELDS, "pattern"))
        yield line, record


def _check_fields(path: Path, line: int, names: Iterable[str], known: tuple[str, ...]) -> None:
    present = list(names)
    for name in present:
        if name not in known:
            raise LexiconError(
                f"{path.name}, line {line}, field {name!r}: unknown field; the fields are {', '.join(known)}."
            )
    for name in _REQUIRED:
        if name not in present and not (name == "term" and "pattern" in present):
            raise LexiconError(f"{path.name}, line {line}, field {name!r}: missing; add it.")


@dataclass(frozen=True, slots=True)
class _Row:
    """One record as read, with what an error must name."""

    path: Path
    line: int
    fields: Mapping[str, Any]

    def fail(self, name: str, problem: str) -> LexiconError:
        return LexiconError(f"{self.path.name}, line {self.line}, field {name!r}: {problem}.")

    def cell(self, name: str, default: str = "", allowed: tuple[str, ...] = ()) -> str:
        value = self.fields.get(name) or default
        if not isinstance(value, str):
            raise self.fail(name, f"expected text, found {type(value).__name__}")
        value = value.strip() or default
        if allowed and value not in allowed:
            raise self.fail(name, f"{value!r} is unknown; use one of {', '.join(allowed)}")
        return value

    def context(self, rules: ContextRules) -> tuple[str, ...]:
        names = tuple(self.cell("context").replace("|", " ").split())
        for name in names:
            if name not in rules.rules:
                raise self.fail("context", f"{name!r} is unknown; the rules are {', '.join(sorted(rules.rules))}")
        return names


def _parse_record(row: _Row, rules: ContextRules) -> LexiconEntry | TokenPattern:
    family = row.cell("family", allowed=(*FAMILIES, FALSE_FRIEND))
    detail, source, context = row.cell("detail"), row.cell("source", "curated"), row.context(rules)
    if "pattern" in row.fields:
        problem = _pattern_problem(row.fields["pattern"])
        if problem:
            raise row.fail("pattern", f"not a token pattern ({problem})")
        return TokenPattern(json.dumps(row.fields["pattern"]), family, detail, source, context)
    term = row.cell("term")
    if not any(char.isalnum() for char in term):
        raise row.fail("term", "empty; write the term")
    return LexiconEntry(
        term=term,
        family=family,
        detail=detail,
        source=source,
        case=cast("Literal['any', 'capital', 'exact']", row.cell("case", "any", _CASES)),
        match=cast("Literal['exact', 'lemma']", row.cell("match", "exact", _MATCHES)),
        forms=tuple(form.strip() for form in row.cell("forms").split("|") if form.strip()),
        context=context,
    )


def _pattern_problem(pattern: object) -> str:
    """What spaCy finds wrong with a token pattern, in one line; empty if nothing."""
    if not isinstance(pattern, list) or not pattern:
        return "expected a non-empty list of objects"
    try:
        Matcher(Vocab(), validate=True).add("pattern", [pattern])
    except (ValueError, TypeError, re.error) as error:
        return " ".join(str(error).split())
    return ""
