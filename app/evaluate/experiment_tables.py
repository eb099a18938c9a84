"""Tables of an experiment with the paper's figures beside ours, made of what is kept and without the model."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from app.evaluate import words
from app.evaluate.experiment_figures import Figures, Kept, Value, present_parts
from app.evaluate.experiments import (
    KNOBS,
    ChainsTable,
    ChoiceTable,
    ColumnEntry,
    CoverageTable,
    DriftTable,
    Experiment,
    MethodsTable,
    PaperEntry,
    PartEntry,
    SpeedTable,
    StabilityTable,
    SuitesTable,
    SweepEntry,
    TableEntry,
    number_of,
)
from app.evaluate.layout import Head, Layout, Shown
from app.shared.step_words import count
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.coverage import CoverageRow
from coft_core.conformal.shift import estimate_density_ratio
from coft_core.errors import InvalidInputError
from coft_core.experiments.certificates import chain_rows, coverage_elsewhere
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


@dataclass(frozen=True, slots=True)
class ExperimentTable:
    """A table of an experiment.

    Attributes:
        title: What it shows.
        layout: The table.
        notes: Sentences that have to stand with it.
    """

    title: str
    layout: Layout
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """A row of a table before it is laid out.

    Attributes:
        head: Its head.
        values: Its numbers; None where there is nothing.
        paper: Name of the paper's row that stands below it; empty where another own row comes between.
    """

    head: str
    values: tuple[Value | None, ...]
    paper: str = ""


def chosen_paper(entries: Sequence[PaperEntry], model: str) -> tuple[PaperEntry, ...]:
    """What the paper says of the model that was evaluated; of the one that it names first where it says nothing."""
    own = [entry for entry in entries if _plain(entry.model) in _plain(model)]
    return tuple(own[-1:] or entries[:1])


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def experiment_tables(kept: Kept, model: str, outside: Outside = "floor") -> list[ExperimentTable]:
    """All tables of an experiment but those that are measured when it is run.

    Args:
        kept: What is kept of it.
        model: The model that was evaluated.
        outside: What a token that a certified set refuses counts as.
    """
    tables = [table for table in kept.experiment.tables if not isinstance(table, SpeedTable)]
    if not tables:
        return []
    figures = Figures(kept, outside)
    return [_MAKERS[type(table)](table, figures, model, outside) for table in tables]


def laid_out(
    table: TableEntry,
    model: str,
    corner: str,
    heads: Sequence[Head],
    lines: Sequence[Line],
) -> Layout:
    """Lines with the paper's below them.

    Args:
        table: The table.
        model: The model that was evaluated.
        corner: What stands above the heads of the rows.
        heads: Heads of the columns; those of the paper first.
        lines: The rows.
    """
    papers = chosen_paper(table.paper, model)
    published = [
        (entry, name, tuple(None if own is None else number_of(own) for own in figures))
        for entry in papers
        for name, figures in entry.rows.items()
    ]
    digits = [
        words.digits_for(
            [
                *(value.value for line in lines if (value := line.values[place]) is not None),
                *(row[place][0] for _, _, row in published if place < len(row) and row[place] is not None),  # type: ignore[index]
            ]
        )
        for place in range(len(heads))
    ]
    shown: list[tuple[Head, tuple[Shown | None, ...]]] = []
    told: set[tuple[str, str]] = set()

    def add(entry: PaperEntry, name: str, row: Sequence[tuple[float, float | None] | None]) -> None:
        told.add((entry.model, name))
        cells = [None if own is None else _published(*own, places) for own, places in zip(row, digits, strict=False)]
        source = f"paper, {entry.model}"
        shown.append((Head(name, source=source), (*cells, *([None] * (len(heads) - len(cells))))))

    for line in lines:
        shown.append((Head(line.head), tuple(map(_shown, line.values, digits))))
        for entry, name, row in published:
            if line.paper and name == line.paper:
                add(entry, name, row)
    for entry, name, row in published:
        if (entry.model, name) not in told:
            add(entry, name, row)
    return Layout(corner, tuple(heads), tuple(shown))


def _shown(value: Value | None, digits: int) -> Shown | None:
    if value is None:
        return None
    if value.value is None:
        return Shown("unscored", said=_counted(value))
    return Shown(
        words.number(value.value, digits),
        words.number(value.deviation, digits),
        words.interval(value.low, value.high, digits),
        value=value.value,
        said=_counted(value),
    )


def _counted(value: Value) -> str:
    """What a number rests on, for a tooltip."""
    said = f"over {count(value.n)} {value.what}" if value.what else ""
    missing = f"{count(value.unscored)} could not be scored" if value.unscored else ""
    sentence = "; ".join(part for part in (said, missing) if part)
    return f"{sentence[:1].upper()}{sentence[1:]}." if sentence else ""


def _published(value: float, deviation: float | None, digits: int) -> Shown:
    return Shown(words.number(value, digits), words.number(deviation, digits), value=value)


# A row a method, or a row a suite.


def _methods(table: MethodsTable, figures: Figures, model: str, outside: Outside) -> ExperimentTable:
    kept = figures.kept
    ranks = {column.rank: figures.ranks(column.rank) for column in table.columns if column.rank}
    lines = [
        Line(
            label,
            tuple(
                ranks[column.rank].get(label) if column.rank else figures.column(column, label)
                for column in table.columns
            ),
            label,
        )
        for label in kept.labels
    ]
    heads = [_head(column, figures) for column in table.columns]
    kinds = [column.average for column in table.columns if column.average]
    notes = [
        *_average_notes(figures, kinds),
        *_stand_in_notes(kept),
        *_seed_notes(kept),
        *_missing_notes(heads, lines),
        *_unread_notes(figures, kept.suites),
        *_silent(kept, kept.labels),
        *_paper_notes(table, model),
    ]
    return ExperimentTable(table.title, laid_out(table, model, "Method", heads, lines), tuple(notes))


def _suites(table: SuitesTable, figures: Figures, model: str, outside: Outside) -> ExperimentTable:
    kept = figures.kept
    present = [key for key in table.suites or kept.experiment.suites if key in kept.suites]
    lines = [
        Line(
            kept.suites[key].title,
            tuple(figures.column(column, column.method, key) for column in table.columns),
            key,
        )
        for key in present
    ]
    heads = [_head(column, figures, present) for column in table.columns]
    notes = [
        *_stand_in_notes(kept),
        *_seed_notes(kept),
        *_missing_notes(heads, lines),
        *_unread_notes(figures, present),
        *_silent(kept, {column.method for column in table.columns}),
        *_paper_notes(table, model),
    ]
    return ExperimentTable(table.title, laid_out(table, model, "Suite", heads, lines), tuple(notes))


def _head(column: ColumnEntry, figures: Figures, suites: Sequence[str] = ("",)) -> Head:
    """A column's head, with an arrow where all its figures have one direction."""
    if column.rank:
        return Head(column.title, words.ARROWS["lower"])
    labels = [column.method] if column.method else figures.kept.labels
    found = {own for suite in suites for label in labels if (own := figures.better(column, label, suite)) is not None}
    return Head(column.title, words.ARROWS[found.pop()] if len(found) == 1 else "")


