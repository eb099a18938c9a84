"""The library of sessions: finding, tagging, archiving, copying and exporting them, and pruning their branches."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from heapq import merge
from pathlib import Path

from app.audit.service import AuditService
from app.report.service import ReportService
from app.shared.audits import SENSITIVE, AuditView, StartAudit, settings_from_json
from app.shared.errors import ServiceError
from app.shared.files import to_csv, write_bytes
from app.shared.format import plural
from app.shared.planning import Detectors
from app.shared.policies import certifies
from app.shared.wiring import Services
from db.library import (
    BatchFoldRecord,
    LibraryChoicesRecord,
    LibraryRepository,
    SessionEntryRecord,
    SessionFilter,
    SessionOrder,
)
from db.sessions import SessionsRepository
from db.types import NotFoundError

INDEX = "sessions.csv"
INDEX_COLUMNS = (
    "session_id", "file", "name", "prompt", "model", "policy", "certificate", "steps", "branches", "verdicts", "tags",
    "archived", "batch_id", "created_at", "updated_at",
)  # fmt: skip
LARGEST_PAGE = 500
OPENED = 100
"""Sessions of an opened batch that are shown among the others."""
LONGEST_NAME = 200
LONGEST_TAG = 60


@dataclass(frozen=True, slots=True)
class LibraryQuery(SessionFilter):
    """A page of the sessions that are wanted."""

    order: SessionOrder = "updated"
    descending: bool = True
    page: int = 1
    page_size: int = 50


@dataclass(frozen=True, slots=True)
class LibraryPage:
    """One page of the library."""

    entries: tuple[SessionEntryRecord, ...]
    total: int
    page: int
    pages: int


@dataclass(frozen=True, slots=True)
class BatchFold:
    """The sessions of a batch as one row of the library."""

    counted: BatchFoldRecord
    entries: tuple[SessionEntryRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """A long run of another kind than an audit; it has no time while it goes on."""

    kind: str
    name: str
    address: str
    state: str
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class FoldedPage:
    """One page of the library, runs among the sessions, with a row for each batch."""

    rows: tuple[SessionEntryRecord | BatchFold | Run, ...]
    total: int
    row_total: int
    page: int
    pages: int


@dataclass(frozen=True, slots=True)
class BulkResult:
    """What an action on many sessions did."""

    action: str
    asked: int
    changed: int
    missing: int

    @property
    def unchanged(self) -> int:
        """Sessions that were so already."""
        return self.asked - self.changed - self.missing

    @property
    def sentence(self) -> str:
        """The counts in words."""
        parts = [f"{plural(self.changed, 'session')} {self.action}"]
        if self.unchanged:
            parts.append(f"{self.unchanged} {'was' if self.unchanged == 1 else 'were'} so already")
        if self.missing:
            parts.append(f"{self.missing} no longer {'exists' if self.missing == 1 else 'exist'}")
        return "; ".join(parts) + "."


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A request that begins a session like a stored one."""

    request: StartAudit
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PrunePreview:
    """What pruning a branch would do."""

    branches: tuple[str, ...]
    steps: int
    verdicts: int
    refusal: str

    @property
    def allowed(self) -> bool:
        """Whether the branch can be pruned now."""
        return not self.refusal

    @property
    def sentence(self) -> str:
        """What would happen, in words."""
        if self.refusal:
            return self.refusal
        others = len(self.branches) - 1
        departing = "1 branch that departs" if others == 1 else f"{others} branches that depart"
        along = f" and {departing} from it" if others else ""
        whose = "its own" if self.steps == 1 else "their own"
        steps = f"{plural(self.steps, 'step')} of {whose}"
        return f"“{self.branches[0]}”{along} will be deleted with {steps}; this cannot be undone."


@dataclass(frozen=True, slots=True)
class BulkExport:
    """Reports of many sessions in one archive."""

    path: Path
    sessions: int
    missing: int


