"""Choosing lambda or alpha on units kept for validation: the paper's knee rule, and a line search beside it.

A unit's side follows from its name and the seed only, so that it never changes with what else is read: a run on more
items, or on another sample of them, tests on no unit that an earlier one chose by.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from coft_core.errors import InvalidInputError
from coft_core.experiments.averages import Part, average, shown_as
from coft_core.suites.base import Figure, Outcome, Outside, Suite
from coft_core.suites.statistics import made_with

Floats = npt.NDArray[np.float64]
Outcomes = Mapping[str, Sequence[Outcome]]
"""Outcomes by suite."""

TOLERANCE = 0.02
"""The paper's 2 %."""

VALIDATION_SHARE = 0.2
"""Share of the units on which values are chosen; the paper says "a small validation split"."""

ROUNDING = 1e-9
"""Scores that are closer than this are equal."""


# Points of bias and utility.


@dataclass(frozen=True, slots=True)
class Point:
    """What one value of a setting does; deviations of bias and utility are over seeds, None of a single one."""

    value: float
    bias: Figure
    utility: Figure
    deviations: tuple[float | None, float | None] = (None, None)


@dataclass(frozen=True, slots=True)
class Averaged:
    """Which figures make the bias and the utility of a point."""

    bias: tuple[Part, ...] = ()
    utility: tuple[Part, ...] = ()

    @property
    def suites(self) -> tuple[str, ...]:
        """Keys of the suites that are needed."""
        return tuple(dict.fromkeys(part.suite for part in (*self.bias, *self.utility)))


def point_of(
    value: float, outcomes: Outcomes, averaged: Averaged, suites: Mapping[str, Suite], outside: Outside = "floor"
) -> Point:
    """The point of a value."""
    made = {key: list(suites[key].figures(outcomes[key], outside)) for key in averaged.suites}

    def mean(key: str, title: str, parts: Sequence[Part]) -> Figure:
        whole = {part.suite: _figure_of(suites[part.suite], made[part.suite], part) for part in parts}
        return average(key, title, whole)

    return Point(
        value, mean("bias_average", "BiasAvg", averaged.bias), mean("utility_average", "UtilityAvg", averaged.utility)
    )


def _with_deviations(
    point: Point, outcomes: Outcomes, averaged: Averaged, suites: Mapping[str, Suite], outside: Outside
) -> Point:
    """The point with the standard deviations over the seeds that have outcomes of every suite."""
    seeds = set.intersection(*({own.seed for own in outcomes[suite]} for suite in averaged.suites))
    with made_with("value"):
        found = [
            point_of(
                point.value,
                {suite: [own for own in outcomes[suite] if own.seed == seed] for suite in averaged.suites},
                averaged, suites, outside,
            )
            for seed in sorted(seeds)
        ]  # fmt: skip

    def deviation(values: Sequence[float | None]) -> float | None:
        present = [value for value in values if value is not None]
        return statistics.stdev(present) if len(present) > 1 else None

    bias, utility = [own.bias.value for own in found], [own.utility.value for own in found]
    return replace(point, deviations=(deviation(bias), deviation(utility)))


def _figure_of(suite: Suite, figures: Sequence[Figure], part: Part) -> Figure:
    whole = {figure.key: figure for figure in figures if not figure.part}
    key = part.figure or suite.main
    if key not in whole:
        raise InvalidInputError(f"{suite.title} has no figure {key!r}; it has {', '.join(whole)}.")
    return shown_as(whole[key], part.shown)


def pareto_front(points: Sequence[Point]) -> list[bool]:
    """Whether each point is on the front: no other one is at least as good in both and better in one."""
    bias, utility = _coordinates(points)
    return [bool(on) for on in _on_front(bias, utility)[:, 0]]


def front_shares(points: Sequence[Point]) -> list[float] | None:
    """How often each point is on the front when the items' units are drawn again; None where a point has no draws."""
    drawn = _drawn(points)
    return None if drawn is None else [float(share) for share in _on_front(*drawn).mean(1)]


def _coordinates(points: Sequence[Point]) -> tuple[Floats, Floats]:
    """Bias and utility of points, ``(P, 1)`` each."""
    for point in points:
        if point.bias.value is None or point.utility.value is None:
            lacking = "bias" if point.bias.value is None else "utility"
            raise InvalidInputError(f"The point at {point.value:g} has no {lacking}; leave it out or measure it.")
    both = np.array([[point.bias.value, point.utility.value] for point in points], dtype=float).reshape(-1, 2)
    return both[:, :1], both[:, 1:]


def _drawn(points: Sequence[Point]) -> tuple[Floats, Floats] | None:
    """Bias and utility over the same drawn units, ``(P, R)`` each, without draws in which a figure has no value."""
    drawn = [draws for point in points for draws in (point.bias.draws, point.utility.draws) if draws is not None]
    if not points or len(drawn) < 2 * len(points) or len({len(draws) for draws in drawn}) > 1:
        return None
    whole = np.stack(drawn)
    whole = whole[:, np.isfinite(whole).all(0)]
    return (whole[::2], whole[1::2]) if whole.shape[1] else None