def _average_notes(figures: Figures, kinds: Iterable[str]) -> list[str]:
    notes = []
    averages = figures.kept.experiment.averages
    for kind in dict.fromkeys(kinds):
        whole, present = getattr(averages, kind), figures.parts(kind)
        name = {"bias": "BiasAvg", "utility": "UtilityAvg"}[kind]
        titles = words.listed([figures.kept.suites[part.suite].title for part in present])
        if len(present) < len(whole):
            notes.append(
                f"{name} is of {len(present)} of the {len(whole)} suites ({titles or 'none'}) and does not compare "
                "with that of all."
            )
        else:
            notes.append(f"{name} is the mean over {titles}, each counting alike.")
    return notes


def _stand_in_notes(kept: Kept) -> list[str]:
    notes = [
        f"{suite.title} stands in for {key}, of which there is no file."
        for key, suite in kept.suites.items()
        if suite.key != key
    ]
    return [*notes, *(entry.stands_in for entry in kept.experiment.methods if entry.stands_in), *kept.left_out]


def _missing_notes(heads: Sequence[Head], lines: Sequence[Line]) -> list[str]:
    """Figures that nobody has, and what could not be scored."""
    notes = []
    for place, head in enumerate(heads):
        values = [(line.head, line.values[place]) for line in lines]
        if lines and all(value is None for _, value in values):
            notes.append(
                f"{head.title}: nothing has this figure; no item was read, or a judge that it needs is missing "
                "(--judges)."
            )
        notes += [
            f"{head.title}: of {name}, {count(value.unscored)} of {count(value.n + value.unscored)} could not be "
            "scored; they are in no figure."
            for name, value in values
            if value is not None and value.unscored and value.what != "suites"
        ]
    return notes


