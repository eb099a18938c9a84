"""Tests of groups within strata keep their level, evidence survives stopping, and intervals hold, by simulation.

Shares are compared with their level plus four standard errors, as in ``test_controls.py``; the seeds are fixed.
"""

import numpy as np
import pytest
from scipy.stats import binomtest, fisher_exact

from coft_core.controls.strata import Selections, evidence, exact_p, ratio_interval, several_groups
from tests.theory.test_controls import never_too_small


def strata(generator, count, first=1, second=1, effect=0.0):
    """Strata of which each has a rate of its own, that of the first group larger by an effect."""
    rates = generator.beta(0.7, 0.7, count)
    a = generator.binomial(first, np.minimum(rates + effect, 1))
    return np.column_stack([a, np.full(count, first), generator.binomial(second, rates), np.full(count, second)])


def within(count, level, repetitions):
    """Whether at least the level is reached, but for chance."""
    return count / repetitions >= level - 4 * np.sqrt(level * (1 - level) / repetitions)


def test_with_one_row_of_each_group_the_exact_test_is_mcnemars_and_in_one_stratum_fishers_for_equal_groups():
    table = strata(np.random.default_rng(0), 60)
    gained, lost = ((table[:, 0] - table[:, 2]) == 1).sum(), ((table[:, 0] - table[:, 2]) == -1).sum()
    assert exact_p(table) == pytest.approx(binomtest(int(gained), int(gained + lost)).pvalue)
    assert exact_p([(12, 50, 25, 50)]) == pytest.approx(fisher_exact([[12, 38], [25, 25]]).pvalue)
    assert exact_p([]) == exact_p([(2, 2, 3, 3)]) == 1


@pytest.mark.parametrize(("count", "first", "second"), [(12, 1, 1), (40, 1, 1), (10, 3, 2), (1, 40, 25)])
def test_groups_that_do_not_differ_are_seldom_told_apart_whatever_the_strata(count, first, second):
    generator = np.random.default_rng(21)
    assert never_too_small([exact_p(strata(generator, count, first, second)) for _ in range(1200)])


def test_a_difference_within_strata_is_found_that_is_lost_without_them():
    generator = np.random.default_rng(22)
    tables = [strata(generator, 150, effect=0.15) for _ in range(100)]
    found = np.mean([exact_p(table) <= 0.05 for table in tables])
    lost = np.mean([exact_p(table.sum(axis=0)) <= 0.05 for table in tables])
    assert found > 0.75
    assert found > lost + 0.1


def test_evidence_seldom_ever_reaches_its_bound_without_a_difference_and_grows_with_one():
    generator = np.random.default_rng(23)
    most = np.array([evidence(strata(generator, 200, 2, 1)).max(initial=1) for _ in range(1000)])
    for alpha in (0.05, 0.1, 0.2):
        assert np.mean(most >= 1 / alpha) <= alpha + 4 * np.sqrt(alpha * (1 - alpha) / len(most))
    assert np.median([evidence(strata(generator, 400, effect=0.2))[-1] for _ in range(50)]) > 20


@pytest.mark.parametrize(("count", "sizes"), [(25, (1, 1, 1)), (1, (30, 20, 50)), (8, (2, 1, 3)), (900, (1, 1, 1, 1))])
def test_many_groups_that_do_not_differ_are_seldom_told_apart(count, sizes):
    generator = np.random.default_rng(24)
    p_values = []
    for _ in range(200):
        rates = generator.beta(0.7, 0.7, count)
        hits = generator.binomial(sizes, rates[:, None])
        p_values.append(several_groups(hits, np.broadcast_to(sizes, hits.shape)).p_value)
    assert never_too_small(p_values)


def test_the_test_of_many_groups_is_cochrans_q_where_each_has_one_row_in_a_stratum():
    hits = np.random.default_rng(25).integers(0, 2, (40, 4))
    groups, columns, rows = hits.shape[1], hits.sum(axis=0), hits.sum(axis=1)
    q = (groups - 1) * (groups * (columns**2).sum() - hits.sum() ** 2) / (groups * hits.sum() - (rows**2).sum())
    found = several_groups(hits, np.ones_like(hits))
    assert (found.statistic, found.freedom) == (pytest.approx(q), groups - 1)


@pytest.mark.parametrize(("units", "rows", "alike", "rate"), [(40, 3, 0.5, 0.3), (60, 4, 0.2, 0.1), (12, 5, 0.8, 0.5),
                                                              (60, 1, 0.3, 0.3)])  # fmt: skip
def test_intervals_of_rates_and_ratios_hold_the_truth_where_rows_hang_together(units, rows, alike, rate):
    """Rows of a unit are alike; the second group is in the same units, and in units of its own."""
    generator, repetitions = np.random.default_rng(26), 600
    held, paired, apart = 0, 0, 0
    nothing, totals = np.zeros(units, dtype=int), np.full(units, rows)
    shape = np.array([rate, 1 - rate]) * (1 / alike - 1)
    for _ in range(repetitions):
        own, other = generator.beta(*shape, (2, units))
        hits = generator.binomial(rows, own)
        first, twin = Selections(hits, totals), Selections(generator.binomial(rows, own), totals)
        low, high = first.interval()
        held += low <= rate <= high
        ends = ratio_interval(first, twin)
        paired += ends is None or ends[0] <= 1 <= ends[1]
        one = Selections(np.append(hits, nothing), np.append(totals, nothing))
        two = Selections(np.append(nothing, generator.binomial(rows, other)), np.append(nothing, totals))
        ends = ratio_interval(one, two)
        apart += ends is None or ends[0] <= 1 <= ends[1]
    assert all(within(count, 0.95, repetitions) for count in (held, paired, apart))


def test_with_one_row_a_unit_the_interval_is_the_exact_one_and_alike_rows_make_it_wider():
    hits, ones = np.array([1, 0, 0, 1, 0, 0, 0, 1, 0, 0]), np.ones(10, dtype=int)
    low, high = Selections(hits, ones).interval()
    assert (low, high) == pytest.approx((0.0667, 0.6525), abs=1e-4)
    wider = Selections(3 * hits, 3 * ones).interval()
    assert wider[0] <= low + 1e-9
    assert wider[1] >= high - 1e-9
