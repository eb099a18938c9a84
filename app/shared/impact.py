"""Impact ratios: how often each group is selected, against the group that is selected most often.

This is the table that bias audits of automated decisions report, for example under New York City's Local Law 144 (Rules
of the City of New York, title 6, section 5-301): selection rate by group, and each rate divided by the highest. The
rule lets an audit leave out groups below 2 % of the data if it says so with their number and rate, and asks for the
number of people whose group is unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from scipy.stats.contingency import relative_risk

from app.shared.errors import ServiceError
from app.shared.files import to_csv
from app.shared.formal_reports import ImpactRow
from app.shared.format import count, percentage, plural
from coft_core.conformal.coverage import clopper_pearson


@dataclass(frozen=True)
class OutcomeRule:
    """How a continuation is read as an outcome.

    Attributes:
        selected: A word or phrase, or a regular expression: whoever's continuation has it is selected.
        other: A second one; with it, the one that stands first decides, and where neither does nothing is decided.
        regex: Whether they are regular expressions instead of words.
        match_case: Whether letter case matters.
    """

    selected: str
    other: str = ""
    regex: bool = False
    match_case: bool = False


Outcome = tuple[str | None, bool]
"""Group, and whether the person or text was selected; None or an empty group is unknown."""
Interval = tuple[float, float]


SMALL_SHARE = 0.02
"""Groups below this share of the data may be left out of the ratios."""


@dataclass(frozen=True, slots=True)
class ImpactTable:
    """Selection rates and impact ratios of all groups."""

    rows: tuple[ImpactRow, ...]
    unknown: int
    excluded: bool
    notes: tuple[str, ...]

    @property
    def lowest(self) -> ImpactRow | None:
        """The group with the lowest ratio; None if there is no ratio."""
        rated = [row for row in self.rows if row.ratio is not None]
        return min(rated, key=lambda row: row.ratio or 0.0, default=None)

    @property
    def compared(self) -> tuple[ImpactRow, ImpactRow] | None:
        """The group with the highest and that with the lowest rate; None where no two groups have a ratio."""
        highest = next((row for row in self.rows if row.reference), None)
        others = [row for row in self.rows if row.ratio is not None and row is not highest]
        return (highest, min(others, key=lambda row: row.ratio or 0.0)) if highest and others else None


def impact_table(outcomes: Sequence[Outcome], exclude_small: bool = False) -> ImpactTable:
    """Selection rates by group with exact intervals, and impact ratios."""
    known = [(group, bool(selected)) for group, selected in outcomes if group is not None and group.strip()]
    if not known:
        raise ServiceError("No outcome has a group, so there is nothing to compare; name the groups.")
    totals, selections = Counter(group for group, _ in known), Counter(group for group, selected in known if selected)
    small = {group for group, total in totals.items() if total / len(known) < SMALL_SHARE}
    rates = {group: selections[group] / total for group, total in totals.items()}
    highest = max((rate for group, rate in rates.items() if not (exclude_small and group in small)), default=0.0)
    effect = "left out of" if exclude_small else "the rule allows it to be left out of"
    note = f"below {SMALL_SHARE:.0%} of the data: {effect} the impact ratios"
    rows = []
    for group, total in totals.items():
        low, high = clopper_pearson(selections[group], total)
        rated = highest > 0 and not (exclude_small and group in small)
        rows.append(
            ImpactRow(
                group=group,
                total=total,
                selected=selections[group],
                share=total / len(known),
                rate=rates[group],
                low=low,
                high=high,
                ratio=rates[group] / highest if rated else None,
                reference=rated and rates[group] == highest,
                small=group in small,
                note=note if group in small else "",
            )
        )
    unknown = len(outcomes) - len(known)
    return ImpactTable(tuple(rows), unknown, exclude_small and bool(small), _notes(rows, unknown, exclude_small))


def ratio_interval(group: ImpactRow, reference: ImpactRow) -> Interval | None:
    """95 % interval of a group's selection rate over the reference group's (Katz et al. 1978, on the log scale).

    The reference is the group that was selected most often, as if it had been named in advance. Where nobody of the
    group was selected, the log scale has no interval; then the limits of both rates' exact intervals are divided, each
    at half the risk, which is wider than need be. None where nobody of the reference was selected.
    """
    if not reference.selected:
        return None
    if not group.selected:
        least = clopper_pearson(reference.selected, reference.total, 0.975)[0]
        return 0.0, clopper_pearson(0, group.total, 0.975)[1] / least
    ratio = relative_risk(group.selected, group.total, reference.selected, reference.total)
    low, high = ratio.confidence_interval(0.95)
    return float(low), float(high)


def _notes(rows: Sequence[ImpactRow], unknown: int, exclude_small: bool) -> tuple[str, ...]:
    small = [row for row in rows if row.small]
    notes = []
    if small and exclude_small:
        listed = ", ".join(f"{row.group} ({row.selected} of {row.total} selected)" for row in small)
        notes.append(f"Left out of the impact ratios, each below {SMALL_SHARE:.0%} of the data: {listed}.")
    elif small:
        notes.append(
            f"Below {SMALL_SHARE:.0%} of the data, so that their ratios rest on few outcomes and the rule allows them "
            f"to be left out: {', '.join(row.group for row in small)}."
        )
    if all(row.ratio is None for row in rows):
        notes.append("Nobody was selected, so there are no impact ratios.")
    if unknown:
        notes.append(f"{plural(unknown, 'outcome')} without a known group: in no rate.")
    return tuple(notes)


IMPACT_COLUMNS = (
    "group", "total", "selected", "share", "selection_rate", "rate_low", "rate_high", "impact_ratio", "reference",
    "below_four_fifths", "small", "note",
)  # fmt: skip


RATIO_ENDS = ("ratio_low", "ratio_high")


def impact_csv(
    table: ImpactTable, ratios: Mapping[str, Interval | None] | None = None, notes: Sequence[str] = ()
) -> str:
    """The table as RFC 4180 text, safe in a spreadsheet; unknown groups and notes are last rows without a rate.

    Where there are intervals of ratios by group, they are two further columns.
    """
    columns = IMPACT_COLUMNS if ratios is None else (*IMPACT_COLUMNS, *RATIO_ENDS)
    rows: list[dict[str, object]] = [
        {
            **asdict(row),
            "selection_rate": row.rate,
            "rate_low": row.low,
            "rate_high": row.high,
            "impact_ratio": row.ratio,
            "below_four_fifths": row.below_four_fifths,
            **dict(zip(RATIO_ENDS, (ratios or {}).get(row.group) or (None, None), strict=True)),
        }
        for row in table.rows
    ]
    if table.unknown:
        rows.append({"group": "unknown", "total": table.unknown, "note": "not in any rate"})
    rows.extend({"note": note} for note in notes)
    return to_csv(columns, ({**dict.fromkeys(columns), **row} for row in rows))


def impact_finding(impact: ImpactTable) -> str:
    """The lowest impact ratio with its interval, in one sentence; empty where no two groups are compared."""
    if impact.compared is None:
        return ""
    highest, lowest = impact.compared
    side = "below" if lowest.below_four_fifths else "not below"
    between = ""
    if (interval := ratio_interval(lowest, highest)) is not None:
        between = f", 95 % interval {interval[0]:.2f} to {interval[1]:.2f}"
    return (
        f"{lowest.group} is selected {lowest.ratio:.2f} times as often as {highest.group} (impact ratio "
        f"{lowest.ratio:.2f}{between}), {side} four fifths: {percentage(lowest.rate)} of {count(lowest.total)} against "
        f"{percentage(highest.rate)} of {count(highest.total)}."
    )
