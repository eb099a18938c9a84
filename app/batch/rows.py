"""The rows of a batch: what became of each prompt, sorted, filtered, and averaged by group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any, Literal, cast, get_args

from app.prompts.rows import INTERVAL, BatchRowView, MeanInterval, RowState, in_order, mean_over
from app.shared.files import to_csv
from app.shared.settings_json import one_of, whole

BatchOrder = Literal[
    "line", "prompt", "group", "steps", "certified_share", "fallbacks", "overruled", "mean_log_ratio", "max_log_ratio",
    "min_margin", "effect", "effect_p", "controls", "certificate", "verdict", "state",
]  # fmt: skip
"""What the rows of a batch are sorted by."""


def sorted_rows(rows: Iterable[BatchRowView], order: BatchOrder, descending: bool) -> tuple[BatchRowView, ...]:
    """Rows sorted by one of their fields, then by line; what has no value stands last either way."""
    return in_order(sorted(rows, key=attrgetter("line")), attrgetter(order), descending)


SIZES = (25, 50, 100)
NO_GROUP = "none"
"""Filter value for rows without a group; that of a named one begins with :data:`NAMED`."""
NAMED = "g:"


@dataclass(frozen=True, slots=True)
class BatchQuery:
    """Which rows of a batch are shown, and in what order."""

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
    """Which rows the page asks for."""
    return BatchQuery(
        batch=whole(address, "batch"),
        order=cast(BatchOrder, one_of(address, "order", get_args(BatchOrder), "line")),
        descending=bool(address.get("down")),
        text=str(address.get("text") or "").strip(),
        group=str(address.get("group") or ""),
        state=one_of(address, "state", ("", *get_args(RowState))),
        page=max(1, whole(address, "page", usual=1)),
        size=min(SIZES[-1], max(1, whole(address, "size", usual=SIZES[0]))),
    )


MEASURES = (
    "steps", "certified_share", "fallbacks", "overruled", "mean_log_ratio", "max_log_ratio", "min_margin",
)  # fmt: skip
"""What is averaged by group, in the order of the tables."""


@dataclass(frozen=True, slots=True)
class GroupTotals:
    """What the finished rows of a group come to."""

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
            group=group,
            rows=len(members),
            contexts=len({row.unit for row in members}),
            means=tuple(mean_over(name, [(row.unit, getattr(row, name)) for row in members]) for name in MEASURES),
        )
        for group, members in groups.items()
    )


COLUMNS = (
    "line", "state", "session_id", "prompt", "group", "context", "continuation", "steps", "certified_share",
    "fallbacks", "overruled", "mean_log_ratio", "max_log_ratio", "min_margin", "effect", "effect_p", "controls",
    "certificate", "verdict", "verdicts", "reference", "error",
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


def totals_json(group: GroupTotals) -> dict[str, Any]:
    """Means of a group's finished rows by measure."""
    fields = asdict(group)
    return {**fields, "means": {mean.pop("measure"): mean for mean in fields["means"]}}
