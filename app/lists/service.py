"""Reviewers' word lists: stored whole, never changed, and not deleted under what rests on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from app.shared.audits import FAMILY_NAMES
from app.shared.errors import ServiceError
from app.shared.files import FORMULA_STARTS, RowProblem, decode, read_bytes, read_table, to_csv, write_text
from app.shared.fingerprints import detector_parts
from app.shared.prompt_sets import RowError
from coft_core.assets import same_digests
from coft_core.text.user_list import UserList, UserTerm, folded, term_problem
from coft_core.types import FAMILIES
from db.batches import BatchesRepository
from db.calibrations import CalibrationsRepository
from db.jobs import UNFINISHED, JobsRepository
from db.records import JsonObject
from db.user_lists import UserListRecord, UserListsRepository, UserTermRecord


@dataclass(frozen=True, slots=True)
class ParsedUserList:
    """An uploaded word list after reading.

    Attributes:
        filename: Name of the file as uploaded.
        terms: Usable terms with their line numbers.
        errors: What is wrong with the other lines.
        total: Terms in the file.
        ignored_columns: Columns that are not known and were not read.
    """

    filename: str
    terms: tuple[tuple[int, UserTerm], ...]
    errors: tuple[RowError, ...]
    total: int
    ignored_columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UserListSummary:
    """A word list in a list of them.

    Attributes:
        id: Database id.
        name: Its name.
        digest: First 12 digits of the digest of its terms.
        terms: Number of its terms.
        created_at: When it was stored.
    """

    id: int
    name: str
    digest: str
    terms: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class UserListView:
    """A word list with its terms, in the order of the uploaded file."""

    summary: UserListSummary
    terms: tuple[UserTerm, ...]

    @property
    def masked(self) -> int:
        """Number of terms that are masked."""
        return sum(not term.keep for term in self.terms)

    @property
    def kept(self) -> int:
        """Number of terms that stay visible."""
        return len(self.terms) - self.masked


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


class UserListService:
    """Keeps word lists, and gives them to the detector."""

    def __init__(
        self,
        lists: UserListsRepository,
        calibrations: CalibrationsRepository,
        jobs: JobsRepository,
        batches: BatchesRepository,
        max_upload_bytes: int = 20_000_000,
    ) -> None:
        """Wire the service.

        Args:
            lists: The store of word lists.
            calibrations: Tells which lists calibrations rest on.
            jobs: Tells which lists unfinished jobs use.
            batches: Tells which lists batches use that can go on.
            max_upload_bytes: Largest file that is read.
        """
        self._lists = lists
        self._calibrations = calibrations
        self._jobs = jobs
        self._batches = batches
        self._max_upload_bytes = max_upload_bytes
        self._loaded: tuple[int, UserList] | None = None

    def parse(
        self, path: Path, filename: str | None = None, action: str = "mask", family: str = "other"
    ) -> ParsedUserList:
        """Read a CSV or TXT word list; problems of single lines are data, an unreadable file is an error.

        Args:
            path: The file.
            filename: Its name as uploaded.
            action: ``"mask"`` or ``"keep"``, for terms that name no action.
            family: Attribute family of terms that name none.
        """
        return parse_user_list(path, filename, action, family, self._max_upload_bytes)

    def add(self, name: str, parsed: ParsedUserList, replace: bool = False) -> UserListView:
        """Store a word list.

        Args:
            name: Its name.
            parsed: Its terms; all of its lines must be usable.
            replace: Whether a list of the same name goes; audits made with it keep what they show.

        Raises:
            ServiceError: A line cannot be used, the name is taken, or the list to be replaced is in use.
            InvalidInputError: The name is blank or too long.
        """
        if parsed.errors:
            first = parsed.errors[0]
            raise ServiceError(
                f"{len(parsed.errors)} of {parsed.total} terms in {parsed.filename} cannot be used, the first on line "
                f"{first.line} ({first.column}: {first.message}); correct them, nothing was stored."
            )
        chosen = UserList(name.strip(), tuple(term for _, term in parsed.terms))
        taken = self._lists.find(chosen.name)
        if taken is not None and not replace:
            raise ServiceError(f"There is a word list “{chosen.name}” already; choose another name, or replace it.")
        if taken is not None:
            self._require_unused(taken)
        terms = [UserTermRecord(term.term, term.family, term.keep) for term in chosen.terms]
        return self.view(self._lists.add(chosen.name, chosen.digest, terms, taken.id if taken else None).id)

    def list(self) -> tuple[UserListSummary, ...]:
        """All word lists in the order of their names."""
        return tuple(_summary(record) for record in self._lists.list())

    def view(self, user_list_id: int) -> UserListView:
        """A word list with its terms."""
        return UserListView(_summary(self._lists.get(user_list_id)), self._terms(user_list_id))

    def named(self, name: str) -> UserListView:
        """The word list of a name.

        Raises:
            ServiceError: There is none.
        """
        record = self._lists.find(name.strip())
        if record is None:
            known = ", ".join(f"“{item.name}”" for item in self._lists.list()) or "none yet"
            raise ServiceError(f"There is no word list “{name}”; the lists are: {known}.")
        return self.view(record.id)

    def csv(self, user_list_id: int) -> str:
        """A word list as CSV, which can be uploaded again."""
        return user_list_csv(self._terms(user_list_id))

    def write_csv(self, user_list_id: int, folder: Path) -> Path:
        """Write a word list into a folder, atomically, and return its path."""
        name = "".join(char if char.isalnum() else "-" for char in self._lists.get(user_list_id).name)
        return write_text(folder / f"word-list-{name}.csv", self.csv(user_list_id))

    def delete(self, user_list_id: int) -> None:
        """Delete a word list; audits made with it stay as they are, and can no longer be continued.

        Raises:
            ServiceError: A calibration, an unfinished job or a batch that can go on uses it.
        """
        self._require_unused(self._lists.get(user_list_id))
        self._lists.delete(user_list_id)

    def exists(self, user_list_id: int) -> bool:
        """Whether the list has not been deleted."""
        return any(record.id == user_list_id for record in self._lists.list())

    def load(self, user_list_id: int) -> UserList:
        """The list as the detector takes it.

        Raises:
            NotFoundError: It has been deleted.
        """
        record = self._lists.get(user_list_id)
        # A stored list never changes and its id is never given again, so the last one read can be kept.
        if self._loaded is None or self._loaded[0] != user_list_id:
            self._loaded = (user_list_id, UserList(record.name, self._terms(user_list_id)))
        return self._loaded[1]

    def _terms(self, user_list_id: int) -> tuple[UserTerm, ...]:
        return tuple(UserTerm(term.term, term.family, term.keep) for term in self._lists.terms(user_list_id))

    def _require_unused(self, record: UserListRecord) -> None:
        label = self.load(record.id).label
        for run in self._calibrations.list():
            if _names(str(run.fingerprint.get("detector", "")), label):
                raise ServiceError(
                    f"The calibration “{run.name}” was made with the word list “{record.name}” and would be of no use "
                    "without it; delete the calibration first, or keep the list."
                )
        for job in self._jobs.list(statuses=UNFINISHED):
            if _list_in(job.payload.get("request")) == record.id:
                raise ServiceError(
                    f"“{job.title}” uses the word list “{record.name}” and has not ended; wait until it has, or "
                    "cancel it."
                )
        for batch in self._batches.list():
            if _list_in(batch.request) == record.id and any(row.is_open for row in self._batches.rows(batch.id)):
                raise ServiceError(
                    f"The batch “{batch.name}” uses the word list “{record.name}” and has rows that are not finished; "
                    "run it to its end, delete the batch, or keep the list."
                )


def _list_in(request: JsonObject | None) -> int | None:
    """The word list that a stored request names, with its settings or beside them."""
    asked = request or {}
    named: int | None = {**(asked.get("settings") or {}), **asked}.get("user_list_id")
    return named


def _names(version: str, label: str) -> bool:
    """Whether a detector's version names a word list, whose digest earlier versions shortened."""
    parts = detector_parts(version)
    return parts is not None and same_digests(parts.user_list, label)


def _summary(record: UserListRecord) -> UserListSummary:
    return UserListSummary(record.id, record.name, record.digest, record.term_count, record.created_at)
