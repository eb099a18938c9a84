"""Impact ratios: how often each group is selected, against the group that is selected most often.

This is the table that bias audits of automated decisions report, for example under New York City's Local Law 144 (Rules
of the City of New York, title 6, section 5-301): selection rate by group, and each rate divided by the highest. The
rule counts groups by one attribute and by intersections, lets an audit leave out groups below 2 % of the data if it
says so with their number and rate, and asks for the number of people whose group is unknown. A score is turned into
outcomes by the rate above the median of all scores.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import attrgetter
from statistics import fmean, median, stdev
from typing import Any

import regex  # type: ignore[import-untyped]
from scipy.stats import t

from app.batch.types import (
    BatchOrder,
    BatchRowView,
    BatchSummary,
    BatchView,
    GroupTotals,
    MeanInterval,
    OutcomeRule,
    Outcomes,
    RowOutcome,
    RowState,
)
from app.review.log import log_entry, standing
from app.shared.errors import ServiceError
from app.shared.files import to_csv
from app.shared.json import job_json, settings_json
from app.shared.prompt_sets import PromptRow
from coft_core.conformal.coverage import clopper_pearson
from db.records import AnnotationRecord, BatchRowRecord

SECONDS_PER_TEXT = 1.0
"""Longest search of one continuation; a badly written expression would otherwise never end."""


def outcomes_of(rows: Iterable[BatchRowView], rule: OutcomeRule) -> Outcomes:
    """The outcomes of a batch's rows.

    Args:
        rows: The rows; only finished ones have an outcome.
        rule: How a continuation is read.

    Raises:
        ServiceError: The rule has no word, an expression cannot be read, or a search takes too long.
    """
    selected, other = _pattern(rule.selected, rule), _pattern(rule.other, rule) if rule.other.strip() else None
    decided, undecided, unfinished = [], [], []
    for row in rows:
        if row.state != "finished":
            unfinished.append(row.line)
            continue
        at = _first(selected, row)
        against = None if other is None else _first(other, row)
        if other is not None and at is None and against is None:
            undecided.append(row.line)
        else:
            decided.append(RowOutcome(row.line, row.group, at is not None and (against is None or at < against)))
    return Outcomes(tuple(decided), tuple(undecided), tuple(unfinished))


def _pattern(text: str, rule: OutcomeRule) -> regex.Pattern[str]:
    if not text.strip():
        raise ServiceError("No word is given, so nothing tells who is selected; write one, such as hired.")
    flags = 0 if rule.match_case else regex.IGNORECASE
    if not rule.regex:
        # "hire" must not be found in "hired"; a word that ends in a sign, such as C++, still is.
        words = r"\s+".join(regex.escape(word) for word in text.split())
        return regex.compile(rf"(?<!\w){words}(?!\w)", flags)
    try:
        return regex.compile(text, flags)
    except regex.error as error:
        raise ServiceError(
            f"{text!r} is not a regular expression ({error}); correct it, or search for words."
        ) from error


def _first(pattern: regex.Pattern[str], row: BatchRowView) -> int | None:
    try:
        found = pattern.search(row.text, timeout=SECONDS_PER_TEXT)
    except TimeoutError as error:
        raise ServiceError(
            f"Searching line {row.line} for {pattern.pattern!r} takes too long; write a simpler expression."
        ) from error
    return None if found is None else found.start()


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


SMALL_SHARE = 0.02
"""Groups below this share of the data may be left out of the ratios."""
FOUR_FIFTHS = 0.8
"""Ratios below this are a common sign of adverse impact (29 CFR 1607.4 D); Local Law 144 itself sets no limit."""
JOINER = " × "

Outcome = tuple[str | None, bool]
"""Group, and whether the person or text was selected; None or an empty group is unknown."""

IMPACT_COLUMNS = (
    "group", "total", "selected", "share", "selection_rate", "rate_low", "rate_high", "impact_ratio", "reference",
    "below_four_fifths", "small", "note",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ImpactRow:
    """One group.

    Attributes:
        group: Its name; intersections join the names of both attributes.
        total: Members with a known group.
        selected: How many were selected.
        share: Its share of all with a known group.
        rate: Selection rate.
        low: Lower end of the exact 95 % interval of the rate.
        high: Upper end.
        ratio: Rate divided by the highest rate; None where the group is left out or nobody was selected.
        reference: Whether its rate is the highest one.
        small: Whether it is below 2 % of the data.
        note: What must be said with it; empty otherwise.
    """

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
class ImpactTable:
    """Selection rates and impact ratios of all groups.

    Attributes:
        rows: One a group, in the order in which groups first appear.
        unknown: Outcomes whose group is unknown; they are in no row.
        excluded: Whether small groups were left out of the ratios.
        notes: Sentences that must be shown with the table.
    """

    rows: tuple[ImpactRow, ...]
    unknown: int
    excluded: bool
    notes: tuple[str, ...]

    @property
    def lowest(self) -> ImpactRow | None:
        """The group with the lowest ratio; None if there is no ratio."""
        rated = [row for row in self.rows if row.ratio is not None]
        return min(rated, key=lambda row: row.ratio or 0.0, default=None)


def impact_table(outcomes: Sequence[Outcome], exclude_small: bool = False) -> ImpactTable:
    """Selection rates by group with exact intervals, and impact ratios.

    Args:
        outcomes: Group and outcome of each person or text; None or an empty group is counted as unknown.
        exclude_small: Leave groups below 2 % of the data out of the ratios: they have none, and do not set the highest
            rate. Their numbers and rates stay in the table.

    Raises:
        ServiceError: No outcome has a group.
    """
    known = [(group, bool(selected)) for group, selected in outcomes if group is not None and group.strip()]
    if not known:
        raise ServiceError("No outcome has a group, so there is nothing to compare; name the groups.")
    totals = Counter(group for group, _ in known)
    chosen = Counter(group for group, selected in known if selected)
    rates = {group: chosen[group] / total for group, total in totals.items()}
    small = {group for group, total in totals.items() if total / len(known) < SMALL_SHARE}
    rated = [group for group in totals if not (exclude_small and group in small)]
    highest = max((rates[group] for group in rated), default=0.0)
    rows = []
    for group, total in totals.items():
        low, high = clopper_pearson(chosen[group], total)
        counts = group in rated and highest > 0
        rows.append(
            ImpactRow(
                group=group,
                total=total,
                selected=chosen[group],
                share=total / len(known),
                rate=rates[group],
                low=low,
                high=high,
                ratio=rates[group] / highest if counts else None,
                reference=counts and rates[group] == highest,
                small=group in small,
                note=_note(group in small, exclude_small),
            )
        )
    unknown = len(outcomes) - len(known)
    return ImpactTable(tuple(rows), unknown, exclude_small and bool(small), _notes(rows, unknown, exclude_small))


def intersectional_table(
    outcomes: Sequence[tuple[str | None, str | None, bool]], exclude_small: bool = False
) -> ImpactTable:
    """The same by intersections of two attributes.

    Args:
        outcomes: First attribute, second attribute and outcome; an intersection with an unknown part is unknown.
        exclude_small: As in :func:`impact_table`.

    Raises:
        ServiceError: No outcome has both attributes.
    """

    def joined(first: str | None, second: str | None) -> str | None:
        return f"{first}{JOINER}{second}" if first and second and first.strip() and second.strip() else None

    return impact_table([(joined(first, second), selected) for first, second, selected in outcomes], exclude_small)


def above_median(scores: Sequence[tuple[str | None, float]]) -> list[Outcome]:
    """Outcomes of a tool that scores instead of selecting: who is above the median of all scores with a known group.

    Args:
        scores: Group and score of each person or text.

    Raises:
        ServiceError: No score has a group.
    """
    known = [score for group, score in scores if group is not None and group.strip()]
    if not known:
        raise ServiceError("No score has a group, so there is nothing to compare; name the groups.")
    middle = median(known)
    return [(group, score > middle) for group, score in scores]


def impact_csv(table: ImpactTable) -> str:
    """The table as RFC 4180 text, safe in a spreadsheet; unknown groups are a last row without a rate."""
    rows: list[dict[str, object]] = [
        {
            "group": row.group,
            "total": row.total,
            "selected": row.selected,
            "share": row.share,
            "selection_rate": row.rate,
            "rate_low": row.low,
            "rate_high": row.high,
            "impact_ratio": row.ratio,
            "reference": row.reference,
            "below_four_fifths": row.below_four_fifths,
            "small": row.small,
            "note": row.note,
        }
        for row in table.rows
    ]
    if table.unknown:
        rows.append(
            dict.fromkeys(IMPACT_COLUMNS) | {"group": "unknown", "total": table.unknown, "note": "not in any rate"}
        )
    return to_csv(IMPACT_COLUMNS, rows)


def _note(small: bool, exclude_small: bool) -> str:
    if not small:
        return ""
    if exclude_small:
        return f"below {SMALL_SHARE:.0%} of the data: left out of the impact ratios"
    return f"below {SMALL_SHARE:.0%} of the data: the rule allows it to be left out of the impact ratios"


def _notes(rows: Sequence[ImpactRow], unknown: int, exclude_small: bool) -> tuple[str, ...]:
    small = [row for row in rows if row.small]
    notes = []
    if small and exclude_small:
        listed = ", ".join(f"{row.group} ({row.selected} of {row.total} selected)" for row in small)
        notes.append(f"Left out of the impact ratios, each below {SMALL_SHARE:.0%} of the data: {listed}.")
    elif small:
        listed = ", ".join(row.group for row in small)
        notes.append(
            f"Below {SMALL_SHARE:.0%} of the data, so that their ratios rest on few outcomes and the rule allows them "
            f"to be left out: {listed}."
        )
    if all(row.ratio is None for row in rows):
        notes.append("Nobody was selected, so there are no impact ratios.")
    if unknown:
        counted = (
            "1 outcome without a known group is" if unknown == 1 else f"{unknown} outcomes without a known group are"
        )
        notes.append(f"{counted} in no rate.")
    return tuple(notes)


def batch_json(view: BatchView) -> dict[str, Any]:
    """A batch with its rows and totals."""
    return {
        "batch_id": view.id,
        "name": view.name,
        "filename": view.filename,
        "created_at": view.created_at.isoformat(),
        "settings": settings_json(view.request.settings),
        "same_seed": view.request.same_seed,
        "group_thresholds": view.request.group_thresholds,
        "job": None if view.job is None else job_json(view.job),
        "resumable": view.resumable,
        "counts": dict(view.counts),
        "rows": [row_json(row) for row in view.rows],
        "groups": [totals_json(group) for group in view.groups],
        "notes": list(view.notes),
    }


def row_json(row: BatchRowView) -> dict[str, Any]:
    """One prompt of a batch."""
    return {name: _finite(value) for name, value in asdict(row).items()}


def totals_json(group: GroupTotals) -> dict[str, Any]:
    """Means of a group's finished rows by measure."""
    means = {item.measure: {name: value for name, value in asdict(item).items() if name != "measure"}
             for item in group.means}  # fmt: skip
    return {"group": group.group, "rows": group.rows, "contexts": group.contexts, "means": means}


def batch_summary_json(item: BatchSummary) -> dict[str, Any]:
    """A batch in a list."""
    return {
        "batch_id": item.id,
        "name": item.name,
        "created_at": item.created_at.isoformat(),
        "prompts": item.rows,
        "job": None if item.job is None else job_json(item.job),
    }


def impact_json(table: ImpactTable, found: Outcomes, rule: OutcomeRule) -> dict[str, Any]:
    """Selection rates and impact ratios, with the rule and the rows that they rest on."""
    return {
        "rule": asdict(rule),
        "groups": [{**asdict(row), "below_four_fifths": row.below_four_fifths} for row in table.rows],
        "unknown": table.unknown,
        "excluded": table.excluded,
        "undecided": list(found.undecided),
        "unfinished": list(found.unfinished),
        "notes": [*table.notes, *found.notes],
    }


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
