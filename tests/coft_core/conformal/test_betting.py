"""Betting on means: the wealth by its definition, false alarms at any time, power, and intervals that hold at once."""

import math

import numpy as np
import pytest

from coft_core.conformal.betting import (
    FRACTIONS,
    STAKES,
    bet_on_difference,
    confidence_sequence,
    interval_of_quotient,
    interval_of_rest,
    log_wealth,
    pairs_to_decide,
)
from coft_core.errors import InvalidInputError

ALPHA, RUNS, LOOKS = 0.1, 200, 300


def outcomes(generator, share, number=LOOKS):
    return generator.random(number) < share


def slow_wealth(observations, mean):
    """One stake after the other, observation by observation."""
    up, down = np.ones(len(FRACTIONS)), np.ones(len(FRACTIONS))
    course = []
    for x in observations:
        up *= [1 + g * (x / mean - 1) for g in FRACTIONS]
        down *= [1 + g * ((1 - x) / (1 - mean) - 1) for g in FRACTIONS]
        course.append(STAKES @ (up + down) / 2)
    return course


def test_the_wealth_is_that_of_every_stake_multiplied_out_and_expected_to_stay_under_the_null():
    observations = np.random.default_rng(1).choice([0.0, 0.25, 0.5, 1.0], 40)
    for mean in (0.2, 0.5, 0.85):
        assert np.exp(log_wealth(observations, mean)) == pytest.approx(slow_wealth(observations, mean))
    # The martingale itself: the mean of the next wealth over draws of the null is the present one.
    past = [0.0, 0.0, 1.0, 0.5, 0.0]
    chances = {0.0: 0.3, 0.5: 0.4, 1.0: 0.3}
    now = math.exp(log_wealth(past, 0.5)[-1])
    following = sum(p * math.exp(log_wealth([*past, x], 0.5)[-1]) for x, p in chances.items())
    assert following == pytest.approx(now)


def test_a_difference_that_is_not_there_is_hardly_ever_found_however_often_one_looks():
    for share in (0.5, 0.05):
        generator = np.random.default_rng(2)
        found = sum(
            pairs_to_decide(outcomes(generator, share), outcomes(generator, share), ALPHA) is not None
            for _ in range(RUNS)
        )
        assert found / RUNS <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / RUNS)


def test_twins_that_differ_in_one_direction_decide_at_the_sixth_that_differs():
    first = np.zeros(100)
    first[::10] = 1
    assert pairs_to_decide(first, np.zeros(100), 0.05) == 51


def test_power_grows_with_the_difference_and_with_the_pairs():
    generator = np.random.default_rng(3)
    found = {}
    for difference in (0.1, 0.2, 0.4):
        after = [
            pairs_to_decide(outcomes(generator, 0.5 + difference / 2), outcomes(generator, 0.5 - difference / 2), 0.05)
            for _ in range(100)
        ]
        for looks in (50, LOOKS):
            found[difference, looks] = sum(number is not None and number <= looks for number in after)
    assert found[0.1, LOOKS] < found[0.2, LOOKS] < found[0.4, LOOKS]
    assert all(found[difference, 50] < found[difference, LOOKS] for difference in (0.1, 0.2))
    assert found[0.4, LOOKS] == 100
    assert found[0.2, LOOKS] >= 75


def test_the_intervals_hold_the_mean_at_all_times_at_once():
    generator = np.random.default_rng(4)
    missed = 0
    for _ in range(60):
        observations = generator.choice([0.0, 0.5, 1.0], 40, p=[0.2, 0.5, 0.3])
        ends = confidence_sequence(observations, ALPHA)
        missed += bool(((ends[:, 0] > 0.55) | (ends[:, 1] < 0.55)).any())
    assert missed / 60 <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / 60)


def test_an_interval_holds_exactly_the_means_that_were_never_rejected_inside_the_range():
    observations = np.random.default_rng(5).choice([0.0, 0.5, 1.0], 60, p=[0.1, 0.4, 0.5])
    low, high = confidence_sequence(observations, ALPHA)[-1]
    for mean in np.linspace(0.01, 0.99, 99):
        kept = bool((log_wealth(observations, mean) < -math.log(ALPHA)).all())
        assert kept == (low < mean < high), mean
    assert confidence_sequence(np.zeros(30), ALPHA)[-1, 0] == 0.0
    assert confidence_sequence(np.ones(30), ALPHA)[-1, 1] == 1.0
    assert 0 < confidence_sequence(np.zeros(30), ALPHA)[-1, 1] < 0.3


