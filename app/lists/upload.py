"""Word lists as files: read with what is wrong line by line, and written so that they can be read back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.prompts.sets import RowError
from app.shared.audits import FAMILY_NAMES
from app.shared.errors import ServiceError
from app.shared.files import FORMULA_STARTS, RowProblem, decode, read_bytes, read_csv, to_csv, without_controls
from coft_core.text.user_list import folded, term_problem
from coft_core.types import FAMILIES, UserTerm

COLUMNS = ("term", "family", "action")
ACTIONS = {"mask": False, "keep": True}
LARGEST = 20_000
"""Terms that one list may have."""
LARGEST_FILE = 20_000_000
"""Bytes of the largest file that is read, unless another limit is set."""

_KEYS = (*FAMILIES, "other")
_FAMILIES = {name: key for key, name in FAMILY_NAMES.items()} | {key: key for key in _KEYS}


@dataclass(frozen=True, slots=True)
class ParsedUserList:
    """An uploaded word list after reading."""

    filename: str
    terms: tuple[tuple[int, UserTerm], ...]
    errors: tuple[RowError, ...]
    total: int
    ignored_columns: tuple[str, ...] = ()


def parse_user_list(
    path: Path, filename: str | None = None, action: str = "mask", family: str = "other", max_bytes: int = LARGEST_FILE
) -> ParsedUserList:
    """Read a word list.

    CSV has a header row with ``term`` and, if wanted, ``family`` and ``action`` (``mask`` or ``keep``); any other
    file has one term a line.
    """
    name = filename or path.name
    if action not in ACTIONS:
        raise ServiceError(f"There is no action {action!r}; choose 'mask' or 'keep'.")
    if family not in _KEYS:
        raise ServiceError(f"There is no family {family!r}; use {', '.join(_KEYS)}.")
    text = decode(read_bytes(path, name, max_bytes), name)
    ignored: tuple[str, ...] = ()
    records: Iterator[tuple[int, Any]]
    if Path(name).suffix.lower() in (".csv", ".tsv"):
        table = read_csv(text, name, COLUMNS, required="term")
        ignored, records = table.ignored, table.records
    elif Path(name).suffix.lower() == ".txt":
        lines_in = enumerate(text.split("\n"), start=1)
        records = (without_controls(n, {"term": content}) for n, content in lines_in if content.strip())
    else:
        raise ServiceError(f"{name} is neither CSV nor plain text; save it as UTF-8 .csv or .txt.")
    terms: list[tuple[int, UserTerm]] = []
    errors: list[RowError] = []
    lines: dict[str, int] = {}
    total = 0
    for total, (line, record) in enumerate(records, start=1):
        if total > LARGEST:
            raise ServiceError(f"{name} has more than {LARGEST:,} terms; split it into several lists.")
        try:
            term = _term(record, family, ACTIONS[action])
            first = lines.setdefault(folded(term.term), line)
            if first != line:
                raise RowProblem("term", f"“{term.term}” is on line {first} already")
            terms.append((line, term))
        except RowProblem as problem:
            errors.append(RowError(line, problem.column, problem.message))
    if total == 0:
        raise ServiceError(f"{name} has no terms; put one on each line.")
    return ParsedUserList(name, tuple(terms), tuple(errors), total, ignored)


def user_list_csv(terms: Sequence[UserTerm]) -> str:
    """A word list as CSV that :func:`parse_user_list` reads back."""
    rows = [{"term": t.term, "family": t.family, "action": "keep" if t.keep else "mask"} for t in terms]
    return to_csv(COLUMNS, rows)


def _term(record: Any, usual_family: str, usual_keep: bool) -> UserTerm:
    if isinstance(record, RowProblem):
        raise record
    word, family_name, action = ((record.get(column) or "").strip() for column in COLUMNS)
    if word.startswith("'") and word[1:].startswith(FORMULA_STARTS):
        # The apostrophe is what an exported list puts before a cell that a spreadsheet would take for a formula.
        word = word[1:]
    family = _FAMILIES.get(family_name.lower() or usual_family)
    if family is None:
        raise RowProblem("family", f"“{family_name}” is not known; use {', '.join(_KEYS)}")
    keep = ACTIONS.get(action.lower()) if action else usual_keep
    if keep is None:
        raise RowProblem("action", f"“{action}” is neither mask nor keep")
    term = UserTerm(word, family, keep)
    if problem := term_problem(term):
        raise RowProblem("term", problem)
    return term