def _unread_notes(figures: Figures, suites: Iterable[str]) -> list[str]:
    """Items that could not be read, and why."""
    notes = []
    for suite in suites:
        for label in figures.kept.labels:
            found = figures.measured(suite, label)
            unread = [] if found is None else [outcome.unread for outcome in found.outcomes if outcome.unread]
            if found is not None and unread:
                notes.append(
                    f"{figures.kept.suites[suite].title}: {label} could not read {count(len(unread))} of "
                    f"{count(len(found.outcomes))} items, which are in no figure; the first: {unread[0]}"
                )
    return notes


def _seed_notes(kept: Kept) -> list[str]:
    seeds = kept.seeds
    if not seeds:
        return ["Nothing has been read yet."]
    if len(seeds) == 1:
        return [f"Each figure is of seed {seeds[0]} alone, with its 95 % interval over drawn units in brackets."]
    return [
        f"Each figure is the mean over the seeds {words.listed(seeds)} ± the standard deviation over them, with the "
        "95 % interval of all seeds' answers together in brackets, over drawn units."
    ]


def _paper_notes(table: TableEntry, model: str) -> list[str]:
    """Which model the paper's rows are of, and which others it has."""
    shown = chosen_paper(table.paper, model)
    others = [entry.model for entry in table.paper if entry not in shown]
    if not shown:
        return ["The paper has no figures for this table."]
    about = f"The paper's rows are of {shown[0].model} ({shown[0].source}), as they were printed"
    return [f"{about}; it also has {words.listed(others)}." if others else f"{about}."]


# Sweeps.


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


def _choice(table: ChoiceTable, figures: Figures, model: str, outside: Outside) -> ExperimentTable:
    kept, sweep = figures.kept, _sweep(figures.kept.experiment)
    averaged = _present(figures.kept)
    heads = [Head("BiasAvg", words.ARROWS["lower"]), Head("UtilityAvg", words.ARROWS["higher"]),
             Head("On the front, %"), Head("Chosen, %")]  # fmt: skip
    found = _choose(_Swept(figures, sweep, outside), averaged) if averaged else "no suite of the averages was read"
    notes = [*_average_notes(figures, ("bias", "utility")), *_stand_in_notes(kept), *_paper_notes(table, model)]
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
    return ExperimentTable(table.title, layout, (*_choice_notes(found, sweep), *notes))


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


def _sweep(experiment: Experiment) -> SweepEntry:
    # Reading an experiment refuses such a table without a sweep.
    assert experiment.sweep is not None
    return experiment.sweep


def _present(kept: Kept) -> Averaged | None:
    """The averages over suites that took part; None where one has no part left."""
    bias, utility = (tuple(present_parts(kept.experiment.averages, kind, kept.suites)) for kind in ("bias", "utility"))
    return Averaged(bias, utility) if bias and utility else None


def _stability(table: StabilityTable, figures: Figures, model: str, outside: Outside) -> ExperimentTable:
    kept, sweep = figures.kept, _sweep(figures.kept.experiment)
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
    return ExperimentTable(table.title, layout, (*notes, *_stand_in_notes(kept), *_paper_notes(table, model)))


