"""What a setting costs and brings: points of bias and utility, and the front of those that no other one beats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coft_core.errors import InvalidInputError
from coft_core.experiments.averages import Part, average, shown_as
from coft_core.suites.base import Figure, Outcome, Outside, Suite

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Point:
    """What one setting does."""

    value: float
    bias: Figure
    utility: Figure


@dataclass(frozen=True, slots=True)
class Averaged:
    """Which figures make the bias and the utility of a point."""

    bias: tuple[Part, ...]
    utility: tuple[Part, ...]

    def __post_init__(self) -> None:
        """Refuse to count a suite twice in one average."""
        for parts in (self.bias, self.utility):
            named = [part.suite for part in parts]
            if twice := next((suite for suite in named if named.count(suite) > 1), None):
                raise InvalidInputError(f"{twice} stands twice in one average; name one figure of each suite.")

    @property
    def suites(self) -> tuple[str, ...]:
        """Keys of the suites that are needed."""
        return tuple(dict.fromkeys(part.suite for part in (*self.bias, *self.utility)))


def point_of(
    value: float,
    outcomes: Mapping[str, Sequence[Outcome]],
    averaged: Averaged,
    suites: Mapping[str, Suite],
    outside: Outside = "floor",
) -> Point:
    """The point of a setting."""
    figures = {key: list(suites[key].figures(outcomes[key], outside)) for key in averaged.suites}

    def mean(key: str, title: str, parts: Sequence[Part]) -> Figure:
        found = {part.suite: shown_as(figure_of(suites[part.suite], figures[part.suite], part), part.shown)
                 for part in parts}  # fmt: skip
        return average(key, title, found)

    return Point(
        value, mean("bias_average", "BiasAvg", averaged.bias), mean("utility_average", "UtilityAvg", averaged.utility)
    )


def figure_of(suite: Suite, figures: Sequence[Figure], part: Part) -> Figure:
    """The figure of a part, over the whole suite."""
    key = part.figure or suite.main
    whole = {figure.key: figure for figure in figures if not figure.part}
    if key not in whole:
        raise InvalidInputError(f"{suite.title} has no figure {key!r}; it has {', '.join(whole)}.")
    return whole[key]


def pareto_front(points: Sequence[Point]) -> list[bool]:
    """Whether each point is on the front: no other one is at least as good in both and better in one."""
    bias, utility = coordinates(points)
    return [bool(on) for on in _on_front(bias[:, None], utility[:, None])[:, 0]]


def front_shares(points: Sequence[Point]) -> list[float] | None:
    """How often each point is on the front when the items' units are drawn anew; None where a point has no draws."""
    coordinates(points)
    drawn = drawn_coordinates(points)
    if drawn is None:
        return None
    whole = np.isfinite(drawn[0]).all(0) & np.isfinite(drawn[1]).all(0)  # (R,)
    on = _on_front(drawn[0][:, whole], drawn[1][:, whole])
    return [float(share) for share in on.mean(1)] if whole.any() else None


def coordinates(points: Sequence[Point]) -> tuple[Floats, Floats]:
    """Bias and utility of points, ``(P,)`` each."""
    for point in points:
        if point.bias.value is None or point.utility.value is None:
            lacking = "bias" if point.bias.value is None else "utility"
            raise InvalidInputError(f"The point at {point.value:g} has no {lacking}; leave it out or measure it.")
    return (
        np.array([point.bias.value for point in points], dtype=float),
        np.array([point.utility.value for point in points], dtype=float),
    )


def drawn_coordinates(points: Sequence[Point]) -> tuple[Floats, Floats] | None:
    """Bias and utility of points over the same drawn units, ``(P, R)`` each; None where one lacks draws."""
    drawn = [(point.bias.draws, point.utility.draws) for point in points]
    bias = [own for own, _ in drawn if own is not None]
    utility = [own for _, own in drawn if own is not None]
    if not points or len(bias) + len(utility) < 2 * len(points) or len({len(own) for own in (*bias, *utility)}) > 1:
        return None
    return np.stack(bias), np.stack(utility)


def _on_front(bias: Floats, utility: Floats) -> npt.NDArray[np.bool_]:
    """``(P, R)`` for coordinates ``(P, R)``."""
    on = np.ones(bias.shape, dtype=bool)
    for place in range(len(bias)):
        no_worse = (bias <= bias[place]) & (utility >= utility[place])  # (P, R)
        better = (bias < bias[place]) | (utility > utility[place])
        on[place] = ~(no_worse & better).any(0)
    return on
