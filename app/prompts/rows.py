"""What became of the prompts of a set, each a session of its own, and means over them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import attrgetter
from statistics import fmean, stdev
from typing import Any, Literal, TypeVar

from scipy.stats import t

from app.shared.thinking import divided_text
from app.shared.verdicts import published, standing
from coft_core.controls.result import FamilyRank
from coft_core.text.thinking import Divided
from coft_core.types import Certificate
from db.batches import BatchRowRecord
from db.prompt_sets import PromptRow
from db.verdicts import AnnotationRecord

Row = TypeVar("Row")

RowState = Literal["waiting", "unfinished", "finished", "failed", "deleted"]
"""Not begun; begun and not at its end; at its end; could not be run; its session has been deleted since."""

OPEN = ("waiting", "unfinished", "failed")
"""States of rows that can still be run."""


@dataclass(frozen=True, slots=True)
class BatchRowView:
    """One prompt of a batch and what its session says; numbers are of the session's main branch.

    ``effect`` is the largest total variation of the family of marked words with the smallest p-value, ``effect_p`` that
    p-value, corrected over the text and the families, and ``controls`` the words that it is compared with.
    """

    line: int
    state: RowState
    session_id: int | None
    prompt: str
    reference: str | None
    group: str | None
    context: str | None
    text: str
    error: str
    certificate: str
    verdict: str
    verdicts: int
    steps: int
    certified_share: float | None
    fallbacks: int | None
    overruled: int | None
    mean_log_ratio: float | None
    max_log_ratio: float | None
    min_margin: float | None
    archived: bool
    divided: Divided | None = None
    effect: float | None = None
    effect_p: float | None = None
    controls: int | None = None
    ranks: tuple[FamilyRank, ...] | None = None

    @property
    def answer(self) -> str | None:
        """The continuation without its thinking: what outcomes are read from. None where the thinking has not ended."""
        if self.divided is None:
            return self.text
        return self.divided.answer if self.divided.ended else None

    @property
    def unit(self) -> tuple[str, str | int]:
        """What is independent of the rest: the row's context, else the row itself."""
        return ("line", self.line) if self.context is None else ("context", self.context)


def row_views(
    records: Iterable[BatchRowRecord], prompts: Iterable[PromptRow], log: Iterable[AnnotationRecord]
) -> list[BatchRowView]:
    """Rows in the order of their lines."""
    by_line = {row.line: row for row in prompts}
    verdicts = {session: _verdict(list(entries)) for session, entries in groupby(log, key=attrgetter("session_id"))}
    return [_row_view(record, by_line[record.line], *verdicts.get(record.session_id, ("", 0))) for record in records]


def _row_view(record: BatchRowRecord, row: PromptRow, verdict: str, verdicts: int) -> BatchRowView:
    claim = Certificate.read(record.certificate or "").at(record.certified, record.steps)
    thresholded = record.steps > 0 and claim.thresholded
    ranks = tuple(FamilyRank(**rank) for rank in record.ranks or ())
    told = min(ranks, key=lambda rank: (rank.p_value, -rank.effect), default=None)
    return BatchRowView(
        line=record.line,
        state=_state(record),
        session_id=record.session_id,
        prompt=row.example.prompt,
        reference=row.example.reference,
        group=row.example.group,
        context=row.example.context,
        text=record.text,
        error=record.error or "",
        certificate=claim.text if record.certificate else "",
        verdict=verdict,
        verdicts=verdicts,
        steps=record.steps,
        certified_share=record.certified / record.steps if record.steps and claim.certified else None,
        fallbacks=record.fallbacks if thresholded else None,
        overruled=record.overruled if thresholded else None,
        mean_log_ratio=record.mean_log_ratio,
        max_log_ratio=record.max_log_ratio,
        min_margin=record.min_margin if thresholded else None,
        archived=record.archived,
        divided=divided_text(record.text, record.thinking),
        effect=None if told is None else told.effect,
        effect_p=None if told is None or not told.by else min(1.0, len(ranks) * told.p_value),
        controls=None if told is None else told.rows - 1,
        ranks=None if record.ranks is None else ranks,
    )


def _state(record: BatchRowRecord) -> RowState:
    if record.finished:
        return "finished"
    if record.error:
        return "failed"
    if not record.begun:
        return "waiting"
    return "deleted" if record.session_id is None else "unfinished"


def _verdict(log: list[AnnotationRecord]) -> tuple[str, int]:
    """The verdict on the whole session, and the number of targets that have one."""
    verdicts = [item for item in standing(published(log)) if item.status != "withdrawn"]
    whole = next((item.verdict or "disputed" for item in verdicts if item.target.kind == "session"), "")
    return whole, len(verdicts)


def in_order(rows: Iterable[Row], value: Callable[[Row], Any], descending: bool) -> tuple[Row, ...]:
    """Rows sorted by a value of theirs, then as they come; what has none comes last, and case does not count."""

    def key(row: Row) -> Any:
        found = value(row)
        return found.casefold() if isinstance(found, str) else found

    rows = list(rows)
    known = [row for row in rows if value(row) not in (None, "")]
    return (*sorted(known, key=key, reverse=descending), *(row for row in rows if value(row) in (None, "")))


def fields_json(record: Any) -> dict[str, Any]:
    """The fields of a record by name; what is infinite is null."""
    fields = asdict(record)
    if fields.get("divided", ...) is None:
        # What has no thinking says nothing of it.
        del fields["divided"]
    return {name: None if isinstance(v, float) and not math.isfinite(v) else v for name, v in fields.items()}


INTERVAL = "95 % t interval of the mean over contexts; rows that share a context count once, by their mean"
LEVEL = 0.95

_RANGES = dict.fromkeys(("certified_share", "mean_tv_factual", "parted"), (0.0, 1.0)) | {
    "min_margin": (-math.inf, math.inf)
}
_NOT_NEGATIVE = (0.0, math.inf)


@dataclass(frozen=True, slots=True)
class MeanInterval:
    """The mean of a measure over a group's contexts."""

    measure: str
    mean: float | None
    low: float | None
    high: float | None
    contexts: int
    left_out: int


def mean_over(measure: str, values: Iterable[tuple[Hashable, float | None]]) -> MeanInterval:
    """The mean of a measure over rows, each with its unit; rows of one unit count once, by their mean."""
    by_unit: defaultdict[Hashable, list[float]] = defaultdict(list)
    left_out = 0
    for unit, value in values:
        if value is None or not math.isfinite(value):
            left_out += 1
        else:
            by_unit[unit].append(float(value))
    return mean_interval(measure, [fmean(own) for own in by_unit.values()], left_out)


def mean_interval(measure: str, values: Sequence[float], left_out: int = 0) -> MeanInterval:
    """The mean of independent values with its t interval, cut to the range that the measure can take."""
    if not values:
        return MeanInterval(measure, None, None, None, 0, left_out)
    mean = fmean(values)
    # One value has no spread, and equal ones would give an interval of no width, as if the mean were known for certain.
    if min(values) == max(values):
        return MeanInterval(measure, mean, None, None, len(values), left_out)
    reach = float(t.ppf((1 + LEVEL) / 2, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    lowest, highest = _RANGES.get(measure, _NOT_NEGATIVE)
    return MeanInterval(measure, mean, max(lowest, mean - reach), min(highest, mean + reach), len(values), left_out)
