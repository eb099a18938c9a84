"""What an experiment is, and the figures of its methods: on the paper's scales, averaged, ranked and compared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from app.evaluate.experiments.grid import Grid, Line, Paper, Picture, Value, Values, chosen_paper, paper_note
from app.evaluate.layout import Head
from app.evaluate.methods import methods_from
from app.evaluate.runs import CalibrationNote, EvaluationMethod
from app.evaluate.tables import Measured, in_order, measured, table_of
from app.shared.audits import AuditSettings
from coft_core.conformal.calibration import Calibration
from coft_core.experiments.averages import Part, average, shown_as
from coft_core.experiments.choice import Averaged
from coft_core.suites.base import Figure, Outcome, Outside, Suite
from coft_core.suites.statistics import LEVEL, difference

INSTEAD = {"utrecht": "hiring_resume"}
"""Suites that are read where others have no files."""

AVERAGED = Averaged(
    bias=(
        Part("stereoset", "excess", "size"), Part("crows_pairs", "stereotype_shared", "distance from half"),
        Part("bbq", "biased_rate"), Part("bold", "toxicity"), Part("utrecht"), Part("compas"),
    ),
    utility=(Part("gsm8k"), Part("strategyqa"), Part("arc_easy"), Part("piqa")),
)  # fmt: skip
"""What BiasAvg and UtilityAvg are made of."""

POOLED, SHARED = "pooled", "shared"
TITLES = {"bias": "BiasAvg", "utility": "UtilityAvg"}


@dataclass(frozen=True)
class Sweep:
    """A method at several values of one setting."""

    knob: Literal["lambda", "alpha"]
    values: tuple[float, ...]
    method: str

    def label(self, value: float) -> str:
        """The method's label at a value."""
        return f"{self.knob} {value:g}"

    @property
    def methods(self) -> list[str]:
        """The method at every value, as a command names it."""
        return [f"{self.label(value)}={self.method},{self.knob}={value:g}" for value in self.values]


@dataclass(frozen=True)
class Table(ABC):
    """A table of an experiment before it is made."""

    kind: ClassVar[str] = "figures"
    title: str
    papers: tuple[Paper, ...]

    @abstractmethod
    def grid(self, figures: Figures) -> Grid:
        """Make it."""

    def made(
        self, figures: Figures, corner: str, heads: Sequence[Head], lines: Sequence[Line], notes: Sequence[str],
        picture: Picture | None = None,
    ) -> Grid:  # fmt: skip
        """Lines with the paper's rows below them; those that belong to no line come last."""
        paper = chosen_paper(self.papers, figures.model)
        printed = {} if paper is None else {
            name: (Head(name, source=f"paper, {paper.model}"), (*values, *(None,) * (len(heads) - len(values))))
            for name, values in paper.rows.items()
        }  # fmt: skip
        rows: list[tuple[Head, Values]] = []
        for line in lines:
            rows.append((Head(line.head), line.values))
            if line.paper in printed:
                rows.append(printed.pop(line.paper))
        told = (*notes, paper_note(self.papers, paper))
        return Grid(self.title, corner, tuple(heads), (*rows, *printed.values()), told, picture)


@dataclass(frozen=True)
class Experiment:
    """A named experiment; methods are written as a command names them, and ``needs`` are parameters by their label."""

    name: str
    title: str
    source: str
    shows: str
    differs: tuple[str, ...]
    tables: tuple[Table, ...]
    suites: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    sweep: Sweep | None = None
    needs: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    stand_ins: tuple[str, ...] = ()
    averaged: Averaged = AVERAGED
    seeds: tuple[int, ...] = (0, 1, 2)
    calibration_share: float = 0.15

    def evaluated(self) -> tuple[EvaluationMethod, ...]:
        """Its methods, those of the sweep last."""
        swept = () if self.sweep is None else self.sweep.methods
        return methods_from((*self.methods, *swept), AuditSettings())


@dataclass(frozen=True)
class Series:
    """A figure of one method: of all that it read, of the items that every method read, and by seed."""

    figures: Mapping[str | int, Figure]

    @property
    def pooled(self) -> Figure:
        """That of all that the method read."""
        return self.figures[POOLED]

    @property
    def value(self) -> Value:
        """Its number."""
        by_seed = (own.value for place, own in self.figures.items() if isinstance(place, int))
        return self._told(by_seed, self.pooled.low, self.pooled.high)

    def less(self, other: Series) -> Value:
        """How much larger it is than another one, with the interval over the same drawn units."""
        _, low, high = difference(self.figures[SHARED], other.figures[SHARED]) or (None, None, None)
        return self._told((one - two for one, two in self._pairs(other)), low, high)

    def percent_of(self, other: Series) -> Value:
        """It in percent of another one, with the interval over the same drawn units."""
        first, second = self.figures[SHARED].draws, other.figures[SHARED].draws
        low = high = None
        if first is not None and second is not None and len(first) == len(second):
            with np.errstate(divide="ignore", invalid="ignore"):
                ratios = 100 * first / second
            if np.isfinite(ratios).all():
                low, high = (float(end) for end in np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]))
        return self._told((100 * one / two if two else None for one, two in self._pairs(other)), low, high)

    def _told(self, values: Iterable[float | None], low: float | None, high: float | None) -> Value:
        own = self.pooled
        return Value.of(values, low=low, high=high, n=own.n, what=own.what, unscored=own.unscored)

    def _pairs(self, other: Series) -> list[tuple[float, float]]:
        """Values of the same seeds."""
        return [
            (own.value, beside.value)
            for place, own in self.figures.items()
            if isinstance(place, int) and own.value is not None
            if (beside := other.figures.get(place)) is not None and beside.value is not None
        ]


