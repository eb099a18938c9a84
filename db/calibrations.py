"""Calibration runs with their values and bins, so that another alpha or estimator needs no model."""

from __future__ import annotations

import builtins
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, Column, Connection, ForeignKey, Index, Integer, Select, Table, insert, select

from db.scope import PROJECT, present_project
from db.tables import METADATA, Repository, add_row, columns, field_values, fields_in, missing, project_table
from db.types import CompressedBytes, JsonObject, utc_now


@dataclass(frozen=True, slots=True, kw_only=True)
class BinRecord:
    """One position bin of a calibration."""

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


calibrations = project_table(
    "calibration_runs",
    "calibration",
    *columns(
        CalibrationRecord,
        prompt_set_id=ForeignKey("prompt_sets.id", ondelete="SET NULL"),
        job_id=ForeignKey("jobs.id", ondelete="SET NULL"),
        bins=None,
    ),
    Column("values", CompressedBytes, nullable=False),
    # What comes with the program is seen in every project.
    Index(None, "prompt_set_id"),
    Index(None, "job_id"),
    Index(None, "fingerprint_digest"),
    shared=True,
)

calibration_bins = Table(
    "calibration_bins",
    METADATA,
    Column("run_id", Integer, ForeignKey("calibration_runs.id", ondelete="CASCADE"), primary_key=True),
    *columns(BinRecord, position=Column("position", Integer, primary_key=True)),
    CheckConstraint("last_step >= first_step", name="steps_in_order"),
)


def add_calibration(connection: Connection, fields: CalibrationFields, bins: Sequence[BinRecord], values: bytes) -> int:
    """Store a finished calibration in a transaction, and return its id."""
    columns = field_values(fields, CalibrationFields)
    if fields.embedded and not isinstance(present_project(), int):
        columns[PROJECT] = None
    key = add_row(connection, calibrations, **columns, values=values, created_at=utc_now())
    if bins:
        rows = [{"run_id": key, **field_values(item, BinRecord)} for item in bins]
        connection.execute(insert(calibration_bins), rows)
    return key


class CalibrationsRepository(Repository[CalibrationRecord]):
    """Adds, lists, renames and deletes calibration runs; audits that used one keep the label it had, and outlive it."""

    _table = calibrations
    _query = select(*fields_in(CalibrationRecord, calibrations))

    def add(self, fields: CalibrationFields, bins: Sequence[BinRecord], values: bytes) -> CalibrationRecord:
        """Store a finished calibration with its own serialisation, which is returned as given."""
        with self._database.writing() as connection:
            return self._one(connection, add_calibration(connection, fields, bins, values))

    def list(
        self,
        model: str | None = None,
        fingerprint_digest: str | None = None,
        embedded: bool | None = None,
    ) -> list[CalibrationRecord]:
        """Return calibrations, newest first; ``embedded`` asks for those that came with the program, or the others."""
        query = self._query.order_by(calibrations.c.id.desc())
        if model is not None:
            query = query.where(calibrations.c.model == model)
        if fingerprint_digest is not None:
            query = query.where(calibrations.c.fingerprint_digest == fingerprint_digest)
        if embedded is not None:
            query = query.where(calibrations.c.embedded == embedded)
        return self._listed(query)

    def values(self, calibration_id: int) -> bytes:
        """Return the serialisation that was stored with a calibration."""
        stored = self._scalar(bytes, select(calibrations.c["values"]).where(calibrations.c.id == calibration_id))
        if stored is None:
            raise missing(calibrations, calibration_id)
        return stored

    def rename(self, calibration_id: int, name: str) -> CalibrationRecord:
        """Change a calibration's name."""
        return self._change(calibration_id, name=name)

    def _records(self, connection: Connection, query: Select[*tuple[Any, ...]]) -> builtins.list[CalibrationRecord]:
        rows = connection.execute(query).all()
        query = select(calibration_bins).where(calibration_bins.c.run_id.in_([row.id for row in rows]))
        bins: defaultdict[int, builtins.list[BinRecord]] = defaultdict(builtins.list)
        for row in connection.execute(query.order_by(calibration_bins.c.position)):
            told = row._asdict()
            bins[told.pop("run_id")].append(BinRecord(**told))
        return [CalibrationRecord(**row._asdict(), bins=tuple(bins[row.id])) for row in rows]
