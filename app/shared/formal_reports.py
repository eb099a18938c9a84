"""What a formal report is told by who asks for it: what the auditor says, and what a batch has beside its sessions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Literal


def _today() -> date:
    return datetime.now(UTC).date()


@dataclass(frozen=True, slots=True)
class Statement:
    """What the auditor says of the audit."""

    auditor: str = ""
    question: str = ""
    language: str = "en"
    day: date = field(default_factory=_today)


@dataclass(frozen=True, slots=True)
class GroupRate:
    """A group in a table of rates."""

    group: str
    total: int
    counted: int
    rate: float
    low: float
    high: float
    ratio: float | None
    small: bool


@dataclass(frozen=True, slots=True)
class RateTable:
    """Rates and impact ratios of all groups."""

    kind: Literal["selection", "scoring"]
    rows: tuple[GroupRate, ...]
    unknown: int
    undecided: int
    unfinished: int
    excluded: bool
    pattern: str
    other: str = ""
    regex: bool = False
    median: float | None = None


@dataclass(frozen=True, slots=True)
class AuditedBatch:
    """A batch as its formal report needs it."""

    id: int
    name: str
    file: str
    created_at: datetime
    rows: int
    sessions: tuple[int, ...]
    groups: tuple[str, ...]
    verdicts: Mapping[str, int]
    selection: RateTable | None = None
    scoring: RateTable | None = None
