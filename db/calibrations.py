"""Calibration runs with their values and bins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select

from db.database import Database
from db.records import JsonObject
from db.rows import find, to_columns, to_record
from db.tables import CalibrationBin, CalibrationRun
from db.types import utc_now


@dataclass(frozen=True, slots=True, kw_only=True)
class BinRecord:
    """One position bin of a calibration.

    Attributes:
        position: The bin's ordinal, 0-based.
        first_step: First step that it covers, 0-based.
        last_step: Last step that it covers, inclusive; None for all later ones.
        log_tau: Log-threshold; ``-inf`` certifies everything.
        state: ``calibrated``, ``inherited`` or ``uninformative``.
        contexts: Number of independent contexts that it rests on.
        rank: Rank k of the threshold among the values, where the estimator has one.
        low: Lower end of the range that realised coverage can take, a probability.
        high: Upper end of that range.
    """

    position: int
    first_step: int
    last_step: int | None
    log_tau: float
    state: str
    contexts: int
    rank: int | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationFields:
    """What the caller says of a calibration run; its value bytes travel separately."""

    name: str
    model: str
    model_revision: str
    alpha: float
    lam: float
    estimator: str
    source: str
    bin_width: int
    max_position: int
    fingerprint_digest: str
    fingerprint: JsonObject
    context_count: int
    token_count: int
    prompt_set_id: int | None = None
    verification: JsonObject | None = None
    coverage: JsonObject | None = None
    status: str = "ready"
    job_id: int | None = None
    embedded: bool = False
    mask_layout: str = "joint"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRecord(CalibrationFields):
    """A stored calibration run with its bins, in order of position."""

    id: int
    created_at: datetime
    bins: tuple[BinRecord, ...]


class CalibrationsRepository:
    """Adds, lists, renames and deletes calibration runs."""

    def __init__(self, database: Database) -> None:
        """Work on an open store."""
        self._database = database

    def add(self, fields: CalibrationFields, bins: Sequence[BinRecord], values: bytes) -> CalibrationRecord:
        """Store a finished calibration.

        Args:
            fields: What it is.
            bins: Its position bins.
            values: The calibration's own serialisation; kept compressed, returned as given.

        Raises:
            ConflictError: The prompt set or job does not exist, or two bins share a position.
        """
        with self._database.session() as session:
            row = CalibrationRun(**to_columns(fields, CalibrationFields), values=values, created_at=utc_now())
            row.bins = [CalibrationBin(**to_columns(item, BinRecord)) for item in bins]
            session.add(row)
            session.flush()
            return _record(row)

    def get(self, calibration_id: int) -> CalibrationRecord:
        """Return a calibration with its bins.

        Raises:
            NotFoundError: There is none with this id.
        """
        with self._database.reading() as session:
            return _record(find(session, CalibrationRun, calibration_id))

    def list(
        self,
        model: str | None = None,
        fingerprint_digest: str | None = None,
        embedded: bool | None = None,
    ) -> list[CalibrationRecord]:
        """Return calibrations, newest first.

        Args:
            model: Only those of this model.
            fingerprint_digest: Only those of this policy.
            embedded: Only those that came with the program (True), or only the others (False).
        """
        query = select(CalibrationRun).order_by(CalibrationRun.id.desc())
        if model is not None:
            query = query.where(CalibrationRun.model == model)
        if fingerprint_digest is not None:
            query = query.where(CalibrationRun.fingerprint_digest == fingerprint_digest)
        if embedded is not None:
            query = query.where(CalibrationRun.embedded == embedded)
        with self._database.reading() as session:
            return [_record(row) for row in session.scalars(query)]

    def values(self, calibration_id: int) -> bytes:
        """Return the serialisation that was stored with a calibration.

        Raises:
            NotFoundError: There is none with this id.
        """
        with self._database.reading() as session:
            return find(session, CalibrationRun, calibration_id).values

    def rename(self, calibration_id: int, name: str) -> CalibrationRecord:
        """Change a calibration's name; audits that used it keep the label that they were made with.

        Raises:
            NotFoundError: There is none with this id.
        """
        with self._database.session() as session:
            row = find(session, CalibrationRun, calibration_id)
            row.name = name
            return _record(row)

    def delete(self, calibration_id: int) -> None:
        """Delete a calibration; audits that used it stay and keep its label.

        Raises:
            NotFoundError: There is none with this id.
        """
        with self._database.session() as session:
            session.delete(find(session, CalibrationRun, calibration_id))


def _record(row: CalibrationRun) -> CalibrationRecord:
    return to_record(CalibrationRecord, row, bins=tuple(to_record(BinRecord, item) for item in row.bins))