# Coverage, read off calibrations.


def _coverage(table: CoverageTable, figures: Figures, model: str, outside: Outside) -> ExperimentTable:
    kept, sweep = figures.kept, _sweep(figures.kept.experiment)
    lines = []
    for value in sweep.values:
        label = sweep.label(value)
        by_seed: dict[int, list[tuple[int, int]]] = {}
        for note in kept.calibrations:
            if note.method == label and note.coverage is not None:
                by_seed.setdefault(note.seed, []).append((round(note.coverage * note.checked), note.checked))
        share = figures.certificates("certified share", label, kept.suites) if label in kept.labels else None
        lines.append(Line(label, (_missed(by_seed), None if share is None else share.value), label))
    heads = [Head("Miscoverage", words.ARROWS["lower"]), Head("Certified share")]
    notes = [
        "Miscoverage: share of contexts kept apart from the calibration whose drawn true token misses its threshold, "
        "over all suites; the mean over seeds ± the standard deviation over them.",
        "Certified share: mean share of the vocabulary in the certified set, over steps of written texts.",
        *_silent(kept, {sweep.label(value) for value in sweep.values}),
        *_stand_in_notes(kept),
        *_paper_notes(table, model),
    ]
    layout = laid_out(table, model, KNOBS[sweep.knob].capitalize(), heads, lines)
    return ExperimentTable(table.title, layout, tuple(notes))


def _missed(by_seed: Mapping[int, Sequence[tuple[int, int]]]) -> Value | None:
    """Miscoverage of several calibrations by seed, each given as contexts kept and contexts checked."""
    totals = [tuple(map(sum, zip(*counts, strict=True))) for _, counts in sorted(by_seed.items())]
    present = [(kept, checked) for kept, checked in totals if checked]
    if not present:
        return None
    return Value.of(
        (1 - kept / checked for kept, checked in present), n=sum(checked for _, checked in present), what="contexts"
    )


def _silent(kept: Kept, labels: Collection[str]) -> list[str]:
    """How many calibrations of some methods say nothing, and why: there, such a method certifies nothing."""
    notes = [note for note in kept.calibrations if note.method in labels]
    silent = [note for note in notes if note.silent]
    if not silent:
        return []
    reasons = words.listed(list(dict.fromkeys(note.silent.rstrip(".") for note in silent)))
    return [
        f"{len(silent)} of {len(notes)} calibrations say nothing, so that nothing is refused there: {reasons}. Read "
        "more items, or choose a larger alpha."
    ]


def _calibrations(kept: Kept, suite: str, label: str) -> dict[int, Calibration]:
    """Calibrations of a method on a suite by seed; factorized ones are left out."""
    read = kept.suites.get(suite)
    found = {} if read is None else {seed: kept.thresholds(read.key, label, seed) for seed in kept.seeds}
    return {seed: own for seed, own in found.items() if isinstance(own, Calibration)}


def _chains(table: ChainsTable, figures: Figures, model: str, outside: Outside) -> ExperimentTable:
    kept = figures.kept
    counts: dict[tuple[float, int], dict[int, list[tuple[int, int]]]] = {}
    unions: dict[tuple[float, int], list[float]] = {}
    reasons: dict[str, None] = {}
    for suite in kept.suites:
        for seed, calibration in _calibrations(kept, suite, table.method).items():
            for row in chain_rows(calibration, table.horizons, table.alphas):
                place = row.alpha, row.horizon
                unions.setdefault(place, []).append(1 - row.union.level)
                if row.coverage.coverage is None:
                    why = row.reason or "none was kept apart"
                    reasons[f"{kept.suites[suite].title}, {_steps(row.horizon)}: {why}"] = None
                else:
                    counts.setdefault(place, {}).setdefault(seed, []).append(_kept_of(row.coverage))
    lines = []
    for alpha in table.alphas:
        for horizon in table.horizons:
            place = alpha, horizon
            union = Value(fmean(unions[place])) if place in unions else None
            last = horizon == table.horizons[-1]
            head = f"alpha {alpha:g}, {_steps(horizon)}"
            lines.append(Line(head, (_missed(counts.get(place, {})), union), f"alpha {alpha:g}" if last else ""))
    heads = [Head("Miscoverage", words.ARROWS["lower"]), Head("Union bound")]
    notes = [
        "Miscoverage: share of whole chains kept apart from the calibration with a token below the threshold for whole "
        "chains, one chain of each context; the mean over seeds ± the standard deviation over them.",
        "Union bound: the most that thresholds of single steps at the same alpha would leave open for the whole chain.",
        *(f"Not measured: {reason.rstrip('.')}." for reason in reasons),
        *_stand_in_notes(kept),
        *_paper_notes(table, model),
    ]
    return ExperimentTable(table.title, laid_out(table, model, "Level and length", heads, lines), tuple(notes))


