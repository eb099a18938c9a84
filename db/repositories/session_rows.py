"""Sessions as records: from a mapped object, and by their id without objects that watch for changes."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Table, bindparam, select

from db.mapping import to_record
from db.models import AuditSession, BatchRow, SessionSpan
from db.records import BatchPlaceRecord, SessionRecord, SpanRecord
from db.repositories.common import missing


def _table(kind: Any) -> Table:
    found: Table = kind.__table__
    return found


_sessions, _spans, _places = _table(AuditSession), _table(SessionSpan), _table(BatchRow)
_SESSION = select(_sessions).where(_sessions.c.id == bindparam("own"))
_SPANS = select(_spans).where(_spans.c.session_id == bindparam("own")).order_by(_spans.c.position)
_PLACE = select(_places.c.batch_id, _places.c.line).where(_places.c.session_id == bindparam("own"))


def session_row(connection: Connection, session_id: int) -> SessionRecord:
    """Return a session with its spans and its place in a batch; pages ask for it at every frame.

    Raises:
        NotFoundError: There is none with this id.
    """
    own = {"own": session_id}
    row = connection.execute(_SESSION, own).one_or_none()
    if row is None:
        raise missing(AuditSession, session_id)
    place = connection.execute(_PLACE, own).one_or_none()
    return to_record(
        SessionRecord,
        row,
        warnings=tuple(row.warnings),
        batch=None if place is None else to_record(BatchPlaceRecord, place),
        spans=tuple(to_record(SpanRecord, span) for span in connection.execute(_SPANS, own)),
    )


def record_of(row: AuditSession) -> SessionRecord:
    """The record of a mapped session."""
    return to_record(
        SessionRecord,
        row,
        warnings=tuple(row.warnings),
        batch=None if row.batch_row is None else to_record(BatchPlaceRecord, row.batch_row),
        spans=tuple(to_record(SpanRecord, span) for span in row.spans),
    )
