"""Intervals cover what they claim to, methods are compared on the same draws, and ranks share what may be noise."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import beta, binom

from coft_core.suites.base import Figure
from coft_core.suites.statistics import (
    RESAMPLES,
    badness,
    difference,
    drawn_figure,
    mean_figure,
    ranks,
    unit_draws,
    unit_sums,
)


def share(values, units=None):
    return mean_figure("share", "Share", range(len(values)) if units is None else units, values)


def figure(values, better="higher", key="x"):
    """A figure whose draws are told."""
    draws = np.asarray(values, dtype=float)
    return Figure(key, key, float(draws.mean()), *np.quantile(draws, [0.025, 0.975]), 10, better=better, draws=draws)


@pytest.mark.parametrize(("right", "n"), [(0, 5), (1, 5), (5, 5), (37, 60), (200, 300)])
def test_the_interval_of_a_share_is_the_exact_one(right, n):
    found = share([1.0] * right + [0.0] * (n - right))
    low = 0.0 if right == 0 else beta.ppf(0.025, right, n - right + 1)
    high = 1.0 if right == n else beta.ppf(0.975, right + 1, n - right)
    assert found.value == pytest.approx(right / n)
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-9), pytest.approx(high, abs=1e-9))


def test_the_exact_interval_covers_at_least_95_percent_for_every_share():
    n = 25
    found = [share([1.0] * right + [0.0] * (n - right)) for right in range(n + 1)]
    for p in np.linspace(0.01, 0.99, 50):
        covered = [row.low <= p <= row.high for row in found]
        assert binom.pmf(np.arange(n + 1), n, p)[covered].sum() >= 0.95


def clustered(generator):
    """Forty units of five items whose values share most of their noise; the true mean is 0."""
    return (generator.normal(0, 1, (40, 1)) + generator.normal(0, 0.4, (40, 5))).reshape(-1)


def coverage(units, trials):
    generator = np.random.default_rng(7)
    found = [mean_figure("m", "M", units, clustered(generator).tolist()) for _ in range(trials)]
    return np.mean([row.low <= 0 <= row.high for row in found])


def test_the_interval_over_units_covers_about_95_percent_where_items_hang_together():
    # The standard error of a coverage of 95 % in 300 trials is 1.3 points.
    assert 0.90 <= coverage(np.repeat(np.arange(40), 5), 300) <= 0.985


def test_taking_such_items_for_units_of_their_own_covers_far_too_little():
    assert coverage(np.arange(200), 60) < 0.75


def test_draws_take_as_many_units_as_there_are_and_are_the_same_every_time():
    draws = unit_draws(12)
    assert draws.shape == (RESAMPLES, 12)
    assert (draws.sum(1) == 12).all()
    assert (draws == unit_draws(12)).all()
    assert (draws != unit_draws(12, seed=1)).any()
    assert draws.mean(0) == pytest.approx(np.ones(12), abs=0.1)


def test_values_are_summed_by_unit_in_the_order_of_their_first_appearance():
    assert unit_sums(["b", "a", "b"], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]).tolist() == [[6.0, 8.0], [3.0, 4.0]]


def test_what_is_unscored_is_in_no_share_and_counted():
    found = share([1.0, None, 0.0, None, 1.0])
    assert found.value == pytest.approx(2 / 3)
    assert (found.n, found.unscored) == (3, 2)
    assert len(found.draws) == RESAMPLES


def test_figures_of_nothing_have_no_value():
    for found in (share([]), share([None, None])):
        assert (found.value, found.low, found.high, found.draws, found.n) == (None, None, None, None, 0)


def test_a_value_that_is_not_finite_is_none():
    found = drawn_figure("x", "X", [0, 1], [(-math.inf, 1), (-1.0, 1)], lambda sums: np.exp(-sums[:, 0]), 2)
    assert found.value is None
    assert found.draws is None


def test_a_figure_of_sums_is_that_of_all_items_with_draws_over_units():
    # The ratio of sums is (1 + 2 + 6) / (1 + 1 + 2); a unit alone gives 3/2 or 3.
    found = drawn_figure("r", "R", ["a", "a", "b"], [(1, 1), (2, 1), (6, 2)], lambda s: s[:, 0] / s[:, 1], 3)
    assert found.value == pytest.approx(9 / 4)
    assert set(np.round(found.draws, 6)) == {1.5, 2.25, 3.0}
    assert (found.low, found.high) == (1.5, 3.0)


def test_means_that_are_no_shares_are_scaled_with_their_intervals():
    values = [0.2, 0.9, 0.4, 0.7]
    plain, scaled = share(values), mean_figure("m", "M", range(4), values, scale=100.0)
    assert scaled.value == pytest.approx(100 * plain.value)
    assert (scaled.low, scaled.high) == (pytest.approx(100 * plain.low), pytest.approx(100 * plain.high))


def test_a_share_in_percent_has_its_exact_interval_in_percent():
    scaled = mean_figure("m", "M", range(5), [1.0, 1.0, 0.0, 1.0, 0.0], scale=100.0)
    assert (scaled.low, scaled.high) == (
        pytest.approx(100 * beta.ppf(0.025, 3, 3)), pytest.approx(100 * beta.ppf(0.975, 4, 2)),
    )  # fmt: skip


def test_methods_are_compared_on_the_same_draws():
    generator = np.random.default_rng(3)
    values = generator.normal(0, 1, 50)
    first = mean_figure("m", "M", range(50), (values + 0.1).tolist())
    second = mean_figure("m", "M", range(50), values.tolist())
    gap, low, high = difference(first, second)
    # Each varies by 0.14 from draw to draw, and both together, so that their difference does not vary at all.
    assert first.draws.std() > 0.1
    assert (gap, low, high) == (pytest.approx(0.1), pytest.approx(0.1), pytest.approx(0.1))


def test_methods_of_which_one_left_something_unscored_still_share_their_draws():
    first = share([1.0, 0.0, 1.0, 0.0, 1.0, 1.0])
    second = share([1.0, 0.0, 1.0, None, 1.0, 1.0])
    weights = unit_draws(6)
    assert second.draws == pytest.approx(weights @ [1, 0, 1, 0, 1, 1] / (weights @ [1, 1, 1, 0, 1, 1]), nan_ok=True)
    assert first.draws == pytest.approx(weights @ [1, 0, 1, 0, 1, 1] / 6)


def test_there_is_no_difference_without_a_value_or_draws_of_the_same_number():
    known = figure([1.0, 2.0])
    assert difference(known, Figure("x", "x", None)) is None
    assert difference(known, replace(known, draws=None)) is None
    assert difference(known, figure([1.0, 2.0, 3.0])) is None


@pytest.mark.parametrize(
    ("better", "good", "bad"),
    [
        ("higher", 3.0, 2.0),
        ("lower", 2.0, 3.0),
        ("near the middle", 48.0, 55.0),
        ("near the middle", 51.0, 48.0),
        ("near zero", -0.1, 0.2),
        ("near zero", 0.1, -0.2),
    ],
)
def test_the_better_value_is_the_less_bad_one(better, good, bad):
    assert badness(good, better) < badness(bad, better)


def test_clearly_different_methods_are_ranked_in_their_order():
    noise = np.random.default_rng(0).normal(0, 0.01, 500)
    figures = {"worst": figure(1 + noise), "best": figure(3 + noise), "middle": figure(2 + noise)}
    assert ranks(figures) == {"best": 1.0, "middle": 2.0, "worst": 3.0}


def test_methods_whose_difference_may_be_noise_share_the_mean_of_their_ranks():
    generator = np.random.default_rng(0)
    near = {name: figure(generator.normal(5 + 0.01 * place, 1, 500)) for place, name in enumerate("abc")}
    far = {**near, "z": figure(generator.normal(50, 1, 500))}
    assert ranks(near) == {"a": 2.0, "b": 2.0, "c": 2.0}
    assert ranks(far) == {"z": 1.0, "a": 3.0, "b": 3.0, "c": 3.0}


def test_ranks_turn_with_what_is_better():
    noise = np.random.default_rng(0).normal(0, 0.01, 500)
    lower = {"a": figure(1 + noise, "lower"), "b": figure(2 + noise, "lower")}
    middle = {"a": figure(30 + noise, "near the middle"), "b": figure(60 + noise, "near the middle")}
    assert ranks(lower) == {"a": 1.0, "b": 2.0}
    assert ranks(middle) == {"b": 1.0, "a": 2.0}


def test_a_method_without_a_value_has_no_rank_and_one_without_draws_is_ranked_by_its_value():
    noise = np.random.default_rng(0).normal(0, 0.01, 500)
    figures = {"a": figure(1 + noise), "b": replace(figure(2 + noise), draws=None), "c": Figure("x", "x", None)}
    assert ranks(figures) == {"b": 1.0, "a": 2.0}
