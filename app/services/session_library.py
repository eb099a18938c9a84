"""The library of sessions: finding, tagging, archiving, copying and exporting them, and pruning their branches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from app.services.audits import AuditService
from app.services.detection import Detectors
from app.services.errors import ServiceError
from app.services.known_policies import certifies
from app.services.mapping import settings_from_json, span_from
from app.services.reports import ReportService
from app.services.session_entries import entry_of, filter_of
from app.services.session_exports import write_reports
from app.services.views.audits import AuditSettings, AuditView, StartAudit
from app.services.views.library import (
    BulkExport,
    BulkResult,
    Duplicate,
    LibraryChoices,
    LibraryPage,
    LibraryQuery,
    PrunePreview,
)
from db.errors import NotFoundError
from db.repositories import LibraryRepository, SessionsRepository

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