def _on_front(bias: Floats, utility: Floats) -> npt.NDArray[np.bool_]:
    """``(P, R)`` for coordinates ``(P, R)``."""
    on = np.ones(bias.shape, dtype=bool)
    for place in range(len(bias)):
        no_worse = (bias <= bias[place]) & (utility >= utility[place])  # (P, R)
        better = (bias < bias[place]) | (utility > utility[place])
        on[place] = ~(no_worse & better).any(0)
    return on


# The two rules.


@dataclass(frozen=True, slots=True)
class Choice:
    """A chosen value; ``shares`` say how often each one is chosen when the items' units are drawn again."""

    chosen: float | None
    knee: float | None
    shares: Mapping[float, float]
    reason: str = ""


def choose_by_knee(points: Sequence[Point], tolerance: float = TOLERANCE, below: float = 1.0) -> Choice:
    """The paper's rule: the smallest value within 2 % of the knee of the bias-utility curve.

    Bias and utility are scaled to 0 to 1 over the sweep. The chord joins the corner of least bias and least utility to
    that of most bias and most utility; these are the two ends of the front where it spans the sweep. The knee is the
    point that lies farthest beyond the chord, on the side of less bias and more utility, ties going to the smaller
    value. It is always on the front. (The chord between the ends of the front itself says nothing where the front has
    two points, as it has in the paper's own sweeps of lambda.)

    A value is within the tolerance of the knee if its bias is larger by no more than that share of the largest bias,
    and its utility smaller by no more than that share of the sweep's range: bias has a natural zero and utility has
    none. Read otherwise, the 2 % do not give the paper's choices: 2 % of the knee's own bias leave out its lambda of
    0.6 (0.147 against 0.144), and 2 % of the knee's own utility let in an alpha of 0.05 (67.7 against 68.0).
    """
    eligible = sorted((point for point in points if point.value < below), key=lambda point: point.value)
    values = [point.value for point in eligible]
    if len(set(values)) < len(values):
        raise InvalidInputError("A value is swept twice; give each once.")
    if len(eligible) < 2:
        return Choice(None, None, {}, f"{len(eligible)} values can be chosen from; sweep at least two.")
    bias, utility = _coordinates(eligible)
    knee, chosen = _near_knee(bias, utility, (_range(bias), _range(utility)), tolerance)
    shares: dict[float, float] = {}
    if (drawn := _drawn(eligible)) is not None:
        places = _near_knee(*drawn, (_range(drawn[0]), _range(drawn[1])), tolerance)[1]
        shares = {value: float((places == place).mean()) for place, value in enumerate(values)}
    return Choice(values[int(chosen[0])], values[int(knee[0])], shares)


@dataclass(frozen=True, slots=True)
class LineSearch:
    """What successive halving found, and at which share of the readings of the whole sweep; or why nothing."""

    chosen: float | None
    cost: float = 0.0
    reason: str = ""


def choose_by_halving(
    values: Sequence[float],
    measure: Callable[[float, float], Point],
    tolerance: float = TOLERANCE,
    below: float = 1.0,
) -> LineSearch:
    """Successive halving (Jamieson and Talwalkar 2016) over values of one knob, the line search of the paper.

    Every round doubles the share of the validation units, the last one using all, and keeps the better half by the
    distance beyond the chord. Scales and chord are those of the first round; only it has the whole curve. Of the
    last two, the smaller one is chosen if it is within the tolerance of the better one.
    """
    left = candidates = sorted({value for value in values if value < below})
    if len(candidates) < 2:
        return LineSearch(None, reason="too few values")
    rounds = math.ceil(math.log2(len(candidates)))
    readings, ranges = 0.0, None
    for number in range(rounds):
        share = 2.0 ** (number + 1 - rounds)
        bias, utility = _coordinates([measure(value, share) for value in left])
        readings += share * len(left)
        ranges = ranges or (_range(bias), _range(utility))
        if number < rounds - 1:
            best = np.argsort(-_beyond_chord(bias, utility, ranges)[:, 0], kind="stable")[: math.ceil(len(left) / 2)]
            left = sorted(left[place] for place in best)
    assert ranges is not None
    chosen = _near_knee(bias, utility, ranges, tolerance)[1]
    return LineSearch(left[int(chosen[0])], readings / len(candidates))


Range = tuple[Floats, Floats]


def _range(values: Floats) -> Range:
    """Least and most of each draw, ``(R,)`` each."""
    return values.min(0), values.max(0)


def _beyond_chord(bias: Floats, utility: Floats, ranges: tuple[Range, Range]) -> Floats:
    """Distance beyond the chord, ``(P, R)`` for coordinates of that shape, in parts of the square root of two."""

    def scaled(values: Floats, over: Range) -> Floats:
        least, most = over
        return np.asarray((values - least) / np.where(most > least, most - least, 1.0))

    return scaled(utility, ranges[1]) - scaled(bias, ranges[0])


