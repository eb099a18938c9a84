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
    """What the auditor says of the audit.

    Attributes:
        auditor: who audited
        question: what the audit was to answer
        language: language of the report
        day: day of the report (default: today)
    """

    auditor: str = ""
    question: str = ""
    language: str = "en"
    day: date = field(default_factory=_today)


@dataclass(frozen=True, slots=True)
class GroupRate:
    """A group in a table of rates.

    Attributes:
        group: Its name.
        total: Members with a known group.
        counted: Those that are selected, or score above the median.
        rate: Their share.
        low: Lower end of the exact 95 % interval of the rate.
        high: Upper end.
        ratio: Rate over the highest rate; None where the group is left out or nobody is counted.
        small: Whether it is below 2 % of the data.
    """

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
    """Rates and impact ratios of all groups.

    Attributes:
        kind: Whether people are selected, or score above the median.
        rows: One a group.
        unknown: Outcomes without a known group.
        undecided: Texts that have no outcome.
        unfinished: Prompts without a finished text.
        excluded: Whether small groups are left out of the ratios.
        pattern: What is looked for in a text; empty for the first number.
        other: What must not stand before it; empty where nothing.
        regex: Whether these are regular expressions.
        median: The median score; None where people are selected.
    """

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
    """A batch as its formal report needs it.

    Attributes:
        file: Name of the file of its prompts.
        rows: Number of its prompts.
        sessions: The sessions of those that are finished.
        groups: The groups that it names.
        verdicts: Number of sessions by the verdict that stands on the whole of each.
        selection: Selection rates; None without a rule.
        scoring: Scoring rates; None without a rule.
    """

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
