"""Sessions of other servers: stored in one transaction with the bundle that they came in, and never changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from sqlalchemy import Connection, Select, insert, select

from coft_core.types import Span, Step
from db.audits import (
    BranchRecord,
    SessionFields,
    SessionOrigin,
    SessionRecord,
    branches,
    imported_sessions,
    session_spans,
    sessions,
)
from db.calibrations import BinRecord, CalibrationFields, add_calibration, calibrations
from db.chains import insert_past_step
from db.controls import ControlsRow, insert_controls
from db.library import session_tags
from db.tables import Store, add_row, change_row, field_values, one_writer
from db.types import ConflictError, JsonObject, NotFoundError
from db.verdicts import NOT_STORED, AnnotationRecord, log_entries

TAG = "imported"
_IMPORTS_LOCK = 0x696D7074
"""By which the library finds all of them."""


@dataclass(frozen=True, slots=True)
class PastSession:
    """A session as another store had it, by the numbers that it had there."""

    record: SessionRecord
    branches: Sequence[BranchRecord]
    steps: Mapping[int, Sequence[Step]]
    times: Mapping[tuple[int, int], datetime]
    logits: Mapping[tuple[int, int], bytes]
    log: Sequence[AnnotationRecord]
    controls: Mapping[int, ControlsRow] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PastCalibration:
    """The calibration of such a session: what is listed of it, its bins, and its file."""

    fields: CalibrationFields
    bins: Sequence[BinRecord]
    values: bytes


class ImportsRepository(Store):
    """Adds imported sessions, and gives their bundles back."""

    def known(self, bundle_digest: str) -> int | None:
        """Return the session that a bundle was imported as; None where it was not, or is deleted."""
        return self._scalar(int, _known(bundle_digest))

    def bundle(self, session_id: int) -> bytes:
        """Return the bundle of an imported session as it came."""
        query = select(imported_sessions.c.bundle).where(imported_sessions.c.session_id == session_id)
        stored = self._scalar(bytes, query)
        if stored is None:
            raise NotFoundError(f"There is no imported session with the id {session_id}; it may have been deleted.")
        return stored

    def add(self, past: PastSession, calibration: PastCalibration | None, origin: SessionOrigin, bundle: bytes) -> int:
        """Store a session with all that belongs to it, whole or not at all, and return its number here.

        A calibration that is stored here already, byte for byte, is not stored again.
        """
        with self._database.writing() as connection:
            # Two writers must not both find that it was not imported before.
            one_writer(connection, _IMPORTS_LOCK)
            if connection.scalar(_known(origin.bundle_digest)) is not None:
                raise ConflictError("The bundle was imported before.")
            used = None if calibration is None else _calibration(connection, calibration)
            record = _pointing_here(past.record, used)
            kept = field_values(record, SessionFields, leave_out=("batch",))
            times = {"created_at": record.created_at, "updated_at": record.updated_at}
            key = add_row(connection, sessions, **kept, **times)
            for position, span in enumerate(record.spans):
                row = {"session_id": key, "position": position, **field_values(span, Span)}
                connection.execute(insert(session_spans), row)
            numbers = _branches(connection, key, past)
            change_row(connection, sessions, key, active_branch_id=numbers[record.active_branch_id])
            for entry in past.log:
                own = {"session_id": key, "branch_id": None if entry.branch_id is None else numbers[entry.branch_id]}
                values = field_values(entry, AnnotationRecord, (*NOT_STORED, *own))
                add_row(connection, log_entries, **values, **own)
            connection.execute(insert(session_tags), {"session_id": key, "tag": TAG})
            # Last, since what is written of a session that stands here is refused.
            told = field_values(origin, SessionOrigin)
            connection.execute(insert(imported_sessions), {"session_id": key, **told, "bundle": bundle})
            return key


def _known(bundle_digest: str) -> Select[int]:
    return select(imported_sessions.c.session_id).where(imported_sessions.c.bundle_digest == bundle_digest)


def _calibration(connection: Connection, past: PastCalibration) -> int:
    query = select(calibrations.c.id, calibrations.c["values"]).where(
        calibrations.c.fingerprint_digest == past.fields.fingerprint_digest
    )
    same = next(
        (row.id for row in connection.execute(query.order_by(calibrations.c.id)) if row[1] == past.values), None
    )
    return add_calibration(connection, past.fields, past.bins, past.values) if same is None else int(same)


def _pointing_here(record: SessionRecord, calibration_id: int | None) -> SessionRecord:
    """The session with the numbers of this store in place of those of the other one."""
    settings: JsonObject = {
        **record.policy_settings["settings"],
        "calibration_id": calibration_id,
        "user_list_id": None,
    }
    return replace(
        record, calibration_id=calibration_id, policy_settings={**record.policy_settings, "settings": settings}
    )


def _branches(connection: Connection, session_id: int, past: PastSession) -> dict[int, int]:
    """Store the branches with their steps, and return their numbers here by those that they had."""
    numbers: dict[int, int] = {}
    for branch in past.branches:
        numbers[branch.id] = add_row(
            connection,
            branches,
            session_id=session_id,
            parent_id=None if branch.parent_id is None else numbers[branch.parent_id],
            fork_step=branch.fork_step,
            path=branch.path,
            name=branch.name,
            created_at=branch.created_at,
            finished=branch.finished,
        )
        for step in past.steps[branch.id]:
            place = (branch.id, step.index)
            insert_past_step(connection, numbers[branch.id], step, past.logits.get(place), past.times[place])
        if branch.id in past.controls:
            insert_controls(connection, numbers[branch.id], past.controls[branch.id])
    return numbers
