"""The knee rule chooses what the paper chooses, never lambda 1, and only by units of validation."""

from __future__ import annotations

import numpy as np
import pytest

from coft_core.errors import InvalidInputError
from coft_core.experiments.averages import Part
from coft_core.experiments.choice import (
    ValidationSplit,
    choose_by_halving,
    choose_by_knee,
    stability,
    validation_points,
)
from coft_core.experiments.front import Averaged, Point, pareto_front
from coft_core.suites.base import Figure, Outcome, Suite
from coft_core.suites.statistics import mean_figure


def point(value, bias, utility, draws=None):
    made = [Figure("f", "F", mean, draws=None if draws is None else draws[place])
            for place, mean in enumerate((bias, utility))]  # fmt: skip
    return Point(value, *made)


def points(*rows):
    return [point(*row) for row in rows]


LLAMA = points(
    (0.0, 0.196, 66.9), (0.2, 0.172, 67.4), (0.4, 0.156, 67.8), (0.6, 0.147, 68.0), (0.7, 0.144, 68.0),
    (0.8, 0.143, 67.9), (1.0, 0.144, 67.7),
)  # fmt: skip
MISTRAL = points(
    (0.0, 0.190, 73.6), (0.2, 0.169, 74.0), (0.4, 0.154, 74.4), (0.6, 0.145, 74.5), (0.7, 0.142, 74.5),
    (0.8, 0.141, 74.4), (1.0, 0.142, 74.2),
)  # fmt: skip
ALPHA = points((0.05, 0.145, 67.7), (0.10, 0.147, 68.0), (0.20, 0.158, 68.1))
"""The paper's sweeps: figures "Ablation: lambda", "Model-wise ablations" (b) and "Ablation: alpha"."""


def test_the_papers_choices_or_the_smaller_neighbours_of_knees_and_never_lambda_1_are_chosen():
    for sweep, chosen in ((LLAMA, 0.6), (MISTRAL, 0.6), (ALPHA, 0.10)):
        assert choose_by_knee(sweep).chosen == chosen
        assert choose_by_knee(sweep[::-1]).chosen == chosen
    choice = choose_by_knee(LLAMA)
    assert choice.knee == 0.7
    assert pareto_front(LLAMA)[[own.value for own in LLAMA].index(0.7)]
    assert max(choice.scores, key=choice.scores.get) == 0.7
    assert choose_by_knee(LLAMA, tolerance=0.0).chosen == 0.7
    sweep = points((0.0, 0.3, 60.0), (0.5, 0.2, 65.0), (0.9, 0.19, 66.0), (1.0, 0.01, 90.0))
    choice = choose_by_knee(sweep)
    assert choice.chosen == 0.9
    assert 1.0 not in choice.scores
    assert choose_by_halving([0.0, 0.5, 0.9, 1.0], lambda value, _: by_value(sweep)[value]).chosen == 0.9
    sweep = points((0.0, 0.30, 70.0), (0.3, 0.20, 70.0), (0.6, 0.101, 70.0), (0.9, 0.1, 70.0))
    assert choose_by_knee(sweep).chosen == 0.6
    assert choose_by_knee(points((0.2, 0.1, 50.0), (0.4, 0.1, 50.0))).chosen == 0.2


def by_value(sweep):
    return {own.value: own for own in sweep}


def test_nothing_is_chosen_from_one_value_or_one_swept_twice():
    choice = choose_by_knee(points((0.5, 0.1, 50.0), (1.0, 0.1, 50.0)))
    assert choice.chosen is None
    assert "at least two" in choice.reason
    with pytest.raises(InvalidInputError, match="twice"):
        choose_by_knee(points((0.5, 0.1, 50.0), (0.5, 0.2, 50.0)))
    assert choose_by_halving([0.5, 1.0], smooth(0.6, 0.2)).chosen is None


def test_draws_say_how_often_each_value_would_be_chosen_and_those_without_a_value_are_left_out():
    generator = np.random.default_rng(0)
    swept = [
        point(own.value, own.bias.value, own.utility.value,
              (generator.normal(own.bias.value, 1e-6, 500), generator.normal(own.utility.value, 1e-6, 500)))
        for own in LLAMA
    ]  # fmt: skip
    swept[0].bias.draws[:100] = np.nan
    choice = choose_by_knee(swept)
    assert choice.shares == {0.0: 0.0, 0.2: 0.0, 0.4: 0.0, 0.6: 1.0, 0.7: 0.0, 0.8: 0.0}
    assert choose_by_knee(LLAMA).shares == {}