class SessionLibrary:
    """Orders past sessions; what a session says is never changed."""

    def __init__(self, services: Services) -> None:
        self._library = services[LibraryRepository]
        self._sessions = services[SessionsRepository]
        self._audits = services[AuditService]
        self._reports = services[ReportService]
        self._detectors = services[Detectors]

    def search(self, query: LibraryQuery) -> LibraryPage:
        """A page of the sessions that a query finds; the last page where it asks for a later one."""
        total, size = self._library.count(query), query.page_size
        page, pages = _place(query, total)
        entries = self._library.search(query, query.order, query.descending, size, (page - 1) * size)
        return LibraryPage(tuple(entries), total, page, pages)

    def folded(self, query: LibraryQuery, opened: Collection[int] = (), runs: Sequence[Run] = ()) -> FoldedPage:
        """A page of what a query finds; a batch is one row, unless the query asks for that batch.

        Runs, which come newest first, have their place by time, and are the last ones in any other order.
        """
        if query.batch_id is not None:
            found = self.search(query)
            return FoldedPage(found.entries, found.total, found.total, found.page, found.pages)
        row_total, size = self._library.folded_count(query) + len(runs), query.page_size
        page, pages = _place(query, row_total)
        order, down = query.order, query.descending
        # No more than all runs can lie between the first row that is read and the first that is shown.
        start = (page - 1) * size
        before = max(0, start - len(runs))
        read = self._library.folded(query, order, down, start + size - before, before, SENSITIVE)
        rows = [*read, *runs]
        if order == "updated":
            placed = runs if down else runs[::-1]
            rows = list(merge(read, placed, key=lambda row: row.updated_at, reverse=down))
        rows = rows[start - before :][:size]

        def inside(batch: int) -> tuple[SessionEntryRecord, ...]:
            if batch not in opened:
                return ()
            return tuple(self._library.search(replace(query, batch_id=batch), order, down, OPENED))

        shown = (BatchFold(row, inside(row.id)) if isinstance(row, BatchFoldRecord) else row for row in rows)
        return FoldedPage(tuple(shown), self._library.count(query), row_total, page, pages)

    def findings(self, page: FoldedPage) -> dict[int, str]:
        """What each session of a page found, in one short sentence by its number."""
        folded = [row.entries if isinstance(row, BatchFold) else (row,) for row in page.rows]
        sessions = [row for rows in folded for row in rows if isinstance(row, SessionEntryRecord)]
        return {entry.id: self._audits.finding(entry.id) for entry in sessions}

    def ids(self, query: LibraryQuery) -> tuple[int, ...]:
        """Ids of all sessions that a query finds, on whatever page, oldest first; for actions on all of them."""
        return tuple(self._library.ids(query))

    def choices(self) -> LibraryChoicesRecord:
        """What the filters can be set to."""
        return self._library.choices()

    def rename(self, session_id: int, name: str) -> None:
        """Change a session's name."""
        self._sessions.rename(session_id, _name(name, "session"))

    def tag(self, session_ids: Sequence[int], tag: str) -> BulkResult:
        """Give sessions a tag; one that differs from a known tag in letter case only takes its spelling."""
        label = _cleaned(tag)
        if not label or len(label) > LONGEST_TAG:
            raise ServiceError(f"A tag has 1 to {LONGEST_TAG} characters; write a shorter one, or none.")
        return self._bulk("tagged", session_ids, lambda stored: self._library.add_tag(stored, label))

    def untag(self, session_ids: Sequence[int], tag: str) -> BulkResult:
        """Take a tag from sessions."""
        return self._bulk("untagged", session_ids, lambda stored: self._library.remove_tag(stored, _cleaned(tag)))

    def archive(self, session_ids: Sequence[int], archived: bool = True) -> BulkResult:
        """Put sessions out of the way, or take them back; they stay as they are and can be opened by their link."""
        action = "archived" if archived else "unarchived"
        return self._bulk(action, session_ids, lambda stored: self._library.set_archived(stored, archived))

    def delete(self, session_ids: Sequence[int]) -> BulkResult:
        """Delete sessions with everything that belongs to them, running ones included; this cannot be undone."""
        named = dict.fromkeys(session_ids)
        deleted = sum(map(self._delete, named))
        return BulkResult("deleted", len(named), deleted, len(named) - deleted)

    def prefill(self, session_id: int) -> Duplicate:
        """A request that begins a session with the prompt, spans and settings of a stored one; needs no model."""
        record = self._sessions.get(session_id)
        settings, notes = settings_from_json(record.policy_settings["settings"]), []
        if settings.calibration_id is not None and certifies(settings) and record.calibration_id is None:
            settings = replace(settings, calibration_id=None, group=None)
            notes.append(f"The calibration “{record.calibration_label}” has been deleted; choose another one, or none.")
        if self._detectors.list_is_gone(settings):
            settings = replace(settings, user_list_id=None)
            user_list = record.policy_settings.get("user_list", "")
            notes.append(f"The word list “{user_list}” has been deleted or replaced; choose another one, or none.")
        spans = record.spans
        name = f"Copy of {record.name}"[:LONGEST_NAME]
        return Duplicate(StartAudit(record.prompt, settings, spans, name), tuple(notes))

    def export(self, session_ids: Sequence[int], folder: Path) -> BulkExport:
        """Write the CSV reports of sessions and an index of them into one ZIP file, atomically."""
        named = set(session_ids)
        entries = self._library.entries(named)
        if not entries:
            raise ServiceError("No session is chosen, so there is nothing to export; choose at least one.")
        return _write_reports(entries, self._reports, folder, len(named))

    def rename_branch(self, session_id: int, branch_id: int, name: str) -> None:
        """Change a branch's name."""
        self._library.rename_branch(session_id, branch_id, _name(name, "branch"))

    def prune_preview(self, session_id: int, branch_id: int) -> PrunePreview:
        """What pruning a branch would take along, or why it cannot be pruned."""
        extent = self._library.extent(session_id, branch_id)
        refusal = ""
        if self._sessions.branch(branch_id).parent_id is None:
            refusal = "The main branch cannot be pruned; delete the session instead."
        elif self._audits.running(session_id):
            refusal = "This session is running; pause it, then prune the branch."
        elif extent.verdicts:
            entries = "1 entry" if extent.verdicts == 1 else f"{extent.verdicts} entries"
            refusal = (
                f"The verdict log has {entries} on this branch or on branches that depart from it, and nothing can be "
                "taken out of the log; delete the whole session, or prune another branch."
            )
        return PrunePreview(extent.names, extent.steps, extent.verdicts, refusal)

    def prune(self, session_id: int, branch_id: int) -> AuditView:
        """Delete a branch and all that depart from it."""
        preview = self.prune_preview(session_id, branch_id)
        if not preview.allowed:
            raise ServiceError(preview.refusal)
        with self._audits.resting(session_id) as rollouts:
            rollouts.drop(set(self._library.prune(session_id, branch_id).branch_ids))
        return self._audits.view(session_id)

    def _bulk(self, action: str, session_ids: Sequence[int], change: Callable[[list[int]], int]) -> BulkResult:
        """Change those of the sessions that are stored; ``change`` returns how many are different now."""
        named = list(dict.fromkeys(session_ids))
        stored = [entry.id for entry in self._library.entries(named)]
        return BulkResult(action, len(named), change(stored), len(named) - len(stored))

    def _delete(self, session_id: int) -> bool:
        try:
            self._audits.delete(session_id)
        except NotFoundError:
            return False
        return True


