"""The library of sessions: finding, tagging, archiving, copying and exporting them, and pruning their branches."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Literal

from app.audit.service import AuditService
from app.report.tables import ReportService
from app.shared.audits import AuditSettings, AuditView, StartAudit
from app.shared.errors import ServiceError
from app.shared.files import to_csv
from app.shared.mapping import settings_from_json, span_from
from app.shared.planning import Detectors
from app.shared.policies import certifies
from db.library import LibraryRepository, SessionEntryRecord, SessionFilter
from db.sessions import SessionsRepository
from db.types import NotFoundError

LibraryOrder = Literal["updated", "created", "name", "prompt", "model", "policy", "certificate", "steps"]
"""What the library is sorted by."""

CertificateState = Literal["certified", "mismatch", "uncertified"]
"""Certified; uncertified since the calibration belongs to another policy; uncertified for any reason."""


@dataclass(frozen=True, slots=True)
class LibraryQuery:
    """A page of sessions; what is None or empty does not matter.

    Attributes:
        text: Text in the name, prompt, a tag, or the note or tag of an entry of the verdict log, in any letter case.
        policy: Policy.
        model: Model.
        certificate: Certification status.
        tag: A tag, in any letter case.
        archived: Archived sessions only (True), the others only (False), or all.
        judged: Whether a verdict on anything of the session stands.
        since: First day of the last change, in UTC.
        until: Last day of it, inclusive.
        batch_id: The batch that it belongs to.
        order: What the rows are sorted by.
        descending: The largest or latest first.
        page: Page, counting from 1.
        page_size: Rows of a page, 1 to 500.
    """

    text: str = ""
    policy: str | None = None
    model: str | None = None
    certificate: CertificateState | None = None
    tag: str | None = None
    archived: bool | None = False
    judged: bool | None = None
    since: date | None = None
    until: date | None = None
    batch_id: int | None = None
    order: LibraryOrder = "updated"
    descending: bool = True
    page: int = 1
    page_size: int = 50


@dataclass(frozen=True, slots=True)
class LibraryEntry:
    """A session in the library.

    Attributes:
        id: Its id.
        name: Its name.
        prompt: Its prompt.
        model: Its model.
        policy: Its policy.
        certificate: What may be claimed of it.
        steps: Length of the active branch's chain.
        branches: Number of its branches.
        created_at: Start.
        updated_at: Last change.
        archived: Whether it is archived.
        batch_id: The batch that it belongs to; None for none.
        verdicts: Tokens, spans, branches and sessions on which a verdict stands.
        tags: Its tags, sorted.
    """

    id: int
    name: str
    prompt: str
    model: str
    policy: str
    certificate: str
    steps: int
    branches: int
    created_at: datetime
    updated_at: datetime
    archived: bool
    batch_id: int | None
    verdicts: int
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LibraryPage:
    """One page of the library.

    Attributes:
        entries: Its sessions.
        total: Sessions that the query finds.
        page: The page that is shown; the last one where the query asks for a later one.
        pages: Number of pages, at least 1.
    """

    entries: tuple[LibraryEntry, ...]
    total: int
    page: int
    pages: int


@dataclass(frozen=True, slots=True)
class LibraryChoices:
    """What the filters can be set to; each with its number of sessions, archived ones included."""

    policies: tuple[tuple[str, int], ...]
    models: tuple[tuple[str, int], ...]
    tags: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class BulkResult:
    """What an action on many sessions did.

    Attributes:
        action: ``tagged``, ``untagged``, ``archived``, ``unarchived`` or ``deleted``.
        asked: Sessions that were named, each counted once.
        changed: Sessions that are different now, or gone.
        missing: Sessions that did not exist any more.
    """

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
        parts = [f"{_sessions(self.changed)} {self.action}"]
        if self.unchanged:
            parts.append(f"{self.unchanged} {'was' if self.unchanged == 1 else 'were'} so already")
        if self.missing:
            parts.append(f"{self.missing} no longer {'exists' if self.missing == 1 else 'exist'}")
        return "; ".join(parts) + "."


@dataclass(frozen=True, slots=True)
class BulkExport:
    """Reports of many sessions in one archive.

    Attributes:
        path: The ZIP file: one CSV report a session, and an index of them.
        sessions: Sessions in it.
        missing: Sessions that did not exist any more.
    """

    path: Path
    sessions: int
    missing: int


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A request that begins a session like a stored one.

    Attributes:
        request: The request; settings and name can be changed before it is started.
        notes: What the stored session had and the request cannot have, one sentence each.
    """

    request: StartAudit
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PrunePreview:
    """What pruning a branch would do.

    Attributes:
        branches: Names of the branches that would go: the branch itself, then those that depart from it.
        steps: Steps that would go with them.
        verdicts: Entries of the verdict log that speak of them.
        refusal: Why the branch cannot be pruned, one sentence; empty if it can.
    """

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
        plural = "1 branch that departs" if others == 1 else f"{others} branches that depart"
        along = f" and {plural} from it" if others else ""
        return f"“{self.branches[0]}”{along} will be deleted with {_steps(self.steps)}; this cannot be undone."


