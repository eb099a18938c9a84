"""The rows of a batch: what became of each prompt, sorted, filtered, and averaged by group."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import attrgetter
from statistics import fmean, stdev
from typing import Any, Literal, cast, get_args

from scipy.stats import t

from app.shared.errors import ServiceError
from app.shared.files import to_csv
from app.shared.verdicts import standing
from coft_core.types import Certificate
from db.batches import BatchRowRecord
from db.prompt_sets import PromptRow
from db.verdicts import AnnotationRecord

BatchOrder = Literal[
    "line", "prompt", "group", "steps", "certified_share", "fallbacks", "overruled", "mean_log_ratio", "max_log_ratio",
    "min_margin", "certificate", "verdict", "state",
]  # fmt: skip
"""What the rows of a batch are sorted by."""

RowState = Literal["waiting", "unfinished", "finished", "failed", "deleted"]
"""Not begun; begun and not at its end; at its end; could not be run; its session has been deleted since."""

OPEN = ("waiting", "unfinished", "failed")
"""States of rows that can still be run."""


@dataclass(frozen=True, slots=True)
class BatchRowView:
    """One prompt of a batch and what its session says; numbers are of the session's main branch.

    Attributes:
        line: Line in the file.
        state: How far it is.
        session_id: Its session; None if there is none.
        prompt: Its prompt.
        reference: Its reference, if it has one.
        group: Its group.
        context: Its context.
        text: The continuation so far.
        error: Why it could not be run; empty if it could.
        certificate: What may be claimed of the session; empty without one.
        verdict: How the verdict on the whole session stands: ``fair``, ``unfair``, ``unclear``, ``disputed`` or empty.
        verdicts: Tokens, spans, branches and sessions on which a verdict stands.
        steps: Number of tokens.
        certified_share: Share of them that are certified; None without tokens, or where the session is uncertified.
        fallbacks: Steps at which no token was certified; None where nothing is thresholded.
        overruled: Steps at which certification refused the token that the fused view finds likeliest, others being
            certified; None where nothing is thresholded.
        mean_log_ratio: Mean absolute log-ratio of the tokens' factual to masked probability; None without tokens.
        max_log_ratio: Largest of them.
        min_margin: Smallest margin by which a token's support clears the threshold, in nats; None without tokens
            or where nothing is thresholded; infinite where the thresholds certify everything.
        archived: Whether the session is archived.
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

    @property
    def unit(self) -> tuple[str, str | int]:
        """What is independent of the rest: the row's context, else the row itself."""
        return ("line", self.line) if self.context is None else ("context", self.context)


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
    verdicts = {session: _verdict(list(entries)) for session, entries in groupby(log, key=attrgetter("session_id"))}
    return [_row_view(record, by_line[record.line], *verdicts.get(record.session_id, ("", 0))) for record in records]


