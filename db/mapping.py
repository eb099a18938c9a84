"""Between records and rows: fields and columns share their names, so both ways are one loop."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from typing import Any, TypeVar

from db.records import SpanRecord

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
