"""Who is to review which session until when, and who was shown what others said of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Date, ForeignKey, Index, PrimaryKeyConstraint, Table, delete, insert, select, update

from db.audits import sessions
from db.tables import METADATA, Store, columns, field_values, fields_in, find
from db.types import utc_now


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentRecord:
    """A session that a reviewer is to review."""

    session_id: int
    reviewer: str
    lead: str
    due_on: date | None
    assigned_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingRecord:
    """That a reviewer was shown what others said of a session."""

    session_id: int
    reviewer: str
    entry: int
    shown_at: datetime


def _session() -> ForeignKey:
    return ForeignKey("audit_sessions.id", ondelete="CASCADE")


assignments = Table(
    "assignments",
    METADATA,
    *columns(AssignmentRecord, session_id=_session(), due_on=Date()),
    PrimaryKeyConstraint("session_id", "reviewer"),
    Index(None, "reviewer"),
)

readings = Table(
    "verdict_readings",
    METADATA,
    *columns(ReadingRecord, session_id=_session()),
    PrimaryKeyConstraint("session_id", "reviewer"),
)


class AssignmentsRepository(Store):
    """Keeps who is to review what; whether it is done is in the verdict log."""

    def assign(
        self, session_ids: Collection[int], reviewers: Collection[str], lead: str, due_on: date | None = None
    ) -> int:
        """Assign every session to every reviewer, all or none; one that is assigned already gets the new date."""
        new, now = 0, utc_now()
        with self._database.writing() as connection:
            for session_id in sorted(session_ids):
                # Two leads must not both add the same assignment; the session's row is what they wait for.
                find(connection, sessions, session_id, lock=True)
                for reviewer in sorted(reviewers):
                    same = assignments.c.session_id == session_id, assignments.c.reviewer == reviewer
                    changed = update(assignments).where(*same).values(lead=lead, due_on=due_on)
                    if connection.execute(changed).rowcount == 0:
                        record = AssignmentRecord(
                            session_id=session_id, reviewer=reviewer, lead=lead, due_on=due_on, assigned_at=now
                        )
                        connection.execute(insert(assignments).values(**field_values(record, AssignmentRecord)))
                        new += 1
        return new

    def withdraw(self, session_ids: Collection[int], reviewers: Collection[str]) -> int:
        """Take back what of this is assigned; returns how many assignments there were."""
        row = assignments.c
        wanted = delete(assignments).where(row.session_id.in_(session_ids), row.reviewer.in_(reviewers))
        return self._run(wanted)

    def list(self, reviewer: str | None = None, session_id: int | None = None) -> Sequence[AssignmentRecord]:
        """Return assignments, the earliest due first and those without a date last, then by session and reviewer."""
        row = assignments.c
        query = select(*fields_in(AssignmentRecord, assignments)).order_by(
            row.due_on.is_(None), row.due_on, row.session_id, row.reviewer
        )
        if reviewer is not None:
            query = query.where(row.reviewer == reviewer)
        if session_id is not None:
            query = query.where(row.session_id == session_id)
        return self._read(AssignmentRecord, query)


class ReadingsRepository(Store):
    """Keeps who was shown what others said; nothing of it is ever taken back."""

    def note(self, session_id: int, reviewer: str, entry: int) -> None:
        """Write down that a reviewer is shown others' entries up to this one; a smaller number changes nothing."""
        # Most readings show nothing new, and reading must not wait for a writer.
        if (known := self.of(session_id, reviewer)) is not None and known.entry >= entry:
            return
        same = readings.c.session_id == session_id, readings.c.reviewer == reviewer
        with self._database.writing() as connection:
            find(connection, sessions, session_id, lock=True)
            newer = update(readings).where(*same).values(entry=entry)
            if connection.execute(newer.where(readings.c.entry < entry)).rowcount:
                return
            if connection.execute(select(readings.c.entry).where(*same)).one_or_none() is None:
                record = ReadingRecord(session_id=session_id, reviewer=reviewer, entry=entry, shown_at=utc_now())
                connection.execute(insert(readings).values(**field_values(record, ReadingRecord)))

    def of(self, session_id: int, reviewer: str) -> ReadingRecord | None:
        """Return what a reviewer was shown of others on a session; None if nothing."""
        query = select(*fields_in(ReadingRecord, readings)).where(
            readings.c.session_id == session_id, readings.c.reviewer == reviewer
        )
        return next(iter(self._read(ReadingRecord, query)), None)
