"""Verdicts without a database: the rules are the program's own, the log is a list."""

from __future__ import annotations

import threading
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

from app.review.log import VerdictRequest
from app.review.service import VerdictService
from db.audits import BranchRecord
from db.types import NotFoundError
from db.verdicts import FIRST, AnnotationFields, AnnotationRecord, entry_digest
from tests.fakes.audits import FakeAudits
from tests.fakes.data import NOW


class MadeUpSessions:
    """Branches and chains of the made-up audits, as the store gives them."""

    def __init__(self, audits: FakeAudits) -> None:
        self.audits = audits

    def get(self, session_id: int) -> Any:
        return self.audits.view(session_id)

    def branches(self, session_id: int) -> list[BranchRecord]:
        return [
            BranchRecord(
                id=item.view.id,
                session_id=session_id,
                parent_id=item.view.parent_id,
                fork_step=item.view.fork_step,
                path=f"path-{item.view.id}",
                name=item.view.name,
                created_at=NOW,
                finished=None,
            )
            for item in self.audits.stored[session_id].branches
        ]

    def chain(self, branch_id: int) -> Any:
        every = [item for session in self.audits.stored.values() for item in session.branches]
        return next(item.steps for item in every if item.view.id == branch_id)


class MadeUpLog:
    """A verdict log that is only added to; ``gate`` holds writers until it is set."""

    def __init__(self, audits: FakeAudits) -> None:
        self.audits = audits
        self.entries: dict[int, list[AnnotationRecord]] = {}
        self.gate = threading.Event()
        self.gate.set()
        self._lock = threading.Lock()

    def add(self, fields: AnnotationFields) -> AnnotationRecord:
        self.gate.wait(20)
        with self._lock:
            entries = self.entries.setdefault(fields.session_id, [])
            made = AnnotationRecord(
                **asdict(fields),
                id=len(entries) + 1,
                branch_path=None if fields.branch_id is None else f"path-{fields.branch_id}",
                entry=len(entries) + 1,
                created_at=NOW + timedelta(minutes=len(entries)),
                previous=entries[-1].digest if entries else FIRST,
                digest="",
            )
            entries.append(replace(made, digest=entry_digest(made.content, made.previous)))
            return entries[-1]

    def history(self, session_id: int) -> list[AnnotationRecord]:
        if session_id not in self.audits.stored:
            raise NotFoundError(f"There is no audit session with the id {session_id}; it may be deleted.")
        return list(self.entries.get(session_id, []))

    def sessions_of(self, reviewers: Any) -> list[int]:
        return [
            number
            for number, entries in self.entries.items()
            if set(reviewers) <= {entry.reviewer for entry in entries}
        ]

    def reviewers(self) -> list[str]:
        return sorted({entry.reviewer for entries in self.entries.values() for entry in entries})


class FakeVerdicts(VerdictService):
    def __init__(self, audits: FakeAudits) -> None:
        self.log = MadeUpLog(audits)
        super().__init__(MadeUpSessions(audits), self.log)  # type: ignore[arg-type]

    def say(self, reviewer: str, verdict: str | None, *steps: int, note: str = "", branch: int = 102) -> None:
        """A verdict on steps of the first session's shown branch (0-based), or without steps on the session."""
        first, last = (steps[0], steps[-1]) if steps else (None, None)
        self.add(VerdictRequest(1, reviewer, verdict, branch if steps else None, first, last, note))
