"""The knee rule chooses what the paper chooses, never lambda 1, and only by units of validation."""

from __future__ import annotations

import numpy as np
import pytest

from coft_core.errors import InvalidInputError
from coft_core.experiments.averages import Part
from coft_core.experiments.choice import (
    Averaged,
    Point,
    choose_by_halving,
    choose_by_knee,
    front_shares,
    pareto_front,
    point_of,
    select,
    unit_place,
)
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
    assert choose_by_knee(LLAMA, tolerance=0.0).chosen == 0.7
    sweep = points((0.0, 0.3, 60.0), (0.5, 0.2, 65.0), (0.9, 0.19, 66.0), (1.0, 0.01, 90.0))
    assert choose_by_knee(sweep).chosen == 0.9
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


def test_halving_finds_the_same_within_one_grid_step_on_smooth_curves():
    values = [round(0.05 * step, 2) for step in range(20)]
    for turn in (0.4, 0.6, 1.0):
        for width in (0.1, 0.4):
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
    by_share = {round_share: [value for value, share in asked if share == round_share] for _, round_share in asked}
    assert {share: len(values) for share, values in by_share.items()} == {0.125: 10, 0.25: 5, 0.5: 3, 1.0: 2}
    assert search.chosen in by_share[1.0]
    assert search.cost == pytest.approx(sum(share for _, share in asked) / 10)


# Points and the front.


def test_points_that_another_one_beats_are_not_on_the_front():
    swept = points((0.0, 0.30, 70.0), (0.1, 0.20, 68.0), (0.2, 0.25, 67.0), (0.3, 0.20, 67.0), (0.4, 0.10, 60.0),
                   (0.5, 0.10, 60.0))  # fmt: skip
    assert pareto_front(swept) == [True, True, False, False, True, True]
    with pytest.raises(InvalidInputError, match=r"0\.5 has no bias"):
        pareto_front(points((0.0, 0.2, 70.0), (0.5, None, 70.0)))


def test_shares_of_draws_say_how_near_a_point_is_to_the_front():
    generator = np.random.default_rng(0)
    swept = [
        point(value, bias, utility, (generator.normal(bias, 0.02, 2000), generator.normal(utility, 0.02, 2000)))
        for value, bias, utility in ((0.0, 0.2, 70.0), (0.5, 0.2, 70.0), (0.9, 0.9, 10.0))
    ]
    shares = front_shares(swept)
    # Of two that are alike, one is beaten in both coordinates in a quarter of the draws.
    assert shares[:2] == pytest.approx([0.75, 0.75], abs=0.04)
    assert shares[2] == 0.0
    assert front_shares([swept[0], point(0.5, 0.2, 70.0)]) is None


class Made(Suite):
    """Figures that are means of a fact."""

    kind, citation, licence, main = "bias", "", "", "mean"

    def __init__(self, key, better):
        self.key = self.title = key
        self.better = better

    def items(self, data):
        return []

    def figures(self, outcomes, outside="floor"):
        units, values = [own.unit for own in outcomes], [own.facts["value"] for own in outcomes]
        return [
            mean_figure("mean", "Mean", units, values, better=self.better),
            mean_figure("half", "Half", units, [value / 2 for value in values], better=self.better),
            mean_figure("mean", "Mean", units, values, better=self.better, part="part"),
        ]


SUITES = {"made": Made("made", "lower"), "zero": Made("zero", "near zero"), "right": Made("right", "higher")}
AVERAGED = Averaged((Part("made"),), (Part("right"),))


def outcomes(*values):
    return [Outcome(f"item {place}", f"unit {place}", {"value": value}, ()) for place, value in enumerate(values)]


def test_a_point_averages_the_named_figures_of_each_suite():
    given = {"made": outcomes(0.2, 0.4), "zero": outcomes(-0.1, -0.1), "right": outcomes(60.0, 70.0)}
    averaged = Averaged((Part("made"), Part("zero", "half", "size")), (Part("right"),))
    found = point_of(0.6, given, averaged, SUITES)
    assert (found.bias.value, found.utility.value) == pytest.approx(((0.3 + 0.05) / 2, 65.0))
    assert found.bias.draws is not None
    with pytest.raises(InvalidInputError, match="made has no figure 'median'; it has mean, half"):
        point_of(0.6, given, Averaged((Part("made", "median"),), (Part("right"),)), SUITES)


# What may be used for choosing.


def swept_outcomes(units=200, off=None):
    """A sweep of which 0.5 is the best value; ``off`` changes what a value made of units."""
    utility = {0.2: 60.0, 0.5: 80.0, 0.8: 40.0}
    change = off or (lambda value, suite, unit, own: own)
    return {
        value: {
            suite: [
                Outcome(own.item, own.unit, {"value": change(value, suite, own.unit, own.facts["value"])}, ())
                for own in outcomes(*[0.3 if suite == "made" else right] * units)
            ]
            for suite in AVERAGED.suites
        }
        for value, right in utility.items()
    }


def test_a_value_is_chosen_by_units_of_validation_only_and_shown_on_the_others():
    def validates(suite, unit):
        return unit_place("split", 0, suite, unit) < 0.2

    found = select(swept_outcomes(), AVERAGED, SUITES)
    assert (found.knee.chosen, found.tested.value) == (0.5, 0.5)
    assert found.validated + found.tested_on == 2 * 200
    assert found.validated == pytest.approx(80, abs=25)
    # Units of the test may say what they like.
    other = select(
        swept_outcomes(off=lambda value, suite, unit, own: own if validates(suite, unit) else 100 * (1 - value)),
        AVERAGED,
        SUITES,
    )
    assert [own.utility.value for own in other.points] == [own.utility.value for own in found.points]
    assert other.knee == found.knee
    assert other.tested.utility.value != found.tested.utility.value
    # More items change no unit's side, and another seed does.
    more = select(swept_outcomes(400), AVERAGED, SUITES)
    assert more.validated > found.validated
    assert unit_place("split", 1, "made", "unit 1") != unit_place("split", 0, "made", "unit 1")
    # Only items that every value read are chosen by.
    swept = swept_outcomes()
    swept[0.8]["made"] = swept[0.8]["made"][:100]
    found = select(swept, AVERAGED, SUITES)
    assert found.validated + found.tested_on == 100 + 200
    swept[0.2]["right"] = []
    with pytest.raises(InvalidInputError, match="right has no item"):
        select(swept, AVERAGED, SUITES)


def test_without_a_unit_of_validation_nothing_is_chosen_and_all_units_are_shown():
    swept = swept_outcomes(60)
    for by_suite in swept.values():
        by_suite["made"] = [own for own in by_suite["made"] if unit_place("split", 0, "made", own.unit) >= 0.2]
    found = select(swept, AVERAGED, SUITES, beside=0.2)
    assert (found.knee.chosen, found.search.chosen, found.tested, found.validated) == (None, None, None, 0)
    assert "made has no unit of validation" in found.knee.reason
    assert found.tested_on == 60 + len(swept[0.2]["made"])
    whole = [point_of(value, swept[value], AVERAGED, SUITES) for value in sorted(swept)]
    assert [own.utility.value for own in found.points] == [own.utility.value for own in whole]
    assert found.beside.utility.value == whole[0].utility.value
