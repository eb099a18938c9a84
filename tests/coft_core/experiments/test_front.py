"""The front holds what no other point beats, and points are made of the figures that are asked for."""

from __future__ import annotations

import numpy as np
import pytest

from coft_core.errors import InvalidInputError
from coft_core.experiments.averages import Part
from coft_core.experiments.front import Averaged, Point, front_shares, pareto_front, point_of
from coft_core.suites.base import Figure, Outcome, Suite
from coft_core.suites.statistics import mean_figure


def point(value, bias, utility, spread=None):
    rng = np.random.default_rng(int(1000 * value))

    def figure(mean):
        draws = None if spread is None or mean is None else rng.normal(mean, spread, 2000)
        return Figure("f", "F", mean, draws=draws)

    return Point(value, figure(bias), figure(utility))


def test_points_that_another_one_beats_are_not_on_the_front():
    points = [
        point(0.0, 0.30, 70.0),  # most utility
        point(0.1, 0.20, 68.0),
        point(0.2, 0.25, 67.0),  # worse than 0.1 in both
        point(0.3, 0.20, 67.0),  # as little bias as 0.1, and less utility
        point(0.4, 0.10, 60.0),  # least bias
        point(0.5, 0.10, 60.0),  # the same again
    ]
    assert pareto_front(points) == [True, True, False, False, True, True]


def test_shares_of_draws_say_how_near_a_point_is_to_the_front():
    points = [point(0.0, 0.2, 70.0, 0.02), point(0.5, 0.2, 70.0, 0.02), point(0.9, 0.9, 10.0, 0.02)]
    shares = front_shares(points)
    # Of two that are alike, one is beaten in both coordinates in a quarter of the draws.
    assert shares[:2] == pytest.approx([0.75, 0.75], abs=0.04)
    assert shares[2] == 0.0
    assert front_shares([point(0.0, 0.2, 70.0, 0.02), point(0.5, 0.2, 70.0)]) is None


class Made(Suite):
    """Figures that are the means of a fact."""

    kind, citation, licence, main = "bias", "", "", "mean"

    def __init__(self, key, better):
        self.key = self.title = key
        self.better = better

    def items(self, data):
        return []

    def figures(self, outcomes, outside="floor"):
        units = [outcome.unit for outcome in outcomes]
        values = [outcome.facts["value"] for outcome in outcomes]
        return [
            mean_figure("mean", "Mean", units, values, better=self.better),
            mean_figure("half", "Half", units, [value / 2 for value in values], better=self.better),
            mean_figure("mean", "Mean", units, values, better=self.better, part="part"),
        ]


SUITES = {"b1": Made("b1", "lower"), "b2": Made("b2", "near zero"), "u": Made("u", "higher")}


def outcomes(*values):
    return [Outcome(str(place), str(place), {"value": value}, ()) for place, value in enumerate(values)]


def test_a_point_averages_the_named_figures_of_each_suite_once():
    given = {"b1": outcomes(0.2, 0.4), "b2": outcomes(-0.1, -0.1), "u": outcomes(60.0, 70.0)}
    averaged = Averaged((Part("b1"), Part("b2", "half", "size")), (Part("u"),))
    assert averaged.suites == ("b1", "b2", "u")
    found = point_of(0.6, given, averaged, SUITES)
    assert found.value == 0.6
    assert found.bias.value == pytest.approx((0.3 + 0.05) / 2)
    assert found.utility.value == pytest.approx(65.0)
    assert found.bias.draws is not None
    averaged = Averaged((Part("b1", "median"),), (Part("u"),))
    with pytest.raises(InvalidInputError, match="b1 has no figure 'median'; it has mean, half"):
        point_of(0.6, {"b1": outcomes(0.1), "u": outcomes(1.0)}, averaged, SUITES)
    with pytest.raises(InvalidInputError, match="b1 stands twice"):
        Averaged((Part("b1"), Part("b1", "half")), (Part("u"),))
    with pytest.raises(InvalidInputError, match=r"0\.5 has no bias"):
        pareto_front([point(0.0, 0.2, 70.0), point(0.5, None, 70.0)])