def _sessions(count: int) -> str:
    return "1 session" if count == 1 else f"{count} sessions"


def _steps(count: int) -> str:
    return "1 step of its own" if count == 1 else f"{count} steps of their own"


def filter_of(query: LibraryQuery) -> SessionFilter:
    """What the store looks for.

    Raises:
        ServiceError: The days are in the wrong order.
    """
    if query.since is not None and query.until is not None and query.until < query.since:
        raise ServiceError(f"The days run from {query.since} to {query.until}; give the earlier one first.")
    return SessionFilter(
        text=query.text,
        policy=query.policy,
        model=query.model,
        certificate=query.certificate,
        tag=query.tag,
        archived=query.archived,
        judged=query.judged,
        since=None if query.since is None else _midnight(query.since),
        before=None if query.until is None else _midnight(query.until) + timedelta(days=1),
        batch_id=query.batch_id,
    )


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def entry_of(record: SessionEntryRecord) -> LibraryEntry:
    """A session as the library lists it."""
    return LibraryEntry(
        id=record.id,
        name=record.name,
        prompt=record.prompt,
        model=record.model,
        policy=record.policy,
        certificate=record.certificate,
        steps=record.step_count,
        branches=record.branch_count,
        created_at=record.created_at,
        updated_at=record.updated_at,
        archived=record.archived_at is not None,
        batch_id=record.batch_id,
        verdicts=record.verdict_count,
        tags=record.tags,
    )


INDEX = "sessions.csv"
COLUMNS = (
    "session_id", "file", "name", "prompt", "model", "policy", "certificate", "steps", "branches", "verdicts", "tags",
    "archived", "batch_id", "created_at", "updated_at",
)  # fmt: skip


