"""A batch's rows for people: sorted, written as CSV, and summed up by group."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from statistics import fmean, stdev
from typing import Any

from scipy.stats import t

from app.services.prompts.files import PromptRow
from app.services.reports import to_csv
from app.services.verdict.rules import log_entry, standing
from app.services.views.batches import BatchOrder, BatchRowView, GroupTotals, MeanInterval, RowState
from db.records import AnnotationRecord, BatchRowRecord

MEASURES = (
    "steps", "certified_share", "fallbacks", "overruled", "mean_log_ratio", "max_log_ratio", "min_margin",
)  # fmt: skip
"""What is averaged by group, in the order of the tables."""

COLUMNS = (
    "line", "state", "session_id", "prompt", "group", "context", "continuation", "steps", "certified_share",
    "fallbacks", "overruled", "mean_log_ratio", "max_log_ratio", "min_margin", "certificate", "verdict", "verdicts",
    "reference", "error",
)  # fmt: skip
GROUP_COLUMNS = ("group", "measure", "mean", "low", "high", "contexts", "rows", "left_out", "interval")

INTERVAL = "95 % t interval of the mean over contexts; rows that share a context count once, by their mean"
LEVEL = 0.95

OPEN = ("waiting", "unfinished", "failed")
"""States of rows that can still be run."""

_SHARES = ("certified_share", "mean_tv_factual", "parted")
_RANGES = dict.fromkeys(_SHARES, (0.0, 1.0)) | {"min_margin": (-math.inf, math.inf)}
_NOT_NEGATIVE = (0.0, math.inf)


def row_views(
    records: Iterable[BatchRowRecord], prompts: Iterable[PromptRow], log: Iterable[AnnotationRecord]
) -> list[BatchRowView]:
    """Rows in the order of their lines.

    Args:
        records: What became of each row.
        prompts: The prompt set's rows; must hold every record's line.
        log: Verdict logs of the sessions, one after another.
    """
    by_line = {row.line: row for row in prompts}
    verdicts = {session: _verdicts(list(own)) for session, own in groupby(log, key=attrgetter("session_id"))}
    return [_row_view(record, by_line[record.line], *verdicts.get(record.session_id, ("", 0))) for record in records]


def sorted_rows(rows: Iterable[BatchRowView], order: BatchOrder, descending: bool) -> tuple[BatchRowView, ...]:
    """Rows sorted by one of their fields, then by line; what has no value stands last either way."""
    lines = sorted(rows, key=attrgetter("line"))
    known = [row for row in lines if getattr(row, order) not in (None, "")]
    rest = [row for row in lines if getattr(row, order) in (None, "")]
    known.sort(key=lambda row: _sort_key(getattr(row, order)), reverse=descending)
    return (*known, *rest)


def group_totals(rows: Iterable[BatchRowView]) -> tuple[GroupTotals, ...]:
    """Means of each group's finished rows with intervals, groups in the order of their first rows."""
    found: defaultdict[str | None, list[BatchRowView]] = defaultdict(list)
    for row in sorted(rows, key=attrgetter("line")):
        if row.state == "finished":
            found[row.group].append(row)
    return tuple(
        GroupTotals(group, len(own), len({_unit(row) for row in own}), tuple(_mean(own, name) for name in MEASURES))
        for group, own in found.items()
    )


def rows_csv(rows: Iterable[BatchRowView]) -> str:
    """The rows as RFC 4180 text, safe in a spreadsheet."""
    return to_csv(COLUMNS, (_cells(row) for row in rows))


def groups_csv(groups: Iterable[GroupTotals]) -> str:
    """Totals by group as RFC 4180 text, one row a group and measure."""
    return to_csv(
        GROUP_COLUMNS,
        (
            {
                "group": group.group,
                "measure": item.measure,
                "mean": item.mean,
                "low": item.low,
                "high": item.high,
                "contexts": item.contexts,
                "rows": group.rows,
                "left_out": item.left_out,
                "interval": INTERVAL,
            }
            for group in groups
            for item in group.means
        ),
    )


def mean_interval(measure: str, values: Sequence[float], left_out: int = 0) -> MeanInterval:
    """The mean of independent values with its t interval, cut to the range that the measure can take.

    Args:
        measure: Name of the measure.
        values: One finite value a context.
        left_out: Rows without one.
    """
    if not values:
        return MeanInterval(measure, None, None, None, 0, left_out)
    mean = fmean(values)
    # One value has no spread, and equal ones would give an interval of no width, as if the mean were known for certain.
    if min(values) == max(values):
        return MeanInterval(measure, mean, None, None, len(values), left_out)
    reach = float(t.ppf((1 + LEVEL) / 2, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    lowest, highest = _RANGES.get(measure, _NOT_NEGATIVE)
    return MeanInterval(measure, mean, max(lowest, mean - reach), min(highest, mean + reach), len(values), left_out)


def _row_view(record: BatchRowRecord, prompt: PromptRow, verdict: str, verdicts: int) -> BatchRowView:
    certificate = record.certificate or ""
    thresholded = record.steps > 0 and (certificate == "certified" or "policy mismatch" in certificate)
    return BatchRowView(
        line=record.line,
        state=_state(record),
        session_id=record.session_id,
        prompt=prompt.example.prompt,
        reference=prompt.example.reference,
        group=prompt.example.group,
        context=prompt.example.context,
        text=record.text,
        error="" if record.finished else record.error or "",
        certificate=certificate,
        verdict=verdict,
        verdicts=verdicts,
        steps=record.steps,
        certified_share=record.certified / record.steps if record.steps and certificate == "certified" else None,
        fallbacks=record.fallbacks if thresholded else None,
        overruled=record.overruled if thresholded else None,
        mean_log_ratio=record.mean_log_ratio,
        max_log_ratio=record.max_log_ratio,
        min_margin=record.min_margin if thresholded else None,
        archived=record.archived,
    )


def _state(record: BatchRowRecord) -> RowState:
    if record.finished:
        return "finished"
    if record.error:
        return "failed"
    if not record.begun:
        return "waiting"
    return "deleted" if record.session_id is None else "unfinished"


def _verdicts(records: list[AnnotationRecord]) -> tuple[str, int]:
    """How the verdict on the whole session stands, and on how many targets one does."""
    found = [item for item in standing([log_entry(record) for record in records]) if item.status != "withdrawn"]
    whole = next((item for item in found if item.target.kind == "session"), None)
    if whole is None:
        return "", len(found)
    return whole.verdict or "disputed", len(found)


def _sort_key(value: Any) -> Any:
    return value.casefold() if isinstance(value, str) else value


def _unit(row: BatchRowView) -> tuple[str, str | int]:
    """What is independent of the rest: the row's context, else the row itself."""
    return ("line", row.line) if row.context is None else ("context", row.context)


def _mean(rows: Sequence[BatchRowView], measure: str) -> MeanInterval:
    by_unit: defaultdict[tuple[str, str | int], list[float]] = defaultdict(list)
    left_out = 0
    for row in rows:
        value = getattr(row, measure)
        if value is None or not math.isfinite(value):
            left_out += 1
        else:
            by_unit[_unit(row)].append(float(value))
    return mean_interval(measure, [fmean(values) for values in by_unit.values()], left_out)


def _cells(row: BatchRowView) -> dict[str, object]:
    cells: dict[str, object] = {name: getattr(row, name) for name in COLUMNS if name != "continuation"}
    return cells | {"continuation": row.text}