def smooth(turn, width):
    """A curve whose bias falls ever less and whose utility falls ever more, as functions of the value."""

    def measure(value, _):
        return point(value, 0.1 + 0.2 * np.exp(-value / width), 70.0 - 4.0 * np.exp((value - turn) / 0.15))

    return measure


@pytest.mark.parametrize("turn", [0.4, 0.6, 0.8, 1.0])
@pytest.mark.parametrize("width", [0.1, 0.2, 0.4])
def test_halving_finds_the_same_within_one_grid_step_on_smooth_curves(turn, width):
    values = [round(0.05 * step, 2) for step in range(20)]
    measure = smooth(turn, width)
    grid = choose_by_knee([measure(value, 1.0) for value in values])
    search = choose_by_halving(values, measure)
    assert abs(search.chosen - grid.chosen) <= 0.05 + 1e-9
    assert search.cost < 0.5


def test_halving_doubles_its_units_and_ends_with_two_values_on_all_of_them():
    asked = []

    def measure(value, share):
        asked.append((value, share))
        return smooth(0.6, 0.2)(value, share)

    search = choose_by_halving([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9], measure)
    assert [rung.share for rung in search.rungs] == [0.125, 0.25, 0.5, 1.0]
    assert [len(rung.values) for rung in search.rungs] == [10, 5, 3, 2]
    assert all(set(later.values) == set(rung.kept) for rung, later in zip(search.rungs, search.rungs[1:], strict=False))
    assert search.cost == pytest.approx(sum(share for _, share in asked) / 10)


# What may be used for choosing.


class Shares(Suite):
    """The mean of a fact."""

    key = title = "made"
    kind, citation, licence, main = "bias", "", "", "mean"
    better = "lower"

    def items(self, data):
        return []

    def figures(self, outcomes, outside="floor"):
        units = [outcome.unit for outcome in outcomes]
        return [mean_figure("mean", "Mean", units, [o.facts["value"] for o in outcomes], better=self.better)]


class Right(Shares):
    """The same, of which more is better."""

    key = title = "right"
    better = "higher"


SUITES = {"made": Shares(), "right": Right()}
AVERAGED = Averaged((Part("made"),), (Part("right"),))


def outcomes(count, value=0.5):
    return [Outcome(f"item {place}", f"unit {place}", {"value": value}, ()) for place in range(count)]


def test_units_stay_on_their_sides_and_smaller_portions_are_parts_of_larger_ones():
    split = ValidationSplit()
    few, many = outcomes(50), outcomes(500)
    chosen, tested = split.sides("made", many)
    assert split.sides("made", few)[0] == [one for one in chosen if one in few]
    assert not {one.unit for one in chosen} & {one.unit for one in tested}
    assert len(chosen) == pytest.approx(100, abs=30)
    assert split.sides("right", many)[0] != chosen
    assert ValidationSplit(seed=1).sides("made", many)[0] != chosen
    split, whole = ValidationSplit(), outcomes(400)
    half, quarter = (split.portion("made", whole, share) for share in (0.5, 0.25))
    assert {one.unit for one in quarter} < {one.unit for one in half}
    assert len(half) == pytest.approx(200, abs=40)
    assert split.portion("made", whole, 1.0) == whole


def test_points_are_of_validation_alone_whose_split_has_two_sides():
    split = ValidationSplit(0.5)
    chosen = {suite: split.sides(suite, outcomes(100))[0] for suite in SUITES}
    made = validation_points({0.4: chosen, 0.2: chosen}, split, AVERAGED, SUITES)
    assert [one.value for one in made] == [0.2, 0.4]
    leaked = {**chosen, "right": [*chosen["right"], split.sides("right", outcomes(100))[1][0]]}
    with pytest.raises(InvalidInputError, match="of right belongs to the test"):
        validation_points({0.2: chosen, 0.4: leaked}, split, AVERAGED, SUITES)
    split = ValidationSplit(0.5)
    chosen = split.sides("made", outcomes(100))[0]
    with pytest.raises(InvalidInputError, match="right has no unit of validation"):
        validation_points({0.2: {"made": chosen}}, split, AVERAGED, SUITES)
    for share in (0.0, 1.0, -0.1):
        with pytest.raises(InvalidInputError, match="between 0 and 1"):
            ValidationSplit(share)


def test_stability_counts_the_suites_that_chose_and_takes_the_sample_deviation():
    found = stability({"a": 0.4, "b": 0.6, "c": None})
    assert (found.mean, found.n) == (0.5, 2)
    assert found.deviation == pytest.approx(np.std([0.4, 0.6], ddof=1))
    assert stability({"a": 0.4}).deviation is None
    assert stability({"a": None}).mean is None
