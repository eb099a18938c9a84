"""Reviewers' word lists: stored whole, never changed, and not deleted under what rests on them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from app.hosting.limits import DiskRoom
from app.lists.upload import ParsedUserList, parse_user_list, user_list_csv
from app.shared.errors import ServiceError
from app.shared.files import write_text
from app.shared.planning import detector_parts, named_list, stored_list
from app.shared.wiring import Services
from coft_core.fingerprint import same_digests
from coft_core.text.user_list import UserList
from coft_core.types import UserTerm
from db.batches import BatchesRepository
from db.calibrations import CalibrationsRepository
from db.jobs import UNFINISHED, JobsRepository
from db.types import JsonObject
from db.user_lists import UserListRecord, UserListsRepository


@dataclass(frozen=True, slots=True)
class UserListView:
    """A word list with its terms, in the order of the uploaded file."""

    summary: UserListRecord
    terms: tuple[UserTerm, ...]

    @property
    def masked(self) -> int:
        """Number of terms that are masked."""
        return len(self.terms) - self.kept

    @property
    def kept(self) -> int:
        """Number of terms that stay visible."""
        return sum(term.keep for term in self.terms)


class UserListService:
    """Keeps word lists, and gives them to the detector."""

    def __init__(self, services: Services) -> None:
        self._lists = services[UserListsRepository]
        self._calibrations = services[CalibrationsRepository]
        self._jobs = services[JobsRepository]
        self._batches = services[BatchesRepository]
        self._room = services[DiskRoom]
        self._max_upload_bytes = services.largest_upload

    def parse(
        self, path: Path, filename: str | None = None, action: str = "mask", family: str = "other"
    ) -> ParsedUserList:
        """Read a CSV or TXT word list, as :func:`app.lists.upload.parse_user_list` does, within the size limit."""
        return parse_user_list(path, filename, action, family, self._max_upload_bytes)

    def add(self, name: str, parsed: ParsedUserList, replace: bool = False) -> UserListView:
        """Store a word list."""
        self._room.require()
        if parsed.errors:
            first = parsed.errors[0]
            raise ServiceError(
                f"{len(parsed.errors)} of {parsed.total} terms in {parsed.filename} cannot be used, the first on line "
                f"{first.line} ({first.column}: {first.message}); correct them, nothing was stored."
            )
        user_list = UserList(name.strip(), tuple(term for _, term in parsed.terms))
        namesake = self._lists.find(user_list.name)
        if namesake is not None:
            if not replace:
                raise ServiceError(
                    f"There is a word list “{user_list.name}” already; choose another name, or replace it."
                )
            self._require_unused(namesake)
        replaced = None if namesake is None else namesake.id
        record = self._lists.add(user_list.name, user_list.digest, user_list.terms, replaced)
        return UserListView(record, user_list.terms)

    def list(self) -> tuple[UserListRecord, ...]:
        """All word lists in the order of their names."""
        return tuple(self._lists.list())

    def view(self, user_list_id: int) -> UserListView:
        """A word list with its terms."""
        return UserListView(self._lists.get(user_list_id), stored_list(self._lists, user_list_id).terms)

    def named(self, name: str) -> UserListView:
        """The word list of a name."""
        return self.view(named_list(self._lists, name).id)

    def write_csv(self, user_list_id: int, folder: Path) -> Path:
        """Write a word list into a folder, atomically, and return its path."""
        name = "".join(char if char.isalnum() else "-" for char in self._lists.get(user_list_id).name)
        return write_text(folder / f"word-list-{name}.csv", user_list_csv(self.view(user_list_id).terms))

    def delete(self, user_list_id: int) -> None:
        """Delete a word list; audits made with it stay as they are, and can no longer be continued."""
        self._require_unused(self._lists.get(user_list_id))
        self._lists.delete(user_list_id)

    def _require_unused(self, record: UserListRecord) -> None:
        label = stored_list(self._lists, record.id).label
        for run in self._calibrations.list():
            parts = detector_parts(str(run.fingerprint.get("detector", "")))
            # Earlier versions shortened the digest in the detector's version.
            if parts is not None and same_digests(parts.user_list, label):
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
    request = request or {}
    user_list_id: int | None = {**(request.get("settings") or {}), **request}.get("user_list_id")
    return user_list_id