def _row_view(record: BatchRowRecord, row: PromptRow, verdict: str, verdicts: int) -> BatchRowView:
    certificate = record.certificate or ""
    claim = Certificate.read(certificate)
    thresholded = record.steps > 0 and claim.thresholded
    return BatchRowView(
        line=record.line,
        state=_state(record),
        session_id=record.session_id,
        prompt=row.example.prompt,
        reference=row.example.reference,
        group=row.example.group,
        context=row.example.context,
        text=record.text,
        error="" if record.finished else record.error or "",
        certificate=certificate,
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
    """How the verdict on the whole session stands, and on how many targets one does."""
    verdicts = [item for item in standing(log) if item.status != "withdrawn"]
    whole = next((item.verdict or "disputed" for item in verdicts if item.target.kind == "session"), "")
    return whole, len(verdicts)


def sorted_rows(rows: Iterable[BatchRowView], order: BatchOrder, descending: bool) -> tuple[BatchRowView, ...]:
    """Rows sorted by one of their fields, then by line; what has no value stands last either way."""

    def key(row: BatchRowView) -> Any:
        value = getattr(row, order)
        return value.casefold() if isinstance(value, str) else value

    lines = sorted(rows, key=attrgetter("line"))
    known = [row for row in lines if getattr(row, order) not in (None, "")]
    rest = [row for row in lines if getattr(row, order) in (None, "")]
    return (*sorted(known, key=key, reverse=descending), *rest)


SIZES = (25, 50, 100)
NO_GROUP = "none"
"""Filter value for rows without a group; that of a named one begins with :data:`NAMED`."""
NAMED = "g:"


@dataclass(frozen=True, slots=True)
class BatchQuery:
    """Which rows of a batch are shown, and in what order.

    Attributes:
        batch: The batch.
        order: What the rows are sorted by.
        descending: From the largest to the smallest.
        text: Words that the prompt, the continuation or the context must hold.
        group: Filter value of a group; empty for all.
        state: A state; empty for all.
        page: The page, from 1.
        size: Rows on a page.
    """

    batch: int
    order: BatchOrder = "line"
    descending: bool = False
    text: str = ""
    group: str = ""
    state: str = ""
    page: int = 1
    size: int = SIZES[0]

    def filtered(self, rows: Iterable[BatchRowView]) -> list[BatchRowView]:
        """The rows that the filters let through, in their order."""
        words = self.text.casefold()
        return [
            row
            for row in rows
            if words in f"{row.prompt}\n{row.text}\n{row.context or ''}".casefold()
            and self.group in ("", group_value(row.group))
            and self.state in ("", row.state)
        ]

    def paged(self, rows: Sequence[BatchRowView]) -> tuple[Sequence[BatchRowView], int, int]:
        """The rows of the page, or of the last one; its number, and the number of pages."""
        pages = max(1, -(-len(rows) // self.size))
        page = min(self.page, pages)
        return rows[(page - 1) * self.size : page * self.size], page, pages


def group_value(group: str | None) -> str:
    """Filter value of a group."""
    return NO_GROUP if group is None else f"{NAMED}{group}"


def batch_query(address: Mapping[str, Any]) -> BatchQuery:
    """Which rows the page asks for.

    Args:
        address: By name: ``batch``, ``order``, ``down``, ``text``, ``group``, ``state``, ``page`` and ``size``.

    Raises:
        ServiceError: A value is none of those that there are.
    """
    return BatchQuery(
        batch=whole_number(address, "batch"),
        order=cast(BatchOrder, _one_of(address, "order", get_args(BatchOrder), "line")),
        descending=bool(address.get("down")),
        text=str(address.get("text") or "").strip(),
        group=str(address.get("group") or ""),
        state=_one_of(address, "state", ("", *get_args(RowState)), ""),
        page=max(1, whole_number(address, "page", 1)),
        size=min(SIZES[-1], max(1, whole_number(address, "size", SIZES[0]))),
    )


def whole_number(address: Mapping[str, Any], name: str, usual: int | None = None) -> int:
    """A whole number that the page sends.

    Raises:
        ServiceError: It is none.
    """
    value = address.get(name, usual)
    try:
        return int(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ServiceError(f"The address gives {value!r} for {name}; give a whole number.") from error


def _one_of(address: Mapping[str, Any], name: str, choices: Sequence[str], usual: str) -> str:
    value = str(address.get(name) or usual)
    if value not in choices:
        raise ServiceError(f"There is no {name} {value!r}; choose one of {', '.join(c for c in choices if c)}.")
    return value


MEASURES = (
    "steps", "certified_share", "fallbacks", "overruled", "mean_log_ratio", "max_log_ratio", "min_margin",
)  # fmt: skip
"""What is averaged by group, in the order of the tables."""

INTERVAL = "95 % t interval of the mean over contexts; rows that share a context count once, by their mean"
LEVEL = 0.95

_RANGES = dict.fromkeys(("certified_share", "mean_tv_factual", "parted"), (0.0, 1.0)) | {
    "min_margin": (-math.inf, math.inf)
}
_NOT_NEGATIVE = (0.0, math.inf)


@dataclass(frozen=True, slots=True)
class MeanInterval:
    """The mean of a measure over a group's contexts.

    Attributes:
        measure: Field of :class:`BatchRowView`.
        mean: Mean of the contexts' means; None if no row has a finite value.
        low: Lower end of the 95 % interval of the mean; None where fewer than two contexts differ, which tells nothing
            of its spread.
        high: Upper end.
        contexts: Contexts that it rests on.
        left_out: Finished rows without a finite value, which it leaves out.
    """

    measure: str
    mean: float | None
    low: float | None
    high: float | None
    contexts: int
    left_out: int


@dataclass(frozen=True, slots=True)
class GroupTotals:
    """What the finished rows of a group come to.

    Attributes:
        group: Its name; None for rows without a group.
        rows: Finished rows.
        contexts: Independent contexts among them; rows that share one count once.
        means: One a measure, in the order in which tables show them.
    """

    group: str | None
    rows: int
    contexts: int
    means: tuple[MeanInterval, ...]

    def mean(self, measure: str) -> MeanInterval:
        """The mean of a measure."""
        return next(mean for mean in self.means if mean.measure == measure)


def group_totals(rows: Iterable[BatchRowView]) -> tuple[GroupTotals, ...]:
    """Means of each group's finished rows with intervals, groups in the order of their first rows."""
    groups: defaultdict[str | None, list[BatchRowView]] = defaultdict(list)
    for row in sorted(rows, key=attrgetter("line")):
        if row.state == "finished":
            groups[row.group].append(row)
    return tuple(
        GroupTotals(
            group, len(members), len({row.unit for row in members}), tuple(_mean(members, name) for name in MEASURES)
        )
        for group, members in groups.items()
    )


def _mean(rows: Sequence[BatchRowView], measure: str) -> MeanInterval:
    by_unit: defaultdict[tuple[str, str | int], list[float]] = defaultdict(list)
    for row in rows:
        value = getattr(row, measure)
        if value is not None and math.isfinite(value):
            by_unit[row.unit].append(float(value))
    counted = sum(len(values) for values in by_unit.values())
    return mean_interval(measure, [fmean(values) for values in by_unit.values()], len(rows) - counted)


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


COLUMNS = (
    "line", "state", "session_id", "prompt", "group", "context", "continuation", "steps", "certified_share",
    "fallbacks", "overruled", "mean_log_ratio", "max_log_ratio", "min_margin", "certificate", "verdict", "verdicts",
    "reference", "error",
)  # fmt: skip
GROUP_COLUMNS = ("group", "measure", "mean", "low", "high", "contexts", "rows", "left_out", "interval")


def rows_csv(rows: Iterable[BatchRowView]) -> str:
    """The rows as RFC 4180 text, safe in a spreadsheet."""
    return to_csv(COLUMNS, ({**asdict(row), "continuation": row.text} for row in rows))


def groups_csv(groups: Iterable[GroupTotals]) -> str:
    """Totals by group as RFC 4180 text, one row a group and measure."""
    return to_csv(
        GROUP_COLUMNS,
        (
            {**asdict(mean), "group": group.group, "rows": group.rows, "interval": INTERVAL}
            for group in groups
            for mean in group.means
        ),
    )


def row_json(row: BatchRowView) -> dict[str, Any]:
    """One prompt of a batch; what is infinite is null."""
    fields = asdict(row)
    return {name: None if isinstance(v, float) and not math.isfinite(v) else v for name, v in fields.items()}


def totals_json(group: GroupTotals) -> dict[str, Any]:
    """Means of a group's finished rows by measure."""
    fields = asdict(group)
    return {**fields, "means": {mean.pop("measure"): mean for mean in fields["means"]}}
