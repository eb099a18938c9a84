"""Between records and rows: fields and columns share their names, so both ways are one loop."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from sqlalchemy.orm import Session

from db.records import FamilyStepRecord, SpanRecord
from db.tables import (
    Annotation,
    AuditSession,
    Base,
    Batch,
    Branch,
    CalibrationRun,
    Comparison,
    Job,
    PromptSet,
    UserList,
)
from db.types import CalibrationDeletedError, NotFoundError, UnstorableValueError

Record = TypeVar("Record")


def to_record(kind: type[Record], row: object, **given: Any) -> Record:
    """Build a record from the attributes of a mapped object or result row.

    Args:
        kind: The record's dataclass.
        row: Anything with attributes named like the record's fields.
        given: Fields that the row does not have in this form.
    """
    names = [field.name for field in fields(kind) if field.name not in given]  # type: ignore[arg-type]
    return kind(**{name: getattr(row, name) for name in names}, **given)


def to_columns(record: Any, kind: type[object], leave_out: Collection[str] = ()) -> dict[str, Any]:
    """Take the fields of ``kind`` from a record, by name.

    Args:
        record: An instance of ``kind`` or of a subclass.
        kind: The dataclass whose fields are wanted.
        leave_out: Fields that are stored elsewhere.
    """
    names = [field.name for field in fields(kind) if field.name not in leave_out]  # type: ignore[arg-type]
    return {name: getattr(record, name) for name in names}


def spans_to_json(spans: tuple[SpanRecord, ...] | None) -> list[dict[str, Any]] | None:
    """Turn a prompt row's spans into JSON; None stays None ("not given", unlike an empty list)."""
    return None if spans is None else [to_columns(span, SpanRecord) for span in spans]


def spans_from_json(stored: list[dict[str, Any]] | None) -> tuple[SpanRecord, ...] | None:
    """Invert :func:`spans_to_json`."""
    return None if stored is None else tuple(SpanRecord(**span) for span in stored)


def families_to_json(families: Sequence[FamilyStepRecord]) -> list[dict[str, Any]] | None:
    """Turn a step's parts by family into JSON; None stands for none. JSON has no infinities, so text stands for them.

    Raises:
        UnstorableValueError: A number is NaN.
    """
    rows = [{name: _to_json(value) for name, value in to_columns(part, FamilyStepRecord).items()} for part in families]
    return rows or None


def families_from_json(stored: list[dict[str, Any]] | None) -> tuple[FamilyStepRecord, ...]:
    """Invert :func:`families_to_json`."""
    numbers = ("log_p_masked", "log_joint", "log_tau")
    return tuple(FamilyStepRecord(**{**row, **{name: float(row[name]) for name in numbers}}) for row in stored or ())


def _to_json(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            raise UnstorableValueError("A number of a step is NaN (not a number); compute it again or leave it out.")
        return repr(value)
    return value


Row = TypeVar("Row", bound=Base)

_NAMES: dict[type[Base], str] = {
    Annotation: "annotation",
    AuditSession: "audit session",
    Batch: "batch",
    Branch: "branch",
    CalibrationRun: "calibration",
    Comparison: "comparison",
    Job: "job",
    PromptSet: "prompt set",
    UserList: "word list",
}


def find(session: Session, kind: type[Row], key: int) -> Row:
    """Load a row by its id.

    Raises:
        NotFoundError: There is none.
    """
    row = session.get(kind, key)
    if row is None:
        raise missing(kind, key)
    return row


def missing(kind: type[Base], key: int) -> NotFoundError:
    """Say that no row of a kind has an id."""
    return NotFoundError(f"There is no {_NAMES[kind]} with the id {key}; it may have been deleted.")


def require_calibration(calibration_id: int | None, label: str) -> None:
    """Refuse to go on with a session whose calibration is gone: what is in memory may still hold its thresholds.

    Raises:
        CalibrationDeletedError: The session had a calibration, and has none now.
    """
    if label and calibration_id is None:
        raise CalibrationDeletedError(label)
