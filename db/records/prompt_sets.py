"""Records of uploaded prompt sets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from db.records.common import SpanRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRowRecord:
    """One row of a prompt set.

    Attributes:
        line: Line of the uploaded file, 1-based; unique in its set.
        prompt: The factual prompt.
        reference: Its continuation, if given.
        spans: Its sensitive spans; None leaves them to the detector.
        group: Group of the row; unless thresholds are asked by group, rows that share it are dependent.
        context: Context id; rows that share it are dependent.
        weight: Shift weight, above 0.
    """

    line: int
    prompt: str
    reference: str | None = None
    spans: tuple[SpanRecord, ...] | None = None
    group: str | None = None
    context: str | None = None
    weight: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSetRecord:
    """An uploaded prompt set without its rows."""

    id: int
    name: str
    filename: str
    digest: str
    created_at: datetime
    row_count: int