def write_reports(
    entries: Sequence[SessionEntryRecord], reports: ReportService, folder: Path, asked: int
) -> BulkExport:
    """Write the CSV report of each session and an index of all, so that the file is either whole or not there.

    Args:
        entries: The sessions, at least one.
        reports: Writes the reports.
        folder: Where the file goes.
        asked: How many sessions were asked for; those that are gone are counted as missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"coft-audit-{len(entries)}-sessions.zip"
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w") as archive:
            written = _write(archive, entries, reports)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return BulkExport(path, written, asked - written)


def _write(archive: zipfile.ZipFile, entries: Sequence[SessionEntryRecord], reports: ReportService) -> int:
    rows = []
    for entry in entries:
        name = f"coft-audit-session-{entry.id}.csv"
        try:
            report = reports.csv(entry.id)
        except NotFoundError:
            # deleted since it was listed; counted as missing
            continue
        _add(archive, name, report, entry.updated_at)
        rows.append(_index_row(entry, name))
    _add(archive, INDEX, to_csv(COLUMNS, rows), max(entry.updated_at for entry in entries))
    return len(rows)


def _add(archive: zipfile.ZipFile, name: str, text: str, changed: datetime) -> None:
    # The time is the session's own, so that the same sessions give the same file.
    member = zipfile.ZipInfo(name, changed.timetuple()[:6])
    member.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(member, text.encode("utf-8", errors="replace"))


def _index_row(entry: SessionEntryRecord, file: str) -> dict[str, object]:
    return {
        "session_id": entry.id,
        "file": file,
        "name": entry.name,
        "prompt": entry.prompt,
        "model": entry.model,
        "policy": entry.policy,
        "certificate": entry.certificate,
        "steps": entry.step_count,
        "branches": entry.branch_count,
        "verdicts": entry.verdict_count,
        "tags": "; ".join(entry.tags),
        "archived": entry.archived_at is not None,
        "batch_id": entry.batch_id,
        "created_at": entry.created_at.isoformat(),
        "updated_at": entry.updated_at.isoformat(),
    }


LARGEST_PAGE = 500
LONGEST_NAME = 200
LONGEST_TAG = 60


class SessionLibrary:
    """Orders past sessions; what a session says is never changed."""

    def __init__(
        self,
        library: LibraryRepository,
        sessions: SessionsRepository,
        audits: AuditService,
        reports: ReportService,
        detectors: Detectors,
    ) -> None:
        """Wire the service.

        Args:
            library: Finds and orders sessions.
            sessions: The store of sessions.
            audits: Starts, deletes and prunes them, and knows which are running.
            reports: Writes what is exported.
            detectors: Knows which word lists are still there.
        """
        self._library = library
        self._sessions = sessions
        self._audits = audits
        self._reports = reports
        self._detectors = detectors

    def search(self, query: LibraryQuery) -> LibraryPage:
        """A page of the sessions that a query finds; the last page where it asks for a later one.

        Raises:
            ServiceError: The page or its size is no usable number, or the days are in the wrong order.
        """
        if query.page < 1 or not 1 <= query.page_size <= LARGEST_PAGE:
            raise ServiceError(
                f"Page {query.page} of {query.page_size} rows cannot be shown; count pages from 1 and show 1 to "
                f"{LARGEST_PAGE} rows."
            )
        wanted = filter_of(query)
        total = self._library.count(wanted)
        pages = max(1, -(-total // query.page_size))
        page = min(query.page, pages)
        found = self._library.search(
            wanted, query.order, query.descending, query.page_size, (page - 1) * query.page_size
        )
        return LibraryPage(tuple(entry_of(record) for record in found), total, page, pages)

    def ids(self, query: LibraryQuery) -> tuple[int, ...]:
        """Ids of all sessions that a query finds, on whatever page, oldest first; for actions on all of them."""
        return tuple(self._library.ids(filter_of(query)))

    def choices(self) -> LibraryChoices:
        """What the filters can be set to."""
        found = self._library.choices()
        return LibraryChoices(found.policies, found.models, found.tags)

    def rename(self, session_id: int, name: str) -> None:
        """Change a session's name.

        Raises:
            ServiceError: The name is empty or too long.
            NotFoundError: There is no such session.
        """
        self._sessions.rename(session_id, _name(name, "session"))

    def tag(self, session_ids: Sequence[int], tag: str) -> BulkResult:
        """Give sessions a tag; one that differs from a known tag in letter case only takes its spelling.

        Raises:
            ServiceError: The tag is empty or too long.
        """
        cleaned = _cleaned(tag)
        if not cleaned or len(cleaned) > LONGEST_TAG:
            raise ServiceError(f"A tag has 1 to {LONGEST_TAG} characters; write a shorter one, or none.")
        asked, there = self._existing(session_ids)
        return BulkResult("tagged", len(asked), self._library.add_tag(there, cleaned), len(asked) - len(there))

    def untag(self, session_ids: Sequence[int], tag: str) -> BulkResult:
        """Take a tag from sessions."""
        asked, there = self._existing(session_ids)
        changed = self._library.remove_tag(there, _cleaned(tag))
        return BulkResult("untagged", len(asked), changed, len(asked) - len(there))

    def archive(self, session_ids: Sequence[int], archived: bool = True) -> BulkResult:
        """Put sessions out of the way, or take them back; they stay as they are and can be opened by their link."""
        asked, there = self._existing(session_ids)
        changed = self._library.set_archived(there, archived)
        action = "archived" if archived else "unarchived"
        return BulkResult(action, len(asked), changed, len(asked) - len(there))

    def delete(self, session_ids: Sequence[int]) -> BulkResult:
        """Delete sessions with everything that belongs to them, running ones included; this cannot be undone."""
        asked = list(dict.fromkeys(session_ids))
        deleted = 0
        for session_id in asked:
            try:
                self._audits.delete(session_id)
            except NotFoundError:
                continue
            deleted += 1
        return BulkResult("deleted", len(asked), deleted, len(asked) - deleted)

    def prefill(self, session_id: int) -> Duplicate:
        """A request that begins a session with the prompt, spans and settings of a stored one; needs no model.

        Raises:
            NotFoundError: There is no such session.
        """
        record = self._sessions.get(session_id)
        settings, notes = settings_from_json(record.policy_settings["settings"]), []
        if settings.calibration_id is not None and certifies(settings) and record.calibration_id is None:
            settings = replace(settings, calibration_id=None, group=None)
            notes.append(f"The calibration “{record.calibration_label}” has been deleted; choose another one, or none.")
        if self._detectors.list_is_gone(settings):
            settings = replace(settings, user_list_id=None)
            listed = record.policy_settings.get("user_list", "")
            notes.append(f"The word list “{listed}” has been deleted or replaced; choose another one, or none.")
        name = f"Copy of {record.name}"[:LONGEST_NAME]
        spans = tuple(span_from(span) for span in record.spans)
        return Duplicate(StartAudit(record.prompt, settings, spans, name), tuple(notes))

    def duplicate(self, session_id: int, settings: AuditSettings | None = None, name: str | None = None) -> AuditView:
        """Begin a session with the prompt and spans of a stored one.

        Args:
            session_id: The stored session.
            settings: Settings of the new one; None takes those of the stored one.
            name: Its name; None makes one.

        Raises:
            ServiceError: The stored settings name a calibration or word list that is gone.
            CoftError: The settings cannot be used.
            NotFoundError: There is no such session.
        """
        made = self.prefill(session_id)
        if settings is None and made.notes:
            raise ServiceError(made.notes[0])
        request = replace(made.request, settings=settings or made.request.settings)
        return self._audits.start(request if name is None else replace(request, name=_name(name, "session")))

    def export(self, session_ids: Sequence[int], folder: Path) -> BulkExport:
        """Write the CSV reports of sessions and an index of them into one ZIP file, atomically.

        Raises:
            ServiceError: None of the sessions exists.
        """
        asked, there = self._existing(session_ids)
        if not there:
            raise ServiceError("No session is chosen, so there is nothing to export; choose at least one.")
        return write_reports(self._library.entries(there), self._reports, folder, len(asked))

    def rename_branch(self, session_id: int, branch_id: int, name: str) -> None:
        """Change a branch's name.

        Raises:
            ServiceError: The name is empty or too long.
            StoreError: There is no such branch in this session.
        """
        self._library.rename_branch(session_id, branch_id, _name(name, "branch"))

    def prune_preview(self, session_id: int, branch_id: int) -> PrunePreview:
        """What pruning a branch would take along, or why it cannot be pruned.

        Raises:
            StoreError: There is no such branch in this session.
        """
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
        """Delete a branch and all that depart from it.

        Returns:
            The session; if its shown branch was deleted, the parent of the pruned branch is shown.

        Raises:
            ServiceError: It is the main branch, the session is running, or the verdict log speaks of it.
            StoreError: There is no such branch in this session.
        """
        preview = self.prune_preview(session_id, branch_id)
        if not preview.allowed:
            raise ServiceError(preview.refusal)
        with self._audits.resting(session_id) as rollouts:
            rollouts.drop(set(self._library.prune(session_id, branch_id).branch_ids))
        return self._audits.view(session_id)

    def _existing(self, session_ids: Sequence[int]) -> tuple[list[int], list[int]]:
        """The ids without repetitions, and those of them that are stored."""
        asked = list(dict.fromkeys(session_ids))
        return asked, [entry.id for entry in self._library.entries(asked)]


def _cleaned(text: str) -> str:
    return " ".join(text.split())


def _name(name: str, what: str) -> str:
    cleaned = _cleaned(name)
    if not cleaned or len(cleaned) > LONGEST_NAME:
        raise ServiceError(f"The name of a {what} has 1 to {LONGEST_NAME} characters; write a shorter one, or any.")
    return cleaned