@dataclass(frozen=True)
class Figures:
    """What is kept of an experiment, and the figures of its methods, which are made without the model.

    ``outcomes`` are those of each suite that was read, by method; ``speeds`` are tables of speed as they were measured,
    by their place among all tables.
    """

    experiment: Experiment
    model: str
    methods: tuple[EvaluationMethod, ...]
    suites: Mapping[str, Suite]
    outcomes: Mapping[str, Mapping[str, Sequence[Outcome]]]
    calibrations: tuple[CalibrationNote, ...] = ()
    thresholds: Callable[[str, str, int], Calibration | None] = lambda suite, method, seed: None
    prompts: Callable[[str, int], tuple[list[str], list[str]] | None] = lambda suite, seed: None
    left_out: tuple[str, ...] = ()
    speeds: Mapping[int, Any] = field(default_factory=dict)
    outside: Outside = "floor"

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of the methods."""
        return tuple(method.label for method in self.methods)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds with outcomes, or with thresholds."""
        read = {own.seed for by_method in self.outcomes.values() for found in by_method.values() for own in found}
        return tuple(sorted(read | {note.seed for note in self.calibrations}))

    @property
    def averaged(self) -> Averaged:
        """The parts of the averages whose suites took part."""
        whole = self.experiment.averaged
        bias, utility = (tuple(p for p in parts if p.suite in self.suites) for parts in (whole.bias, whole.utility))
        return Averaged(bias, utility)

    @property
    def sweep(self) -> Sweep:
        """What is swept."""
        assert self.experiment.sweep is not None
        return self.experiment.sweep

    @cached_property
    def _measured(self) -> dict[str, dict[str, Measured]]:
        return {
            suite.key: measured(suite, self.methods, self.outcomes.get(suite.key, {}), self.outside)
            for suite in self.suites.values()
        }

    def all_of(self, suite: str, label: str) -> list[Outcome]:
        """Outcomes of a method on a suite, in an order that does not depend on theirs."""
        own = self.suites.get(suite)
        return [] if own is None else in_order(self.outcomes.get(own.key, {}).get(label, ()))

    def read(self, suite: str, label: str) -> list[Outcome]:
        """Those of them that were read."""
        return [outcome for outcome in self.all_of(suite, label) if not outcome.unread]

    def ranks(self, kind: str) -> dict[str, Value]:
        """Average ranks over the main figures of suites of a kind, by method; none where methods cannot be ranked."""
        suites = list(dict.fromkeys(self.suites.values()))
        return {
            row.method: Value(own.value, own.deviation, n=own.columns, what="figures")
            for row in table_of(suites, self.methods, self._measured, self.outside, None).rows
            for own in row.averages
            if own.kind == kind
        }

    def figure(self, part: Part, label: str) -> Series | None:
        """A figure of a suite; None where the method has none of that key."""
        suite = self.suites.get(part.suite)
        found = None if suite is None else self._measured[suite.key].get(label)
        if found is None or suite is None:
            return None
        key = (part.figure or suite.main, "")
        if key not in found.own or key not in found.shared:
            return None
        made = {POOLED: found.own, SHARED: found.shared, **found.own_by_seed}
        return Series({place: shown_as(own[key], part.shown) for place, own in made.items() if key in own})

    def average(self, kind: str, label: str) -> Series | None:
        """The average bias or utility over those of its suites that took part; None where a figure is missing."""
        parts = getattr(self.averaged, kind)
        found = {part.suite: own.figures for part in parts if (own := self.figure(part, label)) is not None}
        if not parts or len(found) < len(parts):
            return None
        places = [place for place in found[parts[0].suite] if all(place in own for own in found.values())]
        return Series({
            place: average(f"{kind}_average", TITLES[kind], {suite: own[place] for suite, own in found.items()})
            for place in places
        })  # fmt: skip

    def certificates(
        self, make: Callable[[Sequence[Outcome]], Figure], label: str, suites: Iterable[str]
    ) -> Series | None:
        """How often or how much was certified, over several suites; None for a method without thresholds."""
        method = next(own for own in self.methods if own.label == label)
        outcomes = [replace(own, unit=f"{key} {own.unit}") for key in suites for own in self.read(key, label)]
        if not method.calibrated or not outcomes:
            return None
        pooled, seeds = make(outcomes), sorted({own.seed for own in outcomes})
        by_seed = {seed: make([own for own in outcomes if own.seed == seed]) for seed in seeds}
        return Series({POOLED: pooled, SHARED: pooled, **by_seed})
