"""The library's queries and entries between the store's records and the services' views."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

from app.services.errors import ServiceError
from app.services.views.library import LibraryEntry, LibraryQuery
from db.records import SessionEntryRecord, SessionFilter


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
