"""The library of sessions and its exports over the made-up audits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.sessions.archive import BulkExport
from app.sessions.service import BulkResult, Duplicate, LibraryPage, LibraryQuery
from app.shared.audits import StartAudit
from app.shared.errors import ServiceError
from db.audits import SessionSummary
from db.library import LibraryChoicesRecord, SessionEntryRecord
from tests.fakes.audits import FakeAudits
from tests.fakes.branching import FakeBranching


class FakeSessions:
    """The stored sessions."""

    def __init__(self, audits: FakeAudits) -> None:
        self.audits = audits

    def list(self, search: str | None = None, limit: int = 200) -> tuple[SessionSummary, ...]:
        return self.audits.sessions(search or "", limit)


FIELDS = {"updated": "updated_at", "created": "created_at", "steps": "step_count"}


class FakeLibrary(FakeBranching):
    def __init__(self, audits: FakeAudits) -> None:
        self.audits = audits
        self.tags: dict[int, set[str]] = {1: {"handover"}}
        self.archived: set[int] = set()
        self.verdicts = {1: 2}
        self.queries: list[LibraryQuery] = []

    def search(self, query: LibraryQuery) -> LibraryPage:
        self.queries.append(query)
        found = self._found(query)
        pages = max(1, -(-len(found) // query.page_size))
        page = min(query.page, pages)
        shown = found[(page - 1) * query.page_size : page * query.page_size]
        return LibraryPage(tuple(shown), len(found), page, pages)

    def ids(self, query: LibraryQuery) -> tuple[int, ...]:
        return tuple(sorted(item.id for item in self._found(query)))

    def choices(self) -> LibraryChoicesRecord:
        every = [self._entry(item) for item in self.audits.sessions()]
        tags = (tag for item in every for tag in item.tags)
        return LibraryChoicesRecord(
            policies=_counted(item.policy for item in every),
            models=_counted(item.model for item in every),
            tags=_counted(tags),
        )

    def rename(self, session_id: int, name: str) -> None:
        if not name.strip():
            raise ServiceError("The name of a session has 1 to 200 characters; write a shorter one, or any.")
        session = self.audits.stored[session_id]
        session.request = replace(session.request, name=name)

    def tag(self, session_ids: Sequence[int], tag: str) -> BulkResult:
        return self._each("tagged", session_ids, lambda n: _grow(self.tags.setdefault(n, set()), tag))

    def untag(self, session_ids: Sequence[int], tag: str) -> BulkResult:
        return self._each("untagged", session_ids, lambda n: _shrink(self.tags.get(n, set()), tag))

    def archive(self, session_ids: Sequence[int], archived: bool = True) -> BulkResult:
        change = _grow if archived else _shrink
        action = "archived" if archived else "unarchived"
        return self._each(action, session_ids, lambda n: change(self.archived, n))

    def delete(self, session_ids: Sequence[int]) -> BulkResult:
        return self._each("deleted", session_ids, lambda n: self.audits.stored.pop(n) is not None)

    def prefill(self, session_id: int) -> Duplicate:
        if session_id not in self.audits.stored:
            raise ServiceError(f"There is no session {session_id}; it may have been deleted.")
        session = self.audits.stored[session_id]
        request = session.request
        return Duplicate(StartAudit(request.prompt, request.settings, session.spans, f"Copy of {request.name}"), ())

    def export(self, session_ids: Sequence[int], folder: Path) -> BulkExport:
        there = [number for number in session_ids if number in self.audits.stored]
        path = Path(folder) / f"audits-{len(there)}.zip"
        path.write_text("reports", "utf-8")
        return BulkExport(path, len(there), len(session_ids) - len(there))

    def _each(self, action: str, session_ids: Sequence[int], change: Any) -> BulkResult:
        there = [number for number in session_ids if number in self.audits.stored]
        changed = sum(bool(change(number)) for number in there)
        return BulkResult(action, len(session_ids), changed, len(session_ids) - len(there))

    def _found(self, query: LibraryQuery) -> list[SessionEntryRecord]:
        every = [self._entry(item) for item in self.audits.sessions(limit=1000)]
        found = [item for item in every if _matches(item, query)]
        field = FIELDS.get(query.order, query.order)
        found.sort(key=lambda item: (getattr(item, field), item.id), reverse=query.descending)
        return found

    def _entry(self, item: SessionSummary) -> SessionEntryRecord:
        return SessionEntryRecord(
            id=item.id,
            name=item.name,
            prompt=item.prompt,
            model=item.model,
            policy=item.policy,
            certificate=item.certificate,
            step_count=item.steps,
            branch_count=len(self.audits.stored[item.id].branches),
            created_at=item.created_at,
            updated_at=item.updated_at,
            archived_at=item.updated_at if item.id in self.archived else None,
            batch_id=None,
            verdict_count=self.verdicts.get(item.id, 0),
            tags=tuple(sorted(self.tags.get(item.id, ()))),
        )


def _matches(item: SessionEntryRecord, query: LibraryQuery) -> bool:
    return (
        query.text.strip().lower() in f"{item.name} {item.prompt} {' '.join(item.tags)}".lower()
        and query.policy in (None, item.policy)
        and query.model in (None, item.model)
        and (query.certificate is None or item.certificate.startswith(query.certificate))
        and (query.tag is None or query.tag in item.tags)
        and query.archived in (None, item.archived_at is not None)
        and query.judged in (None, item.verdict_count > 0)
        and (query.since is None or item.updated_at >= query.since)
        and (query.before is None or item.updated_at < query.before)
    )


def _counted(values: Iterable[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(Counter(values).items()))


def _grow(held: set[Any], value: Any) -> bool:
    before = len(held)
    held.add(value)
    return len(held) > before


def _shrink(held: set[Any], value: Any) -> bool:
    before = len(held)
    held.discard(value)
    return len(held) < before
