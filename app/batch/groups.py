"""Whether two groups are selected unlike within contexts, beside how unlike rows of one group are."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations, product
from statistics import fmean

from app.batch.impact import Outcomes
from app.shared.format import p_text, percentage, plural, signed
from app.shared.impact import ImpactTable
from coft_core.controls.statistics import GroupDifference, between_groups

NO_CONTEXT = (
    "Nothing says which rows belong together, so that the groups are compared with nothing. Give rows that differ only "
    "in the group the same value in a column “context”."
)
NOT_TOGETHER = "No context has rows of both {groups}, so that they are compared with nothing."
NO_WORDINGS = (
    "No context has two rows of one group, so that nothing says how much a mere rewording changes. Add rewordings, or "
    "several names of each group, in the same context."
)


@dataclass(frozen=True, slots=True)
class GroupControl:
    """The most and the least selected group, compared within contexts.

    Attributes:
        groups: Both, the one that is selected most often first.
        contexts: Contexts with rows of both.
        pairs: Pairs of groups, one of which was chosen by its rates; ``p_value`` is corrected for them.
        found: The difference of their rates against rows that change groups within their context; None without any.
        between: Share of the pairs of rows of a context, one of each group, with unlike outcomes; a mean over contexts.
        within: The same for pairs of rows of one group; None where no context has any.
        missing: What the set lacks for a comparison.
    """

    groups: tuple[str, str]
    contexts: int
    pairs: int
    found: GroupDifference | None = None
    p_value: float | None = None
    between: float | None = None
    within: float | None = None
    missing: str = ""


def group_control(table: ImpactTable, outcomes: Outcomes) -> GroupControl | None:
    """Compare the groups that the impact ratio compares; None where it compares none."""
    if (compared := table.compared) is None:
        return None
    rated = sum(row.ratio is not None for row in table.rows)
    names, pairs = (compared[0].group, compared[1].group), rated * (rated - 1) // 2
    by_context: defaultdict[str, dict[str, list[float]]] = defaultdict(lambda: {name: [] for name in names})
    for (group, selected), context in zip(outcomes.pairs, outcomes.contexts, strict=True):
        if context is not None and group in names:
            by_context[context][group].append(float(selected))
    both = [(own[names[0]], own[names[1]]) for own in by_context.values() if own[names[0]] and own[names[1]]]
    if not both:
        missing = NOT_TOGETHER.format(groups=" and ".join(names)) if by_context else NO_CONTEXT
        return GroupControl(names, 0, pairs, missing=missing)
    found = between_groups([first for first, _ in both], [second for _, second in both])
    alike = [[a != b for group in members for a, b in combinations(group, 2)] for members in both]
    alike = [fmean(own) for own in alike if own]
    return GroupControl(
        groups=names,
        contexts=len(both),
        pairs=pairs,
        found=found,
        p_value=min(1.0, pairs * found.p_value),
        between=fmean(fmean(a != b for a, b in product(first, second)) for first, second in both),
        within=fmean(alike) if alike else None,
        missing="" if alike else NO_WORDINGS,
    )


def group_said(control: GroupControl | None) -> list[str]:
    """How both groups differ within contexts, and whether mere rewordings differ as much."""
    if control is None:
        return []
    said, (first, second) = [], control.groups
    if control.found is not None and control.p_value is not None and control.between is not None:
        found, chosen = control.found, f", corrected for {control.pairs} pairs of groups" if control.pairs > 1 else ""
        said.append(
            f"Within {plural(control.contexts, 'context')} the rates of {first} and {second} differ by "
            f"{signed(100 * found.difference, 1)} points (95 % interval {signed(100 * found.low, 1)} to "
            f"{signed(100 * found.high, 1)}, {p_text(control.p_value)} when rows change groups{chosen})."
        )
        if control.within is not None:
            larger = "larger than" if control.between > control.within else "no larger than"
            said.append(
                f"The difference between the groups is {larger} between wordings of one group. Of the pairs of rows "
                f"{percentage(control.between)} differ between the groups and {percentage(control.within)} within one."
            )
    return [*said, control.missing] if control.missing else said
