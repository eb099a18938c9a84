"""Word lists as files: CSV with a header, or plain text with one term a line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app.services.csv_files import FORMULA_STARTS, to_csv
from app.services.errors import ServiceError
from app.services.prompts.uploads import RowProblem, decode, read_bytes, read_table
from app.services.views import FAMILY_NAMES, ParsedUserList, RowError, UserTerm
from coft_core.masking.user_list import folded, term_problem
from coft_core.types import FAMILIES

COLUMNS = ("term", "family", "action")
ACTIONS = {"mask": False, "keep": True}
LARGEST = 20_000
"""Terms that one list may have."""

_FAMILIES = {**{name: key for key, name in FAMILY_NAMES.items()}, **{key: key for key in (*FAMILIES, "other")}}


def parse_user_list(
    path: Path,
    filename: str | None = None,
    action: str = "mask",
    family: str = "other",
    max_bytes: int = 20_000_000,
) -> ParsedUserList:
    """Read a word list.

    CSV has a header row with ``term`` and, if wanted, ``family`` and ``action`` (``mask`` or ``keep``); any other
    file has one term a line.

    Args:
        path: The file.
        filename: Its name as uploaded; its ending decides the format.
        action: What is done with terms that name no action.
        family: Attribute family of terms that name none.
        max_bytes: Largest file that is read.

    Returns:
        Usable terms, and what is wrong with the other lines.

    Raises:
        ServiceError: The file as a whole cannot be used: too large, not UTF-8, no header, no term, too many terms.
    """
    name = filename or path.name
    usual = _usual(action, family)
    text = decode(read_bytes(path, name, max_bytes), name)
    ignored: tuple[str, ...] = ()
    if Path(name).suffix.lower() in (".csv", ".tsv"):
        table = read_table(text, name, COLUMNS, required="term")
        ignored, records = table.ignored, table.records
    elif Path(name).suffix.lower() == ".txt":
        records = _lines(text)
    else:
        raise ServiceError(f"{name} is neither CSV nor plain text; save it as UTF-8 .csv or .txt.")
    return _collect(name, records, usual, ignored)


def user_list_csv(terms: tuple[UserTerm, ...]) -> str:
    """A word list as CSV that :func:`parse_user_list` reads back."""
    rows = [{"term": t.term, "family": t.family, "action": "keep" if t.keep else "mask"} for t in terms]
    return to_csv(COLUMNS, rows)


def _collect(
    name: str, records: Iterator[tuple[int, Any]], usual: UserTerm, ignored: tuple[str, ...]
) -> ParsedUserList:
    terms: list[tuple[int, UserTerm]] = []
    errors: list[RowError] = []
    seen: dict[str, int] = {}
    total = 0
    for line, record in records:
        total += 1
        if total > LARGEST:
            raise ServiceError(f"{name} has more than {LARGEST:,} terms; split it into several lists.")
        try:
            term = _term(record, usual)
            first = seen.setdefault(folded(term.term), line)
            if first != line:
                raise RowProblem("term", f"“{term.term}” is on line {first} already")
            terms.append((line, term))
        except RowProblem as problem:
            errors.append(RowError(line, problem.column, problem.message))
    if total == 0:
        raise ServiceError(f"{name} has no terms; put one on each line.")
    return ParsedUserList(name, tuple(terms), tuple(errors), total, ignored)


def _lines(text: str) -> Iterator[tuple[int, Any]]:
    for line, content in enumerate(text.split("\n"), start=1):
        if content.strip():
            yield line, {"term": content}


def _term(record: Any, usual: UserTerm) -> UserTerm:
    if isinstance(record, RowProblem):
        raise record
    cells = {column: (record.get(column) or "").strip() for column in COLUMNS}
    word = cells["term"]
    if word.startswith("'") and word[1:].startswith(FORMULA_STARTS):
        # The apostrophe is what an exported list puts before a cell that a spreadsheet would take for a formula.
        word = word[1:]
    family = _FAMILIES.get(cells["family"].lower() or usual.family)
    if family is None:
        raise RowProblem("family", f"“{cells['family']}” is not known; use {', '.join((*FAMILIES, 'other'))}")
    keep = ACTIONS.get(cells["action"].lower(), usual.keep if not cells["action"] else None)
    if keep is None:
        raise RowProblem("action", f"“{cells['action']}” is neither mask nor keep")
    term = UserTerm(word, family, keep)
    if problem := term_problem(term):
        raise RowProblem("term", problem)
    return term


def _usual(action: str, family: str) -> UserTerm:
    """What a term is that says neither family nor action."""
    if action not in ACTIONS:
        raise ServiceError(f"There is no action {action!r}; choose 'mask' or 'keep'.")
    if family not in (*FAMILIES, "other"):
        raise ServiceError(f"There is no family {family!r}; use {', '.join((*FAMILIES, 'other'))}.")
    return UserTerm("", family, ACTIONS[action])