def _near_knee(
    bias: Floats, utility: Floats, ranges: tuple[Range, Range], tolerance: float
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Places of the knee and of the smallest value within the tolerance of it, ``(R,)`` each."""
    scores = _beyond_chord(bias, utility, ranges)
    knee = np.argmax(scores >= scores.max(0) - ROUNDING, axis=0)
    at_knee = (knee, np.arange(bias.shape[1]))
    largest, width = np.abs(ranges[0]).max(0), ranges[1][1] - ranges[1][0]
    near = (bias <= bias[at_knee] + tolerance * largest + ROUNDING) & (
        utility >= utility[at_knee] - tolerance * width - ROUNDING
    )
    return knee, np.argmax(near, axis=0)


# Choosing by units of validation.


@dataclass(frozen=True, slots=True)
class Selection:
    """What both rules choose by units of validation, and the chosen value and another one on the units of the test.

    Without a unit of validation nothing is chosen, and all units are those of the test.
    """

    points: list[Point]
    on_front: list[bool]
    front_shares: list[float] | None
    knee: Choice
    search: LineSearch
    tested: Point | None
    validated: int
    tested_on: int
    beside: Point | None = None


def select(
    swept: Mapping[float, Outcomes],
    averaged: Averaged,
    suites: Mapping[str, Suite],
    outside: Outside = "floor",
    share: float = VALIDATION_SHARE,
    seed: int = 0,
    below: float = 1.0,
    beside: float | None = None,
) -> Selection:
    """Choose among swept values by the validation share of the items that every value read.

    Only values under ``below`` can be chosen; what was chosen and ``beside`` are shown on the other units.

    Raises:
        InvalidInputError: There is nothing to choose by; the sentence says what is missing.
    """
    common = _read_by_all(swept, averaged.suites)

    def side(value: float, wanted: bool, portion: float = 1.0) -> dict[str, list[Outcome]]:
        return {
            suite: [
                own
                for own in common[value][suite]
                if (unit_place("split", seed, suite, own.unit) < share) is wanted
                and unit_place("portion", seed, suite, own.unit) < portion
            ]
            for suite in averaged.suites
        }

    def measure(value: float, portion: float) -> Point:
        part = side(value, True, portion)
        if empty := next((suite for suite in averaged.suites if not part[suite]), None):
            raise InvalidInputError(f"a share of {portion:g} of the units of validation leaves none of {empty}")
        return point_of(value, part, averaged, suites, outside)

    def shown(value: float, own: dict[str, list[Outcome]]) -> Point:
        return _with_deviations(point_of(value, own, averaged, suites, outside), own, averaged, suites, outside)

    ordered = sorted(swept)
    if unread := next((suite for suite in averaged.suites if not common[ordered[0]][suite]), None):
        raise InvalidInputError(f"{unread} has no item that was read at every value; read more items.")
    validation = {value: side(value, True) for value in ordered}
    if lacking := next((suite for suite, own in validation[ordered[0]].items() if not own), None):
        points = [shown(value, common[value]) for value in ordered]
        knee = Choice(None, None, {}, f"{lacking} has no unit of validation; read more items.")
        beside_it = None if beside is None else shown(beside, common[beside])
        search, units = LineSearch(None, reason=knee.reason), _units(common[ordered[0]])
        return Selection(points, pareto_front(points), front_shares(points), knee, search, None, 0, units, beside_it)
    points = [shown(value, own) for value, own in validation.items()]
    knee = choose_by_knee(points, below=below)
    try:
        search = choose_by_halving(list(swept), measure, below=below)
    except InvalidInputError as error:
        search = LineSearch(None, reason=str(error))

    def tested(value: float | None) -> Point | None:
        if value is None or not all((test := side(value, False)).values()):
            return None
        return shown(value, test)

    return Selection(
        points, pareto_front(points), front_shares(points), knee, search, tested(knee.chosen),
        _units(validation[ordered[0]]), _units(side(ordered[0], False)), tested(beside),
    )  # fmt: skip


def unit_place(what: str, seed: int, suite: str, unit: str) -> float:
    """A number from 0 to 1 that is a unit's own."""
    digest = hashlib.sha256(f"{what}\n{seed}\n{suite}\n{unit}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def _read_by_all(swept: Mapping[float, Outcomes], suites: Sequence[str]) -> dict[float, dict[str, list[Outcome]]]:
    """Outcomes of the items that every value read, by value and suite."""
    found: dict[float, dict[str, list[Outcome]]] = {value: {} for value in swept}
    for suite in suites:
        places = [{(own.unit, own.item, own.seed) for own in by_suite[suite]} for by_suite in swept.values()]
        common = set.intersection(*places)
        for value, by_suite in swept.items():
            found[value][suite] = [own for own in by_suite[suite] if (own.unit, own.item, own.seed) in common]
    return found


def _units(outcomes: Outcomes) -> int:
    return sum(len({own.unit for own in by_suite}) for by_suite in outcomes.values())
