"""Choosing lambda or alpha: the paper's knee rule, a line search beside it, and how steady the choice is.

A value is chosen on units kept for validation alone; figures of what was chosen belong to the others.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coft_core.errors import InvalidInputError
from coft_core.experiments.front import Averaged, Point, coordinates, drawn_coordinates, point_of
from coft_core.suites.base import Outcome, Outside, Suite

Floats = npt.NDArray[np.float64]

TOLERANCE = 0.02
"""The paper's 2 %."""

VALIDATION_SHARE = 0.2
"""Share of the units on which values are chosen; the paper says "a small validation split"."""

ROUNDING = 1e-9
"""Scores that are closer than this are equal."""


# What may be used for choosing.


@dataclass(frozen=True, slots=True)
class ValidationSplit:
    """Which units choose, and which show what was chosen.

    A unit's side follows from its name and the seed alone, so that it never changes with what else is read: a run on
    more items, or on another sample of them, tests on no unit that an earlier one chose by.
    """

    share: float = VALIDATION_SHARE
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse a share that leaves one side empty."""
        if not 0 < self.share < 1:
            raise InvalidInputError(f"The validation share is {self.share:g}; choose one between 0 and 1.")

    def validates(self, suite: str, unit: str) -> bool:
        """Whether a unit of a suite is one of validation."""
        return self._place("split", suite, unit) < self.share

    def sides(self, suite: str, outcomes: Iterable[Outcome]) -> tuple[list[Outcome], list[Outcome]]:
        """Outcomes of validation, and those of the test."""
        sides: tuple[list[Outcome], list[Outcome]] = ([], [])
        for outcome in outcomes:
            sides[not self.validates(suite, outcome.unit)].append(outcome)
        return sides

    def portion(self, suite: str, outcomes: Iterable[Outcome], share: float) -> list[Outcome]:
        """About this share of the outcomes, in whole units; those of a smaller share are among those of a larger."""
        return [outcome for outcome in outcomes if self._place("portion", suite, outcome.unit) < share]

    def check(self, suite: str, outcomes: Iterable[Outcome]) -> None:
        """Refuse outcomes that nothing may be chosen by."""
        units = dict.fromkeys(outcome.unit for outcome in outcomes)
        if not units:
            raise InvalidInputError(f"{suite} has no unit of validation; read more items, or enlarge the share.")
        for unit in units:
            if not self.validates(suite, unit):
                raise InvalidInputError(
                    f"The unit {unit!r} of {suite} belongs to the test; choose a value on units of validation alone."
                )

    def _place(self, what: str, suite: str, unit: str) -> float:
        """A number from 0 to 1 that is a unit's own."""
        digest = hashlib.sha256(f"{what}\n{self.seed}\n{suite}\n{unit}".encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**64


def validation_points(
    by_value: Mapping[float, Mapping[str, Sequence[Outcome]]],
    split: ValidationSplit,
    averaged: Averaged,
    suites: Mapping[str, Suite],
    outside: Outside = "floor",
) -> list[Point]:
    """Points of swept values, smallest first, to choose by."""
    for by_suite in by_value.values():
        for suite in averaged.suites:
            split.check(suite, by_suite.get(suite, ()))
    return [point_of(value, by_value[value], averaged, suites, outside) for value in sorted(by_value)]


# The knee rule.


@dataclass(frozen=True, slots=True)
class Choice:
    """A chosen value."""

    chosen: float | None
    knee: float | None
    scores: Mapping[float, float]
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
        return Choice(None, None, {}, {}, f"{len(eligible)} values can be chosen from; sweep at least two.")
    bias, utility = (coordinate[:, None] for coordinate in coordinates(eligible))  # (P, 1)
    scores = _scores(bias, utility)
    knee, chosen = _chosen(bias, utility, scores, tolerance)
    shares: dict[float, float] = {}
    if (drawn := drawn_coordinates(eligible)) is not None:
        # Drawn units may leave a figure without a value; such a draw says nothing.
        whole = np.isfinite(drawn[0]).all(0) & np.isfinite(drawn[1]).all(0)  # (R,)
        kept = drawn[0][:, whole], drawn[1][:, whole]
        places = _chosen(*kept, _scores(*kept), tolerance)[1]
        shares = {value: float((places == place).mean()) for place, value in enumerate(values)} if whole.any() else {}
    by_value = {value: float(score) for value, score in zip(values, scores[:, 0], strict=True)}
    return Choice(values[int(chosen[0])], values[int(knee[0])], by_value, shares)


def _scores(bias: Floats, utility: Floats) -> Floats:
    """Distance beyond the chord, ``(P, R)``, for coordinates of that shape."""
    return (_scaled(utility) - _scaled(bias)) / math.sqrt(2)


def _scaled(values: Floats) -> Floats:
    """Values over their range, ``(P, R)``; 0 where they are all alike."""
    least, most = values.min(0), values.max(0)  # (R,)
    width = np.where(most > least, most - least, 1.0)
    return np.asarray((values - least) / width)


def _chosen(
    bias: Floats, utility: Floats, scores: Floats, tolerance: float
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Places of the knee and of the chosen value, ``(R,)`` each."""
    knee = np.argmax(scores >= scores.max(0) - ROUNDING, axis=0)
    at_knee = (knee, np.arange(bias.shape[1]))
    width = utility.max(0) - utility.min(0)
    near = (bias <= bias[at_knee] + tolerance * np.abs(bias).max(0) + ROUNDING) & (
        utility >= utility[at_knee] - tolerance * width - ROUNDING
    )
    return knee, np.argmax(near, axis=0)


# The line search.


@dataclass(frozen=True, slots=True)
class Rung:
    """One round of successive halving."""

    share: float
    values: tuple[float, ...]
    kept: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LineSearch:
    """What successive halving found."""

    chosen: float | None
    rungs: tuple[Rung, ...]
    cost: float


def choose_by_halving(
    values: Sequence[float],
    measure: Callable[[float, float], Point],
    tolerance: float = TOLERANCE,
    below: float = 1.0,
) -> LineSearch:
    """Successive halving (Jamieson and Talwalkar 2016) over values of one knob, the line search of the paper.

    Every round doubles the share of the validation units, the last one using all, and keeps the better half by the
    distance beyond the chord. Scales and chord are those of the first round, which alone has the whole curve. Of the
    last two, the smaller one is chosen if it is within the tolerance of the better one.
    """
    candidates = sorted({value for value in values if value < below})
    if len(candidates) < 2:
        return LineSearch(None, (), 0.0)
    rounds = max(math.ceil(math.log2(len(candidates))), 1)
    rungs: list[Rung] = []
    readings = 0.0
    left = candidates
    scales: tuple[Floats, Floats] | None = None
    for number in range(rounds):
        share = 2.0 ** (number + 1 - rounds)
        points = [measure(value, share) for value in left]
        readings += share * len(points)
        bias, utility = coordinates(points)
        if scales is None:
            scales = _ends(bias), _ends(utility)
        scores = _on(utility, scales[1]) - _on(bias, scales[0])  # (P,)
        if number == rounds - 1:
            chosen = left[_near_best(bias, utility, scores, scales, tolerance)]
            rungs.append(Rung(share, tuple(left), (chosen,)))
            break
        best = np.argsort(-scores, kind="stable")[: math.ceil(len(left) / 2)]
        kept = sorted(left[place] for place in best)
        rungs.append(Rung(share, tuple(left), tuple(kept)))
        left = kept
    return LineSearch(rungs[-1].kept[0], tuple(rungs), readings / len(candidates))


def _ends(values: Floats) -> Floats:
    return np.array([values.min(), values.max()])


def _on(values: Floats, ends: Floats) -> Floats:
    width = ends[1] - ends[0]
    return np.asarray((values - ends[0]) / (width if width > 0 else 1.0))


def _near_best(bias: Floats, utility: Floats, scores: Floats, scales: tuple[Floats, Floats], tolerance: float) -> int:
    best = int(np.argmax(scores >= scores.max() - ROUNDING))
    slack = tolerance * np.abs(scales[0]).max(), tolerance * (scales[1][1] - scales[1][0])
    near = (bias <= bias[best] + slack[0] + ROUNDING) & (utility >= utility[best] - slack[1] - ROUNDING)
    return int(np.argmax(near))


# How steady a choice is.


@dataclass(frozen=True, slots=True)
class Stability:
    """A chosen value across suites."""

    mean: float | None
    deviation: float | None
    chosen: Mapping[str, float | None]

    @property
    def n(self) -> int:
        """Suites with a choice."""
        return sum(value is not None for value in self.chosen.values())


def stability(chosen: Mapping[str, float | None]) -> Stability:
    """Mean and standard deviation of the values that were chosen on each suite by itself."""
    values = [value for value in chosen.values() if value is not None]
    return Stability(
        float(np.mean(values)) if values else None,
        float(np.std(values, ddof=1)) if len(values) > 1 else None,
        dict(chosen),
    )
