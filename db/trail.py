"""The audit trail: who did what on a server with accounts, append-only and chained like the logs of verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import UniqueConstraint, select

from db.tables import Store, add_row, columns, field_values, fields_in, numbered_table, one_writer
from db.verdicts import LogContent, entry_digest, next_link

_TRAIL_LOCK = 0x747261


@dataclass(frozen=True, slots=True, kw_only=True)
class TrailFields:
    """What is said of something that was done."""

    actor: str
    action: str
    subject: str = ""
    outcome: str = "done"
    address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrailRecord(TrailFields):
    """A stored entry of the trail."""

    id: int
    entry: int
    created_at: datetime
    previous: str
    digest: str

    @property
    def content(self) -> LogContent:
        """What goes into its digest."""
        return {
            "entry": self.entry,
            "at": self.created_at.isoformat(),
            **{name: str(value) for name, value in field_values(self, TrailFields).items()},
        }


trail = numbered_table(
    "audit_trail",
    "entry of the trail",
    *columns(TrailRecord),
    UniqueConstraint("entry"),
)


class TrailRepository(Store):
    """Keeps the trail, to which entries are only ever added."""

    def add(self, fields: TrailFields) -> TrailRecord:
        """Add an entry at the end."""
        with self._database.writing() as connection:
            # Two writers must not both follow the same entry.
            one_writer(connection, _TRAIL_LOCK)
            newest = select(trail.c.entry, trail.c.digest).order_by(trail.c.entry.desc()).limit(1)
            last = connection.execute(newest).one_or_none()
            draft = TrailRecord(**field_values(fields, TrailFields), **next_link(last))
            entry = replace(draft, digest=entry_digest(draft.content, draft.previous))
            key = add_row(connection, trail, **field_values(entry, TrailRecord, ("id",)))
        return replace(entry, id=key)

    def list(self, actor: str | None = None, newest: int | None = None) -> Sequence[TrailRecord]:
        """Return entries, oldest first."""
        query = select(*fields_in(TrailRecord, trail)).order_by(trail.c.entry.desc())
        if actor is not None:
            query = query.where(trail.c.actor == actor)
        if newest is not None:
            query = query.limit(newest)
        return self._read(TrailRecord, query)[::-1]
