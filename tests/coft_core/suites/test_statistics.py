"""Intervals, ranks and ties of figures."""

import numpy as np
import pytest
from scipy.stats import binom

from coft_core.suites.base import Figure
from coft_core.suites.statistics import ahead, badness, mean_figure, ranks, unit_draws


def figure(value, spread=1.0, better="lower", seed=0, draws=True):
    drawn = np.random.default_rng(seed).normal(value, spread, 2000) if draws else None
    return Figure("gap", "Gap", value, better=better, draws=drawn)


def test_as_many_units_are_drawn_as_there_are_each_as_often_as_in_a_draw_with_replacement():
    draws = unit_draws(7, 20_000)
    assert draws.shape == (20_000, 7)
    assert set(draws.sum(1)) == {7.0}
    for count in range(4):
        assert np.mean(draws == count) == pytest.approx(binom.pmf(count, 7, 1 / 7), abs=0.01)


def test_the_same_number_of_units_gives_the_same_draws_and_nobody_can_change_them():
    assert np.array_equal(unit_draws(300), unit_draws.__wrapped__(300))
    assert not np.array_equal(unit_draws(300), unit_draws(300, seed=1))
    with pytest.raises(ValueError, match="read-only"):
        unit_draws(300)[0, 0] = 5


def test_the_interval_of_a_mean_over_units_has_the_width_of_the_normal_approximation():
    values = np.random.default_rng(3).normal(10.0, 2.0, 400)
    found = mean_figure("m", "M", range(400), list(values))
    assert found.high - found.low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.1)


def test_methods_within_noise_share_the_mean_of_their_ranks_and_one_beyond_it_has_its_own():
    found = ranks({"a": figure(5.0, seed=1), "b": figure(5.5, seed=2), "c": figure(20.0, seed=3)})
    assert found == {"a": 1.5, "b": 1.5, "c": 3.0}


def test_paired_draws_tell_apart_what_independent_ones_do_not():
    one, noise = figure(5.0), figure(5.5, seed=9)
    paired = Figure("gap", "Gap", 5.5, better="lower", draws=one.draws + 0.5)
    assert ranks({"a": one, "b": noise}) == {"a": 1.5, "b": 1.5}
    assert ranks({"a": one, "b": paired}) == {"a": 1.0, "b": 2.0}
    assert ahead({"a": one, "b": paired}) == {"a": set(), "b": {"a"}}


@pytest.mark.parametrize(
    ("better", "value", "worse"),
    [("lower", 3.0, 4.0), ("higher", 4.0, 3.0), ("near the middle", 51.0, 48.0), ("near zero", -1.0, 2.0)],
)
def test_what_is_better_has_the_less_badness_and_the_first_rank(better, value, worse):
    assert badness(value, better) < badness(worse, better)
    assert ranks({"a": figure(worse, 0.1, better), "b": figure(value, 0.1, better)}) == {"a": 2.0, "b": 1.0}


def test_methods_without_a_value_have_no_rank_and_those_without_draws_are_ranked_by_value():
    found = ranks({"a": Figure("g", "G", None), "b": figure(2.0, draws=False), "c": figure(1.0)})
    assert found == {"b": 2.0, "c": 1.0}


def test_equal_values_tie_even_without_draws():
    assert ranks({"a": figure(2.0, draws=False), "b": figure(2.0, draws=False)}) == {"a": 1.5, "b": 1.5}


def test_a_figure_of_no_items_at_all_has_no_value():
    figure = mean_figure("key", "Title", [], [])
    assert (figure.value, figure.low, figure.n, figure.unscored) == (None, None, 0, 0)