def _steps(number: int) -> str:
    return "1 step" if number == 1 else f"{number} steps"


def _kept_of(row: CoverageRow) -> tuple[int, int]:
    return row.kept, row.contexts


def _drift(table: DriftTable, figures: Figures, model: str, outside: Outside) -> ExperimentTable:
    kept, first = figures.kept, table.settings[0]
    base = _calibrations(kept, first.suite, table.method)
    lines = []
    notes: list[str] = []
    for setting in table.settings:
        coverage, ratios, areas = [], [], []
        for seed, calibration in base.items():
            if setting is first:
                row = calibration.coverage.overall
            else:
                other = _calibrations(kept, setting.suite, table.method).get(seed)
                if other is None:
                    continue
                row = coverage_elsewhere(calibration, other)
                shift = _shift(kept, first.suite, setting.suite, seed)
                if isinstance(shift, str):
                    notes.append(f"{setting.title}: {shift}")
                else:
                    ratios.append(shift[0])
                    areas.append(shift[1])
            coverage.append(row)
        gap = figures.figure(PartEntry(suite=setting.suite, figure=setting.figure).part, table.method)
        own = Value(1.0) if setting is first else Value.of(ratios) if ratios else None
        measured = [row.coverage for row in coverage]
        lines.append(
            Line(
                setting.title,
                (
                    Value.of(measured, n=sum(row.contexts for row in coverage), what="contexts") if coverage else None,
                    own,
                    None if gap is None else gap.value,
                    Value.of(areas) if areas else None,
                ),
                setting.title,
            )
        )
    heads = [Head("Coverage"), Head("Density ratio"), Head("Gap", words.ARROWS["lower"]), Head("Told apart")]
    told = [
        f"Coverage: share of contexts whose drawn true token is certified by the thresholds fitted on "
        f"{_title(kept, first.suite)}; asked for is one minus alpha.",
        "Density ratio: the largest estimated ratio of the densities of prompts; told apart: area under the ROC curve "
        "of what estimates it, 0.5 where the two sets cannot be told apart and 1 where they do not overlap.",
        *dict.fromkeys(notes),
        *_stand_in_notes(kept),
        *_paper_notes(table, model),
    ]
    return ExperimentTable(table.title, laid_out(table, model, "Prompts", heads, lines), tuple(told))


def _title(kept: Kept, suite: str) -> str:
    return kept.suites[suite].title if suite in kept.suites else suite


def _shift(kept: Kept, first: str, other: str, seed: int) -> tuple[float, float] | str:
    """Largest density ratio and how well the prompts are told apart, or why they cannot be estimated."""
    both = [kept.prompts(suite, seed) for suite in (first, other)]
    if both[0] is None or both[1] is None:
        return "the density ratio needs the prompts, whose files are not there any more."
    try:
        ratio = estimate_density_ratio(both[0][0], both[1][1])
    except InvalidInputError as error:
        return str(error)
    return ratio.test_weight, ratio.separability


_MAKERS: Mapping[type[Any], Callable[..., ExperimentTable]] = {
    MethodsTable: _methods,
    SuitesTable: _suites,
    ChoiceTable: _choice,
    StabilityTable: _stability,
    CoverageTable: _coverage,
    ChainsTable: _chains,
    DriftTable: _drift,
}
