"""Decisions that were made elsewhere: outcomes by group, without probabilities, and what can be said of them.

Everything follows from the rows: pages, reports and the verifier compute it with :func:`measured`.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import cached_property
from itertools import combinations
from typing import Any, Literal

import numpy as np
from pydantic import TypeAdapter

from app.shared.answers import answered, phrases
from app.shared.errors import ServiceError
from app.shared.files import to_csv
from app.shared.format import count, listed
from app.shared.impact import ImpactTable, Interval, OutcomeRule, impact_csv, impact_table
from coft_core.controls.result import LEVEL
from coft_core.controls.statistics import GroupDifference, between_groups, holm
from coft_core.controls.strata import (
    Counts,
    Selections,
    SeveralGroups,
    evidence,
    exact_p,
    ratio_interval,
    several_groups,
)
from coft_core.effects import visible
from coft_core.messages import Catalogue, catalogue

MOST_GROUPS = 20


@dataclass(frozen=True, slots=True)
class Decision:
    """One outcome; ``selected`` is None where its text decides nothing."""

    line: int
    group: str | None
    outcome: str
    selected: bool | None
    pair: str | None = None
    variant: str | None = None
    prompt: str | None = None


@dataclass(frozen=True)
class DecisionRule(OutcomeRule):
    """Who counts as selected, and which rows count.

    Attributes:
        selected: word or phrase of an outcome that means selected; not needed where outcomes are yes and no, 1 and 0
        other: a second one; the one that stands first decides
        regex: they are regular expressions
        match_case: letter case counts
        model: only the outcomes of this model
        exclude_small: leave groups below 2 % of the rows out of the impact ratios
    """

    selected: str = ""
    model: str = ""
    exclude_small: bool = False


YES, NO = {"1", "1.0", "true", "yes", "pass", "c"}, {"0", "0.0", "false", "no", "fail", "i"}
"""Outcomes that need no rule; Inspect writes C and I for right and wrong."""


def reader(
    rule: DecisionRule, file: str, form: str, decisions: Iterable[Decision]
) -> Callable[[Decision], bool | None]:
    """What reads the outcomes of a file; refuses one of which it is not known what means selected."""
    if rule.selected.strip():
        yes = phrases([rule.selected], rule.regex, rule.match_case)
        no = phrases([rule.other], rule.regex, rule.match_case) if rule.other.strip() else None
        return lambda row: answered(row.outcome, yes, no, f"{rows_called(form)} {row.line}")
    strange = Counter(row.outcome for row in decisions if row.outcome.casefold() not in YES | NO).most_common()
    if strange:
        shown = listed([f"“{text:.30}” ({count(many)})" for text, many in strange[:4]])
        others = " and others" if len(strange) > 4 else ""
        raise ServiceError(f"Say which outcome means selected; {file} has {shown}{others}.")
    return lambda row: row.outcome.casefold() in YES


def rows_called(form: str) -> str:
    """What the numbers of rows count: lines, or results of a file that has no lines."""
    return "result" if form in ("promptfoo", "Inspect log", "JSON") else "line"


@dataclass(frozen=True, slots=True)
class GroupsTest:
    """Two groups compared within strata, which are pairs, or all rows together where nothing is paired.

    Attributes:
        strata: Strata with rows of both.
        difference: Rate of the first less that of the second, over these.
        p_value: Of the exact test; McNemar's where each stratum has one row of each.
        adjusted: The same by Holm over all pairs of groups.
        e_value: Evidence of all rows in the file's order, over the number of pairs of groups.
        most: The most evidence after any row, likewise.
    """

    first: str
    second: str
    strata: int
    difference: float
    p_value: float
    adjusted: float
    e_value: float
    most: float


@dataclass(frozen=True, slots=True)
class VariantControl:
    """The difference between two groups beside that between variants of one group, such as names or wordings.

    Attributes:
        kind: ``names`` belong to one group each; ``wordings`` are the same for both.
        variants: How many the first and the second group have, or have in common.
        found: Whether variants could change groups: names all together, wordings each within itself.
        p_value: Its p-value, times the number of pairs of groups.
        within: The largest difference between the rates of two variants of one group.
    """

    first: str
    second: str
    kind: Literal["names", "wordings"]
    variants: tuple[int, int]
    found: GroupDifference
    p_value: float
    within: float

    @property
    def holds(self) -> bool:
        """Whether the groups differ more than variants of one group do."""
        large = self.kind == "names" or abs(self.found.difference) > self.within
        return self.p_value <= LEVEL and large


@dataclass(frozen=True, slots=True)
class Measured:
    """What decisions say together.

    Attributes:
        table: Rates with intervals over pairs, and impact ratios.
        ratios: The interval of each group's impact ratio.
        paired: Whether rows are compared within pairs.
        tests: Every two groups, compared.
        several: All groups at once, where there are more than two.
        control: The most and the least selected group beside variants; None where a variant or a group is missing.
        undecided: Lines whose outcome decides nothing.
    """

    table: ImpactTable
    ratios: Mapping[str, Interval | None]
    paired: bool
    tests: tuple[GroupsTest, ...]
    several: SeveralGroups | None
    control: VariantControl | None
    undecided: tuple[int, ...]

    @property
    def headline(self) -> GroupsTest | None:
        """The test of the most and the least selected group."""
        if self.table.compared is None:
            return None
        names = {row.group for row in self.table.compared}
        return next((test for test in self.tests if {test.first, test.second} == names), None)


def measured(decisions: Sequence[Decision], exclude_small: bool = False) -> Measured:
    """Measure decisions; rows without a group, or whose outcome decides nothing, are in no rate."""
    decided = [row for row in decisions if row.selected is not None]
    table = impact_table([(row.group, bool(row.selected)) for row in decided], exclude_small)
    if len(table.rows) > MOST_GROUPS:
        raise ServiceError(
            f"The rows name {count(len(table.rows))} groups, and at most {MOST_GROUPS} are compared; read groups from "
            "another column."
        )
    known = [row for row in decided if row.group is not None]
    units = [("line", str(row.line)) if row.pair is None else ("pair", row.pair) for row in known]
    selections = Selections.of(units, [str(row.group) for row in known], [bool(row.selected) for row in known])
    ends = {group: own.interval() for group, own in selections.items()}
    rows = tuple(replace(row, low=ends[row.group][0], high=ends[row.group][1]) for row in table.rows)
    table, names = replace(table, rows=rows), [row.group for row in rows if row.ratio is not None]
    highest = next((row.group for row in rows if row.reference), "")
    ratios = {name: ratio_interval(selections[name], selections[highest]) for name in names if name != highest}
    paired = any(row.pair is not None for row in known)
    tests = _tests(known, names, selections, paired)
    return Measured(
        table=table,
        ratios=ratios,
        paired=paired,
        tests=tests,
        several=_several(names, selections, paired) if len(names) > 2 else None,
        control=_control(known, table, len(tests)),
        undecided=tuple(row.line for row in decisions if row.selected is None),
    )


def _tests(
    known: Sequence[Decision], names: Sequence[str], selections: Mapping[Any, Selections], paired: bool
) -> tuple[GroupsTest, ...]:
    pairs, found = list(combinations(names, 2)), []
    for first, second in pairs:
        one, two = selections[first], selections[second]
        strata = np.column_stack([one.selected, one.totals, two.selected, two.totals])  # (U, 4)
        strata = strata[(one.totals > 0) & (two.totals > 0)] if paired else strata.sum(axis=0, keepdims=True)
        order = strata if paired else _in_turn(known, first, second)
        found.append((strata, exact_p(strata), evidence(order)))
    adjusted = holm([p_value for _, p_value, _ in found])
    return tuple(
        GroupsTest(
            first=first,
            second=second,
            strata=len(strata),
            difference=_difference(strata),
            p_value=p_value,
            adjusted=own,
            e_value=float(bets[-1] if len(bets) else 1.0) / len(pairs),
            most=float(bets.max(initial=1.0)) / len(pairs),
        )
        for (first, second), (strata, p_value, bets), own in zip(pairs, found, adjusted, strict=True)
    )


def _in_turn(known: Iterable[Decision], first: str, second: str) -> list[tuple[int, int, int, int]]:
    """The k-th row of a group with the k-th of the other: pairs by order, where nothing else makes any."""
    ones, twos = ([int(bool(row.selected)) for row in known if row.group == name] for name in (first, second))
    return [(a, 1, b, 1) for a, b in zip(ones, twos, strict=False)]


def _difference(strata: Counts) -> float:
    return float((strata[:, 0] / strata[:, 1] - strata[:, 2] / strata[:, 3]).mean()) if len(strata) else 0.0


def _several(names: Sequence[str], selections: Mapping[Any, Selections], paired: bool) -> SeveralGroups:
    selected, totals = (
        np.stack([getattr(selections[name], part) for name in names], axis=1) for part in ("selected", "totals")
    )
    if not paired:
        selected, totals = selected.sum(axis=0, keepdims=True), totals.sum(axis=0, keepdims=True)
    return several_groups(selected, totals)


def _control(known: Sequence[Decision], table: ImpactTable, pairs: int) -> VariantControl | None:
    """Compare the most and the least selected group by the rates of their variants."""
    if table.compared is None:
        return None
    first, second = (row.group for row in table.compared)
    rates = [_rates([row for row in known if row.group == group]) for group in (first, second)]
    both = [name for name in rates[0] if name in rates[1]]
    if both:
        values = [[[own[name]] for name in both] for own in rates]
        rates = [{name: own[name] for name in both} for own in rates]
    else:
        values = [[list(own.values())] for own in rates]
    if min(map(len, rates)) < 2:
        return None
    found = between_groups(values[0], values[1], level=1 - LEVEL / pairs)
    return VariantControl(
        first=first,
        second=second,
        kind="wordings" if both else "names",
        variants=(len(rates[0]), len(rates[1])),
        found=found,
        p_value=min(1.0, pairs * found.p_value),
        within=max(max(own.values()) - min(own.values()) for own in rates),
    )


def _rates(rows: Iterable[Decision]) -> dict[str, float]:
    """The rate of each variant."""
    by_variant: defaultdict[str, list[bool]] = defaultdict(list)
    for row in rows:
        if row.variant is not None:
            by_variant[row.variant].append(bool(row.selected))
    return {variant: sum(own) / len(own) for variant, own in by_variant.items()}


@dataclass(frozen=True)
class DecidedRun:
    """Decisions of one file, as they were read."""

    id: int
    name: str
    file: str
    sha256: str
    form: str
    created_at: datetime
    columns: Mapping[str, str]
    rule: DecisionRule
    left_out: tuple[tuple[int, str], ...]
    decisions: tuple[Decision, ...]

    @cached_property
    def found(self) -> Measured:
        """What they say."""
        return measured(self.decisions, self.rule.exclude_small)


Runs, Rows = TypeAdapter(DecidedRun), TypeAdapter(tuple[Decision, ...])


def run_json(run: DecidedRun) -> dict[str, Any]:
    """A run with its rows, everything that follows from them, and that in sentences."""
    found, say = run.found, catalogue("en")
    return {
        **Runs.dump_python(run, mode="json"),
        "groups": [
            {**asdict(row), "below_four_fifths": row.below_four_fifths, "ratio_interval": found.ratios.get(row.group)}
            for row in found.table.rows
        ],
        "unknown": found.table.unknown,
        "undecided": list(found.undecided),
        "paired": found.paired,
        "compared": None if found.headline is None else [found.headline.first, found.headline.second],
        "tests": [asdict(test) for test in found.tests],
        "several": None if found.several is None else asdict(found.several),
        "control": None if found.control is None else {**asdict(found.control), "holds": found.control.holds},
        "finding": finding(found, say),
        "said": [*compared_said(found, say), control_said(found, say)],
        "notes": notes(run, say),
    }


DECISION_COLUMNS = ("line", "group", "outcome", "selected", "pair", "variant", "prompt")


def decisions_csv(run: DecidedRun) -> str:
    """The rows as RFC 4180 text."""
    return to_csv(DECISION_COLUMNS, map(asdict, run.decisions))


def rates_csv(run: DecidedRun) -> str:
    """Rates, impact ratios and what cannot be said, as RFC 4180 text."""
    return impact_csv(run.found.table, run.found.ratios, notes(run, catalogue("en")))


def finding(found: Measured, say: Catalogue) -> str:
    """The lowest impact ratio with its interval, in one sentence."""
    if (compared := found.table.compared) is None:
        return say.say("decisions.nothing_compared")
    highest, lowest = compared
    low, high = found.ratios[lowest.group] or (0.0, math.inf)
    return say.say(
        f"decisions.{'below' if lowest.below_four_fifths else 'not_below'}",
        group=visible(lowest.group), reference=visible(highest.group), ratio=say.number(lowest.ratio or 0.0),
        low=say.number(low), high=say.number(high), rate=say.percent(lowest.rate), total=say.whole(lowest.total),
        highest=say.percent(highest.rate), all=say.whole(highest.total),
    )  # fmt: skip


def compared_said(found: Measured, say: Catalogue) -> list[str]:
    """Whether groups differ by more than chance explains, with the evidence."""
    said, test = [], found.headline
    if test is not None:
        corrected = say.counted("decisions.corrected", len(found.tests)) if len(found.tests) > 1 else ""
        within = say.counted("decisions.within", test.strata) if found.paired else say.say("decisions.unpaired")
        said.append(
            say.say(
                f"decisions.{'apart' if test.adjusted <= LEVEL else 'chance'}",
                within=within, first=visible(test.first), second=visible(test.second), corrected=corrected,
                points=points(test.difference, say), p=say.probability(test.adjusted),
            )
        )  # fmt: skip
    if found.several is not None:
        by = f"decisions.{'permuted' if found.several.draws else 'chi_squared'}"
        p_value, draws = say.probability(found.several.p_value), say.whole(found.several.draws)
        said.append(say.say(by, groups=len(found.ratios) + 1, p=p_value, draws=draws))
    if test is not None:
        evidence_now, most = (say.number(min(value, 1e6)) for value in (test.e_value, test.most))
        said.append(say.say("decisions.evidence", now=evidence_now, most=most))
        if not found.paired:
            said.append(say.say("decisions.evidence_order"))
    return said


def control_said(found: Measured, say: Catalogue) -> str:
    """Whether groups differ more than variants of one group."""
    control = found.control
    if control is None:
        return say.say("decisions.no_control")
    first, second = map(say.whole, control.variants)
    return say.say(
        f"decisions.{control.kind}_{'hold' if control.holds else 'fail'}",
        points=points(control.found.difference, say), within=say.number(100 * control.within, 1),
        p=say.probability(control.p_value), first=first, second=second,
    )  # fmt: skip


def points(share: float, say: Catalogue) -> str:
    """A difference of rates in percentage points, without its sign."""
    return say.number(100 * abs(share), 1)


def notes(run: DecidedRun, say: Catalogue) -> list[str]:
    """What is left out, and what cannot be said."""
    found, said = run.found, []
    small = [row for row in found.table.rows if row.small]
    if small:
        kind = "excluded" if found.table.excluded else "kept"
        said.append(say.say(f"decisions.small_{kind}", groups=say.listed([visible(row.group) for row in small])))
    for name, number in (("unknown", found.table.unknown), ("undecided", len(found.undecided))):
        said += [say.counted(f"decisions.{name}", number)] if number else []
    if run.left_out:
        line, why = run.left_out[0]
        where = f"{say.say(f'decisions.{rows_called(run.form)}')} {say.whole(line)}"
        said.append(say.counted("decisions.left_out", len(run.left_out), where=where, why=visible(why)))
    return [*said, say.say("decisions.not_said")]