def _place(query: LibraryQuery, total: int) -> tuple[int, int]:
    """Which page of so many rows is shown, and how many there are."""
    if query.page < 1 or not 1 <= query.page_size <= LARGEST_PAGE:
        raise ServiceError(
            f"Page {query.page} of {query.page_size} rows cannot be shown; count pages from 1 and show 1 to "
            f"{LARGEST_PAGE} rows."
        )
    pages = max(1, -(-total // query.page_size))
    return min(query.page, pages), pages


def _cleaned(text: str) -> str:
    return " ".join(text.split())


def _name(name: str, what: str) -> str:
    cleaned = _cleaned(name)
    if not cleaned or len(cleaned) > LONGEST_NAME:
        raise ServiceError(f"The name of a {what} has 1 to {LONGEST_NAME} characters; write a shorter one, or any.")
    return cleaned


def _write_reports(
    entries: Sequence[SessionEntryRecord], reports: ReportService, folder: Path, named: int
) -> BulkExport:
    """Write the archive of reports with an index of all, so that the file is either whole or not there."""
    rows = []
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for entry in entries:
            file = f"coft-audit-session-{entry.id}.csv"
            try:
                report = reports.csv(entry.id)
            except NotFoundError:  # deleted since it was listed
                continue
            _add(archive, file, report, entry.updated_at)
            rows.append(_index_row(entry, file))
        _add(archive, INDEX, to_csv(INDEX_COLUMNS, rows), max(entry.updated_at for entry in entries))
    path = write_bytes(folder / f"coft-audit-{len(entries)}-sessions.zip", buffer.getvalue())
    return BulkExport(path, len(rows), named - len(rows))


def _add(archive: zipfile.ZipFile, name: str, text: str, changed: datetime) -> None:
    # The time is the session's own, so that the same sessions give the same file.
    member = zipfile.ZipInfo(name, changed.timetuple()[:6])
    member.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(member, text.encode("utf-8", errors="replace"))


def _index_row(entry: SessionEntryRecord, file: str) -> dict[str, object]:
    return {
        **asdict(entry),
        "session_id": entry.id,
        "file": file,
        "steps": entry.step_count,
        "branches": entry.branch_count,
        "verdicts": entry.verdict_count,
        "tags": "; ".join(entry.tags),
        "archived": entry.archived_at is not None,
        "created_at": entry.created_at.isoformat(),
        "updated_at": entry.updated_at.isoformat(),
    }