def test_a_difference_is_decided_when_its_interval_leaves_zero_out():
    generator = np.random.default_rng(6)
    first, second = outcomes(generator, 0.7), outcomes(generator, 0.4)
    after = bet_on_difference(first, second, 0.05).decided_after
    before = bet_on_difference(first[: after - 1], second[: after - 1], 0.05)
    at = bet_on_difference(first[:after], second[:after], 0.05)
    assert before.decided_after is None
    assert before.low <= 0 < before.p_value
    assert before.p_value > 0.05
    assert at.decided_after == after
    assert at.low > 0
    assert at.p_value <= 0.05
    assert at.difference == pytest.approx(first[:after].mean() - second[:after].mean())


def test_longer_sides_wait_exchanged_ones_turn_around_and_what_is_no_bet_is_refused():
    generator = np.random.default_rng(7)
    first, second = outcomes(generator, 0.7, 80), outcomes(generator, 0.5, 80)
    one, other = bet_on_difference(first, second, 0.05), bet_on_difference(second, first, 0.05)
    assert (one.low, one.high) == (pytest.approx(-other.high), pytest.approx(-other.low))
    assert (one.p_value, one.decided_after) == (pytest.approx(other.p_value), other.decided_after)
    first, second = [1, 1, 0, 1, 1, 1], [0, 0, 0]
    assert bet_on_difference(first, second, 0.05) == bet_on_difference(first[:3], second, 0.05)
    assert bet_on_difference(first, [], 0.05).pairs == 0
    assert pairs_to_decide(first, [], 0.05) is None
    with pytest.raises(InvalidInputError, match="outside 0 to 1"):
        log_wealth([0.5, 1.5], 0.5)
    with pytest.raises(InvalidInputError, match="mean that is tested is 1"):
        log_wealth([0.5], 1)
    with pytest.raises(InvalidInputError, match="neither 0 nor 1"):
        bet_on_difference([0.5], [1], 0.05)
    with pytest.raises(InvalidInputError, match="alpha is 0"):
        bet_on_difference([1], [1], 0)


def test_in_a_random_order_the_mean_of_all_values_is_hardly_ever_left_and_is_a_point_at_the_last_one():
    generator, left = np.random.default_rng(5), 0
    values = np.where(np.arange(60) % 7 == 0, np.nan, (np.arange(60) % 3 == 0).astype(float))
    mean = np.nanmean(values)
    for _ in range(RUNS):
        drawn = generator.permutation(values)
        ends = np.array([interval_of_rest(drawn[:read], 60, ALPHA) for read in (59, 60)])
        left += not ends[0, 0] - 1e-9 <= mean <= ends[0, 1] + 1e-9
        assert ends[1] == pytest.approx(mean)
    assert left / RUNS <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / RUNS)


def test_what_is_left_to_read_bounds_the_mean_whatever_it_is():
    values = np.array([1.0] * 30 + [0.0] * 10)
    low, high = interval_of_rest(values[:38], 40, 1e-9)
    assert (low, high) == pytest.approx((30 / 40, 32 / 40))
    assert interval_of_rest([np.nan, np.nan], 2, ALPHA) == (0.0, 1.0)
    assert interval_of_rest([], 10, ALPHA) == (0.0, 1.0)
    low, high = interval_of_rest(values[10:30], 40, ALPHA)
    assert low > 0.6
    assert high == 1


def test_the_quotient_of_two_means_is_hardly_ever_left_and_is_found_the_sooner_the_more_they_go_together():
    generator, left = np.random.default_rng(6), 0
    for _ in range(RUNS // 2):
        both = generator.random(LOOKS // 3)
        low, high = interval_of_quotient(both < 0.4, both < 0.8, ALPHA)
        left += not low <= 0.5 <= high
    assert left / (RUNS // 2) <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / (RUNS // 2))
    first = generator.random(LOOKS) / 2
    together, apart = (
        interval_of_quotient(first, other, ALPHA) for other in (2 * first, 2 * generator.permutation(first))
    )
    assert together[1] - together[0] < apart[1] - apart[0]
    assert interval_of_quotient([], [], ALPHA) == (0.0, math.inf)
