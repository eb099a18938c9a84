"""Tables of sweeps: which value is chosen on units of validation, and how steady the choice is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.evaluate import words
from app.evaluate.experiment_figures import Figures, Kept, Value, present_parts
from app.evaluate.experiment_layout import (
    ExperimentTable,
    Line,
    average_notes,
    laid_out,
    paper_notes,
    stand_in_notes,
    sweep_of,
)
from app.evaluate.experiment_pictures import FrontPicture, SweptPoint
from app.evaluate.experiments import KNOBS, ChoiceTable, PartEntry, StabilityTable, SweepEntry
from app.evaluate.layout import Head
from app.shared.format import count
from coft_core.errors import InvalidInputError
from coft_core.experiments.choice import (
    Choice,
    LineSearch,
    ValidationSplit,
    choose_by_halving,
    choose_by_knee,
    stability,
    validation_points,
)
from coft_core.experiments.front import Averaged, Point, front_shares, pareto_front, point_of
from coft_core.suites.base import Figure, Outcome, Outside


@dataclass(frozen=True)
class _Swept:
    """Outcomes of a sweep, of the items that every value read."""

    figures: Figures
    sweep: SweepEntry
    outside: Outside

    @property
    def split(self) -> ValidationSplit:
        """Which units choose."""
        return ValidationSplit(self.sweep.validation)

    def sides(self, suites: Iterable[str]) -> tuple[dict[float, dict[str, list[Outcome]]], ...]:
        """Outcomes of validation and of the test, by value and suite."""
        sides: tuple[dict[float, dict[str, list[Outcome]]], ...] = ({}, {})
        suites = tuple(suites)
        by_suite = {suite: self._common(suite) for suite in suites}
        for value in self.sweep.values:
            for place in (0, 1):
                sides[place][value] = {
                    suite: self.split.sides(suite, by_suite[suite][value])[place] for suite in suites
                }
        return sides

    def _common(self, suite: str) -> dict[float, list[Outcome]]:
        read = {value: self.figures.read(suite, self.sweep.label(value)) for value in self.sweep.values}
        places = [{(own.unit, own.item, own.seed) for own in outcomes} for outcomes in read.values()]
        common = set.intersection(*places) if places else set()
        return {
            value: [own for own in outcomes if (own.unit, own.item, own.seed) in common]
            for value, outcomes in read.items()
        }


@dataclass(frozen=True)
class _Chosen:
    """What both rules choose on units of validation."""

    points: list[Point]
    knee: Choice
    search: LineSearch | None
    search_reason: str
    tested: Point | None
    validated: int
    tested_on: int


def _choose(swept: _Swept, averaged: Averaged) -> _Chosen | str:
    """The choice, or why there is none."""
    suites = {key: swept.figures.kept.suites[key] for key in averaged.suites}
    validation, test = swept.sides(averaged.suites)
    try:
        points = validation_points(validation, swept.split, averaged, suites, swept.outside)
        knee = choose_by_knee(points)
    except InvalidInputError as error:
        return str(error)

    def measure(value: float, share: float) -> Point:
        part = {suite: swept.split.portion(suite, outcomes, share) for suite, outcomes in validation[value].items()}
        if empty := [suite for suite, outcomes in part.items() if not outcomes]:
            raise InvalidInputError(f"a share of {share:g} of the units of validation leaves none of {empty[0]}")
        return point_of(value, part, averaged, suites, swept.outside)

    search, reason = None, ""
    try:
        search = choose_by_halving(swept.sweep.values, measure)
    except InvalidInputError as error:
        reason = str(error)
    tested = None
    if knee.chosen is not None and all(test[knee.chosen].values()):
        tested = point_of(knee.chosen, test[knee.chosen], averaged, suites, swept.outside)
    counts = [
        sum(len({own.unit for own in outcomes}) for outcomes in side[swept.sweep.values[0]].values())
        for side in (validation, test)
    ]
    return _Chosen(points, knee, search, reason, tested, *counts)


def choice_table(table: ChoiceTable, figures: Figures, model: str, outside: Outside) -> ExperimentTable:
    """Bias and utility of swept values on units of validation, and of the chosen one on the others."""
    kept, sweep = figures.kept, sweep_of(figures.kept.experiment)
    averaged = _present(figures.kept)
    heads = [Head("BiasAvg", words.ARROWS["lower"]), Head("UtilityAvg", words.ARROWS["higher"]),
             Head("On the front, %"), Head("Chosen, %")]  # fmt: skip
    found = _choose(_Swept(figures, sweep, outside), averaged) if averaged else "no suite of the averages was read"
    notes = [*average_notes(figures, ("bias", "utility")), *stand_in_notes(kept), *paper_notes(table, model)]
    if isinstance(found, str):
        layout = laid_out(table, model, KNOBS[sweep.knob].capitalize(), heads, [])
        return ExperimentTable(table.title, layout, (f"Nothing is chosen: {found.rstrip('.')}.", *notes))
    shares = front_shares(found.points)
    on = pareto_front(found.points)
    lines = [
        Line(
            sweep.label(point.value),
            (
                _value(point.bias),
                _value(point.utility),
                Value(100 * (shares[place] if shares else float(on[place]))),
                Value(100 * share) if (share := found.knee.shares.get(point.value)) is not None else None,
            ),
            sweep.label(point.value),
        )
        for place, point in enumerate(found.points)
    ]
    if found.tested is not None and found.knee.chosen is not None:
        values = (_value(found.tested.bias), _value(found.tested.utility), None, None)
        lines.append(Line(f"{sweep.label(found.knee.chosen)}, on the other units", values))
    layout = laid_out(table, model, KNOBS[sweep.knob].capitalize(), heads, lines)
    return ExperimentTable(table.title, layout, (*_choice_notes(found, sweep), *notes), _front(found, on, sweep))


def _front(found: _Chosen, on: Sequence[bool], sweep: SweepEntry) -> FrontPicture:
    """The picture of a choice."""
    points = tuple(
        SweptPoint(point.value, _value(point.bias), _value(point.utility), here, point.value in found.knee.scores)
        for point, here in zip(found.points, on, strict=True)
    )
    return FrontPicture(KNOBS[sweep.knob], points, found.knee.knee, found.knee.chosen)


def _choice_notes(found: _Chosen, sweep: SweepEntry) -> list[str]:
    knob = KNOBS[sweep.knob]
    units = (
        f"Values are chosen on {count(found.validated)} units of validation; {count(found.tested_on)} other units show "
        "what was chosen."
    )
    if found.knee.chosen is None:
        return [f"Nothing is chosen: {found.knee.reason}", units]
    notes = [
        f"The knee rule chooses {knob} {found.knee.chosen:g}: the smallest value within 2 % of the knee, which is at "
        f"{found.knee.knee:g}.",
        units,
        "On the front, %: how often no other value is better in one and no worse in the other, over drawn units. "
        f"Chosen, %: how often the rule chooses the value then{'; lambda 1 never' if sweep.knob == 'lam' else ''}.",
    ]
    if found.search is None or found.search.chosen is None:
        notes.append(f"The line search cannot be made: {(found.search_reason or 'too few values').rstrip('.')}.")
    else:
        notes.append(
            f"The line search (successive halving) chooses {knob} {found.search.chosen:g}, with "
            f"{found.search.cost:.0%} of the readings of the whole sweep."
        )
    return notes


def _value(figure: Figure) -> Value:
    return Value(figure.value, None, figure.low, figure.high, figure.n, figure.what, figure.unscored)


def _present(kept: Kept) -> Averaged | None:
    """The averages over suites that took part; None where one has no part left."""
    bias, utility = (tuple(present_parts(kept.experiment.averages, kind, kept.suites)) for kind in ("bias", "utility"))
    return Averaged(bias, utility) if bias and utility else None


def stability_table(table: StabilityTable, figures: Figures, model: str, outside: Outside) -> ExperimentTable:
    """The value that each suite chooses by itself, and their mean and deviation."""
    kept, sweep = figures.kept, sweep_of(figures.kept.experiment)
    averaged = _present(kept)
    alone: list[tuple[PartEntry, Averaged]] = []
    if averaged is not None:
        alone += [
            (entry, Averaged((entry.part,), averaged.utility))
            for entry in kept.experiment.averages.bias
            if entry.suite in kept.suites
        ]
    alone += [
        (own.bias, Averaged((own.bias.part,), (own.utility.part,)))
        for own in table.own
        if {own.bias.suite, own.utility.suite} <= set(kept.suites)
    ]
    chosen: dict[str, float | None] = {}
    lines, notes = [], []
    for entry, parts in alone:
        title = kept.suites[entry.suite].title
        found = _choose(_Swept(figures, sweep, outside), parts)
        chosen[title] = None if isinstance(found, str) else found.knee.chosen
        share = None
        if not isinstance(found, str) and found.knee.chosen is not None:
            share = found.knee.shares.get(found.knee.chosen)
        if chosen[title] is None:
            reason = found if isinstance(found, str) else found.knee.reason
            notes.append(f"{title}: nothing is chosen: {reason.rstrip('.')}.")
        value = None if chosen[title] is None else Value(chosen[title])
        lines.append(Line(title, (value, None if share is None else Value(100 * share))))
    over = stability(chosen)
    lines += [
        Line(name, (None if value is None else Value(value, n=over.n, what="suites"), None), name)
        for name, value in (("Mean", over.mean), ("Standard deviation", over.deviation))
    ]
    heads = [Head(f"Chosen {KNOBS[sweep.knob]}"), Head("In drawn units, %")]
    layout = laid_out(table, model, "Suite", heads, lines)
    notes.insert(0, f"Mean and standard deviation are over the {over.n} of {len(chosen)} suites that chose a value.")
    notes.append("In drawn units, %: how often the same value is chosen when the suite's units are drawn anew.")
    return ExperimentTable(table.title, layout, (*notes, *stand_in_notes(kept), *paper_notes(table, model)))
