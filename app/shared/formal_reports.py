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
    """What the auditor says of the audit, and the annexes of ``assets/controls.toml`` that are asked for."""

    auditor: str = ""
    question: str = ""
    language: str = "en"
    day: date = field(default_factory=_today)
    annexes: tuple[str, ...] = ()


FOUR_FIFTHS = 0.8
"""Ratios below this are a common sign of adverse impact (29 CFR 1607.4 D); Local Law 144 itself sets no limit."""


@dataclass(frozen=True, slots=True)
class ImpactRow:
    """One group in a table of selection rates, or of rates above the median score."""

    group: str
    total: int
    selected: int
    share: float
    rate: float
    low: float
    high: float
    ratio: float | None
    reference: bool
    small: bool
    note: str

    @property
    def below_four_fifths(self) -> bool:
        """Whether the ratio is under four fifths."""
        return self.ratio is not None and self.ratio < FOUR_FIFTHS


@dataclass(frozen=True, slots=True)
class RateTable:
    """Rates and impact ratios of all groups; ``dependent`` says that intervals leave out what hangs together."""

    kind: Literal["selection", "scoring"]
    rows: tuple[ImpactRow, ...]
    unknown: int
    undecided: int
    unfinished: int
    excluded: bool
    pattern: str
    other: str = ""
    regex: bool = False
    median: float | None = None
    dependent: bool = True


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
