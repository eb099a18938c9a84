"""The kinds of tables that experiments have, made of what is kept and without the model, but for those of speed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Literal

import numpy as np

from app.evaluate import words
from app.evaluate.experiments.figures import TITLES, Figures, Series, Table
from app.evaluate.experiments.grid import Chains, Front, Grid, Levels, Line, Value, chosen_paper
from app.evaluate.layout import Head
from app.shared.format import count, listed
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.sequence import union_bound
from coft_core.conformal.shift import DensityRatio, estimate_density_ratio
from coft_core.errors import InvalidInputError
from coft_core.experiments.averages import Part
from coft_core.experiments.certificates import certified_share, coverage_elsewhere
from coft_core.experiments.choice import Averaged, Point, Selection, select
from coft_core.suites.base import Figure, Outcome

LOWER, HIGHER = words.ARROWS["lower"], words.ARROWS["higher"]

APART = 0.99
"""Area under the ROC curve from which on two sets of prompts count as not overlapping."""


# Figures of suites.


@dataclass(frozen=True)
class Column:
    """A column: one figure of a suite, an average, an average rank or what was certified; maybe beside that of another.

    In a table of suites it names the method, and its part no suite.
    """

    title: str
    part: Part = field(default_factory=lambda: Part(""))
    average: Literal["", "bias", "utility"] = ""
    rank: Literal["", "bias"] = ""
    certified: Callable[[Sequence[Outcome]], Figure] | None = None
    method: str = ""
    against: str = ""
    percent: bool = False

    def series(self, figures: Figures, label: str, suite: str) -> Series | None:
        """Its figure of a method; None where there is none."""
        if label not in figures.labels:
            return None
        if self.average:
            return figures.average(self.average, label)
        if self.certified:
            return figures.certificates(self.certified, label, [suite] if suite else figures.suites)
        return figures.figure(replace(self.part, suite=suite or self.part.suite), label)

    def value(self, figures: Figures, label: str, suite: str = "") -> Value | None:
        """Its number."""
        own = self.series(figures, label, suite)
        if own is None or not self.against:
            return None if own is None else own.value
        other = self.series(figures, self.against, suite)
        if other is None:
            return None
        return own.percent_of(other) if self.percent else own.less(other)

    def made(self, figures: Figures, places: Sequence[tuple[str, str]]) -> tuple[Head, list[Value | None]]:
        """Its head, with an arrow where all its figures have one direction, and its numbers at methods and suites."""
        if self.rank:
            ranks = figures.ranks(self.rank)
            return Head(self.title, LOWER), [ranks.get(label) for label, _ in places]
        found = [] if self.against else [self.series(figures, label, suite) for label, suite in places]
        better = {own.pooled.better for own in found if own is not None}
        head = Head(self.title, words.ARROWS[better.pop()] if len(better) == 1 else "")
        return head, [self.value(figures, label, suite) for label, suite in places]


@dataclass(frozen=True)
class FiguresTable(Table):
    """A row a method, or a row a suite."""

    columns: tuple[Column, ...]
    rows: Literal["methods", "suites"] = "methods"

    def grid(self, figures: Figures) -> Grid:
        """Make it."""
        of_suites = self.rows == "suites"
        named = {key: own.title for key, own in figures.suites.items()} if of_suites else dict(
            zip(figures.labels, figures.labels, strict=True)
        )  # fmt: skip
        made = [
            column.made(figures, [(column.method, key) if of_suites else (key, "") for key in named])
            for column in self.columns
        ]
        heads, columns = [head for head, _ in made], [values for _, values in made]
        lines = [
            Line(title, values, key)
            for (key, title), values in zip(named.items(), zip(*columns, strict=True), strict=True)
        ]
        notes = [
            *average_notes(figures, (column.average for column in self.columns if column.average)),
            *stand_in_notes(figures),
            seed_note(figures),
            *_missing_notes(heads, lines),
            *unread_notes(figures),
            *_silent_notes(figures),
        ]
        return self.made(figures, self.rows.capitalize()[:-1], heads, lines, notes)


# Sweeps.


@dataclass(frozen=True)
class ChoiceTable(Table):
    """A row a swept value: bias and utility on units of validation, and of the chosen one on the others."""

    def grid(self, figures: Figures) -> Grid:
        """Make it."""
        sweep = figures.sweep
        corner, heads = sweep.knob.capitalize(), (
            Head("BiasAvg", LOWER), Head("UtilityAvg", HIGHER), Head("On the front, %"), Head("Chosen, %")
        )  # fmt: skip
        notes = [*average_notes(figures, TITLES), *stand_in_notes(figures)]
        try:
            found = _selected(figures, figures.averaged)
        except InvalidInputError as error:
            return self.made(figures, corner, heads, [], [f"Nothing is chosen: {str(error).rstrip('.')}.", *notes])
        on_front = found.front_shares or [float(on) for on in found.on_front]
        shares = on_front if found.validated else [None] * len(found.points)
        lines = []
        for point, on in zip(found.points, shares, strict=True):
            chosen, label = found.knee.shares.get(point.value), sweep.label(point.value)
            values = (*both_of(point), _percent(on), _percent(chosen))
            lines.append(Line(label, values, label))
        if (tested := found.tested) is not None:
            lines.append(Line(f"{sweep.label(tested.value)}, on the other units", (*both_of(tested), None, None)))
        notes = [*_choice_notes(found, sweep.knob), *notes]
        return self.made(figures, corner, heads, lines, notes, Front(sweep.knob, found))


def both_of(point: Point) -> tuple[Value, Value]:
    """Bias and utility of a point with their deviations over seeds."""
    figures = zip((point.bias, point.utility), point.deviations, strict=True)
    bias, utility = (Value.of_figure(own, deviation) for own, deviation in figures)
    return bias, utility


def _selected(figures: Figures, averaged: Averaged) -> Selection:
    """What is chosen of a sweep; it raises InvalidInputError where nothing can be."""
    if not (averaged.bias and averaged.utility):
        raise InvalidInputError("no suite of the averages was read")
    sweep = figures.sweep
    swept = {
        value: {suite: figures.read(suite, sweep.label(value)) for suite in averaged.suites} for value in sweep.values
    }
    return select(swept, averaged, figures.suites, figures.outside)


def _percent(share: float | None) -> Value | None:
    return None if share is None else Value(100 * share)


def _choice_notes(found: Selection, knob: str) -> list[str]:
    units = (
        f"Values are chosen on {count(found.validated)} units of validation; {count(found.tested_on)} other units show "
        "what was chosen. ± is the standard deviation over seeds."
    )
    if not found.validated:
        units = f"Values are shown over all {count(found.tested_on)} units. ± is the standard deviation over seeds."
    if found.knee.chosen is None:
        return [f"Nothing is chosen: {found.knee.reason}", units]
    notes = [
        f"The knee rule chooses {knob} {found.knee.chosen:g}: the smallest value within 2 % of the knee, which is at "
        f"{found.knee.knee:g}.",
        units,
        "On the front, %: how often no other value is better in one and no worse in the other, over drawn units. "
        f"Chosen, %: how often the rule chooses the value then{'; lambda 1 never' if knob == 'lambda' else ''}.",
    ]
    if found.search.chosen is None:
        notes.append(f"The line search cannot be made: {found.search.reason.rstrip('.')}.")
    else:
        notes.append(
            f"The line search (successive halving) chooses {knob} {found.search.chosen:g}, with "
            f"{found.search.cost:.0%} of the readings of the whole sweep."
        )
    return notes


@dataclass(frozen=True)
class StabilityTable(Table):
    """A row a suite: the value that is chosen by its bias, and their mean and deviation; ``own`` have a utility too."""

    own: tuple[tuple[Part, Part], ...]

    def grid(self, figures: Figures) -> Grid:
        """Make it."""
        sweep, averaged = figures.sweep, figures.averaged
        alone = [(part, averaged.utility) for part in averaged.bias if averaged.utility]
        alone += [(bias, (utility,)) for bias, utility in self.own if bias.suite in figures.suites]
        lines, reasons, chosen = [], [], []
        for part, utility in alone:
            title, value, share = figures.suites[part.suite].title, None, None
            try:
                knee = _selected(figures, Averaged((part,), utility)).knee
                value, reason = knee.chosen, knee.reason
            except InvalidInputError as error:
                reason = str(error)
            if value is None:
                reasons.append(f"{title}: nothing is chosen: {reason.rstrip('.')}.")
            else:
                share = knee.shares.get(value)
                chosen.append(value)
            lines.append(Line(title, (None if value is None else Value(value), _percent(share))))
        over = {
            "Mean": float(np.mean(chosen)) if chosen else None,
            "Standard deviation": float(np.std(chosen, ddof=1)) if len(chosen) > 1 else None,
        }
        for name, number in over.items():
            value = None if number is None else Value(number, n=len(chosen), what="suites")
            lines.append(Line(name, (value, None), name))
        notes = [
            f"Mean and standard deviation are over the {len(chosen)} of {len(alone)} suites that chose a value.",
            *reasons,
            "In drawn units, %: how often the same value is chosen when the suite's units are drawn again.",
            *stand_in_notes(figures),
        ]
        heads = [Head(f"Chosen {sweep.knob}"), Head("In drawn units, %")]
        return self.made(figures, "Suite", heads, lines, notes)


# Coverage.


@dataclass(frozen=True)
class CoverageTable(Table):
    """A row a swept risk level: miscoverage on contexts kept apart, and the size of the certified sets."""

    def grid(self, figures: Figures) -> Grid:
        """Make it."""
        sweep = figures.sweep
        lines, measured = [], {}
        for alpha in sweep.values:
            label = sweep.label(alpha)
            counts = [
                (note.seed, round(note.coverage * note.checked), note.checked)
                for note in figures.calibrations
                if note.method == label and note.coverage is not None
            ]
            share = figures.certificates(certified_share, label, figures.suites) if label in figures.labels else None
            if (missed := _missed(counts)) is not None:
                measured[alpha] = missed
            lines.append(Line(label, (missed, None if share is None else share.value), label))
        notes = [
            "Miscoverage: share of contexts kept apart from the calibration whose drawn true token misses its "
            "threshold, over all suites; the mean over seeds ± the standard deviation over them.",
            "Certified share: mean share of the vocabulary in the certified set, over steps of written texts.",
            *_silent_notes(figures),
            *stand_in_notes(figures),
        ]
        heads = [Head("Miscoverage", LOWER), Head("Certified share")]
        paper = chosen_paper(self.papers, figures.model)
        rows = {} if paper is None else paper.rows
        published = {alpha: own for alpha in sweep.values if (own := rows.get(sweep.label(alpha), (None,))[0])}
        source = paper.model if paper is not None and published else ""
        picture = Levels(measured, published, source) if measured else None
        return self.made(figures, sweep.knob.capitalize(), heads, lines, notes, picture)


def _missed(counts: Iterable[tuple[int, int, int]]) -> Value | None:
    """Miscoverage of several calibrations, each given as seed, contexts kept and contexts checked."""
    by_seed: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for seed, kept, checked in counts:
        by_seed[seed].append((kept, checked))
    totals = [[sum(each) for each in zip(*by_seed[seed], strict=True)] for seed in sorted(by_seed)]
    present = [(kept, checked) for kept, checked in totals if checked]
    if not present:
        return None
    checked_in_all = sum(checked for _, checked in present)
    return Value.of((1 - kept / checked for kept, checked in present), n=checked_in_all, what="contexts")


def _calibrations(figures: Figures, suite: str, label: str) -> dict[int, Calibration]:
    """Calibrations of a method on a suite by seed; factorized ones are left out."""
    read = figures.suites.get(suite)
    found = {seed: figures.thresholds(read.key, label, seed) for seed in figures.seeds} if read else {}
    return {seed: own for seed, own in found.items() if own is not None and own.layout == "joint"}


@dataclass(frozen=True)
class ChainsTable(Table):
    """A row a risk level and length of chains: miscoverage of whole chains."""

    method: str
    horizons: tuple[int, ...]
    alphas: tuple[float, ...]

    def grid(self, figures: Figures) -> Grid:
        """Make it."""
        places = [(alpha, horizon) for alpha in self.alphas for horizon in self.horizons]
        counts: defaultdict[tuple[float, int], list[tuple[int, int, int]]] = defaultdict(list)
        unions: defaultdict[tuple[float, int], list[float]] = defaultdict(list)
        reasons: dict[str, None] = {}
        for suite in figures.suites:
            for seed, own in _calibrations(figures, suite, self.method).items():
                for alpha, horizon in places:
                    bound = union_bound(alpha, horizon, own.positions, own.joint.values)
                    unions[alpha, horizon].append(1 - bound.level)
                    found = own.joint.sequence_coverage(alpha, horizon).overall
                    if found.coverage is None:
                        why = (own.sequence(alpha, horizon).reason or "none was kept apart").rstrip(".")
                        reasons[f"Not measured: {figures.suites[suite].title}, {_steps(horizon)}: {why}."] = None
                    else:
                        counts[alpha, horizon].append((seed, found.kept, found.contexts))
        lines: list[Line] = []
        levels: dict[float, dict[int, Value]] = {alpha: {} for alpha in self.alphas}
        for alpha, horizon in places:
            if (missed := _missed(counts[alpha, horizon])) is not None:
                levels[alpha][horizon] = missed
            union = Value(fmean(unions[alpha, horizon])) if unions[alpha, horizon] else None
            paper = f"alpha {alpha:g}" if horizon == self.horizons[-1] else ""
            lines.append(Line(f"alpha {alpha:g}, {_steps(horizon)}", (missed, union), paper))
        notes = [
            "Miscoverage: share of whole chains kept apart from the calibration with a token below the threshold for "
            "whole chains, one chain of each context; the mean over seeds ± the standard deviation over them.",
            "Union bound: the most that thresholds of single steps at the same alpha would leave open for the whole "
            "chain.",
            *reasons,
            *stand_in_notes(figures),
        ]
        heads = [Head("Miscoverage", LOWER), Head("Union bound")]
        picture = Chains(levels) if any(levels.values()) else None
        return self.made(figures, "Level and length", heads, lines, notes, picture)


def _steps(number: int) -> str:
    return "1 step" if number == 1 else f"{number} steps"


@dataclass(frozen=True)
class DriftTable(Table):
    """A row a set of prompts: coverage of thresholds that were fitted on the first one; the gap is the main figure."""

    method: str
    sets: Mapping[str, str]

    def grid(self, figures: Figures) -> Grid:
        """Make it."""
        first = next(iter(self.sets.values()))
        named = figures.suites[first].title if first in figures.suites else first
        base, lines, told = _calibrations(figures, first, self.method), [], []
        for title, suite in self.sets.items():
            coverage, ratios, areas = [own.coverage for own in base.values()], [1.0], []
            if suite != first:
                others = _calibrations(figures, suite, self.method)
                seeds = sorted(set(base) & set(others))
                coverage, ratios = [coverage_elsewhere(base[seed], others[seed]) for seed in seeds], []
                for shift in (_shift(figures, first, suite, seed) for seed in seeds):
                    if isinstance(shift, str):
                        told.append(f"{title}: {shift}")
                        continue
                    areas.append(shift.separability)
                    if shift.separability < APART:
                        ratios.append(shift.test_weight)
                    else:
                        told.append(
                            f"{title}: the prompts do not overlap with those of {named}, so that no density ratio "
                            "bounds what coverage may lose."
                        )
            contexts, gap = sum(row.contexts for row in coverage), figures.figure(Part(suite), self.method)
            values = (
                Value.of((row.coverage for row in coverage), n=contexts, what="contexts") if coverage else None,
                Value.of(ratios) if ratios else None,
                None if gap is None else gap.value,
                Value.of(areas) if areas else None,
            )
            lines.append(Line(title, values, title))
        notes = [
            f"Coverage: share of contexts whose drawn true token is certified by the thresholds fitted on {named}; "
            "asked for is one minus alpha.",
            "Density ratio: the largest estimated ratio of the densities of prompts; told apart: area under the ROC "
            "curve of what estimates it, 0.5 where the two sets cannot be told apart and 1 where they do not overlap.",
            *dict.fromkeys(told),
            *stand_in_notes(figures),
        ]
        heads = [Head("Coverage"), Head("Density ratio"), Head("Gap", LOWER), Head("Told apart")]
        return self.made(figures, "Prompts", heads, lines, notes)


def _shift(figures: Figures, first: str, other: str, seed: int) -> DensityRatio | str:
    """The estimated density ratio of the prompts, or why it cannot be estimated."""
    apart, evaluated = figures.prompts(first, seed), figures.prompts(other, seed)
    if apart is None or evaluated is None:
        return "the density ratio needs the prompts, whose files are not there any more."
    try:
        return estimate_density_ratio(apart[0], evaluated[1])
    except InvalidInputError as error:
        return str(error)


# Sentences below a table.


def average_notes(figures: Figures, kinds: Iterable[str]) -> list[str]:
    """Which suites averages are of."""
    notes = []
    for kind in dict.fromkeys(kinds):
        whole, present = getattr(figures.experiment.averaged, kind), getattr(figures.averaged, kind)
        titles = listed([figures.suites[part.suite].title for part in present])
        if len(present) < len(whole):
            notes.append(
                f"{TITLES[kind]} is of {len(present)} of the {len(whole)} suites ({titles or 'none'}) and does not "
                "compare with that of all."
            )
        else:
            notes.append(f"{TITLES[kind]} is the mean over {titles}, each counting alike.")
    return notes


def stand_in_sentence(title: str, key: str) -> str:
    """That a suite is read in the place of another one."""
    return f"{title} stands in for {key}, of which there is no file."


def stand_in_notes(figures: Figures) -> list[str]:
    """What stands in for something of the paper, and what takes no part."""
    notes = [stand_in_sentence(suite.title, key) for key, suite in figures.suites.items() if suite.key != key]
    return [*notes, *figures.experiment.stand_ins, *figures.left_out]


def _missing_notes(heads: Sequence[Head], lines: Sequence[Line]) -> list[str]:
    """Figures that no method has, and what could not be scored."""
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


def unread_notes(figures: Figures) -> list[str]:
    """Items that could not be read, and why."""
    notes = []
    for key, suite in figures.suites.items():
        for label in figures.labels:
            outcomes = figures.all_of(key, label)
            if unread := [outcome.unread for outcome in outcomes if outcome.unread]:
                notes.append(
                    f"{suite.title}: {label} has no answer to {count(len(unread))} of {count(len(outcomes))} items, "
                    f"which are in no figure; the first: {unread[0]}"
                )
    return notes


def seed_note(figures: Figures) -> str:
    """What the numbers of a cell are."""
    if not figures.seeds:
        return "Nothing has been read yet."
    if len(figures.seeds) == 1:
        return f"Each figure is of seed {figures.seeds[0]}, with its 95 % interval over drawn units in brackets."
    return (
        f"Each figure is the mean over the seeds {listed(figures.seeds)} ± the standard deviation over them, "
        "with the 95 % interval of all seeds' answers together in brackets, over drawn units."
    )


def _silent_notes(figures: Figures) -> list[str]:
    """How many calibrations say nothing, and why: there, a method certifies nothing."""
    silent = [note.silent.rstrip(".") for note in figures.calibrations if note.silent]
    if not silent:
        return []
    return [
        f"{len(silent)} of {len(figures.calibrations)} calibrations say nothing, so that nothing is refused there: "
        f"{listed(list(dict.fromkeys(silent)))}. Read more items, or accept more misses (alpha)."
    ]
