"""What all repositories share: finding a row or saying that there is none."""

from __future__ import annotations

from typing import TypeVar

from sqlalchemy.orm import Session

from db.errors import CalibrationDeletedError, NotFoundError
from db.models import (
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
