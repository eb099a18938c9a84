"""Impact ratios: how often each group is selected, against the group that is selected most often.

This is the table that bias audits of automated decisions report, for example under New York City's Local Law 144 (Rules
of the City of New York, title 6, section 5-301): selection rate by group, and each rate divided by the highest. The
rule counts groups by one attribute and by intersections, lets an audit leave out groups below 2 % of the data if it
says so with their number and rate, and asks for the number of people whose group is unknown. A score is turned into
outcomes by the rate above the median of all scores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from app.services.csv_files import to_csv
from app.services.errors import ServiceError
from coft_core.conformal.coverage import clopper_pearson

SMALL_SHARE = 0.02
"""Groups below this share of the data may be left out of the ratios."""
FOUR_FIFTHS = 0.8
"""Ratios below this are a common sign of adverse impact (29 CFR 1607.4 D); Local Law 144 itself sets no limit."""
JOINER = " × "

Outcome = tuple[str | None, bool]
"""Group, and whether the person or text was selected; None or an empty group is unknown."""

COLUMNS = (
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
        rows.append(dict.fromkeys(COLUMNS) | {"group": "unknown", "total": table.unknown, "note": "not in any rate"})
    return to_csv(COLUMNS, rows)


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
