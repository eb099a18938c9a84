"""p-values and e-values of controls against slow computations by their definitions."""

import math
from itertools import combinations, product

import numpy as np
import pytest
from scipy import integrate

from coft_core.controls import statistics
from coft_core.controls.statistics import between_groups, e_value, rank_of, rank_sum_p, step_down
from coft_core.errors import InvalidInputError


def tables():
    generator = np.random.default_rng(3)
    for rows, steps in [(2, 1), (5, 4), (40, 24), (20, 7)]:
        yield generator.random((rows, steps))
        yield generator.integers(0, 3, (rows, steps)).astype(float)  # with ties


@pytest.mark.parametrize("effects", tables(), ids=lambda table: str(table.shape))
def test_step_down_follows_westfall_and_youngs_algorithm(effects):
    order = sorted(range(effects.shape[1]), key=lambda step: -effects[0, step])
    expected, largest = {}, 0.0
    for place, step in enumerate(order):
        rest = order[place:]
        beaten = sum(max(row[t] for t in rest) >= effects[0, step] for row in effects)
        largest = max(largest, beaten / len(effects))
        expected[step] = largest
    assert step_down(effects) == pytest.approx([expected[step] for step in range(effects.shape[1])])
    assert rank_of(effects) == round(min(step_down(effects)) * len(effects))


def test_rank_sum_p_counts_all_ranks_that_there_can_be():
    rows = (3, 4, 2, 5)
    sums = [sum(ranks) for ranks in product(*(range(1, count + 1) for count in rows))]
    for ranks in product(*(range(1, count + 1) for count in rows)):
        assert rank_sum_p(ranks, rows) == pytest.approx(np.mean([total <= sum(ranks) for total in sums]))


def test_twenty_prompts_that_rank_first_have_the_chance_of_just_that():
    assert rank_sum_p([1] * 20, [40] * 20) == pytest.approx(40.0**-20)
    assert rank_sum_p([40] * 20, [40] * 20) == pytest.approx(1.0)


def test_the_e_value_has_a_mean_of_one_over_ranks_and_falls_with_them(monkeypatch):
    rows = 7
    tables = [[[float(rows - rank)], *([float(row)] for row in range(rows) if row != rows - rank)]
              for rank in range(1, rows + 1)]  # fmt: skip

    def value(rank, uniform):
        monkeypatch.setattr(statistics, "_uniform", lambda key: uniform)
        return e_value(tables[rank - 1], "")

    assert [rank_of(table) for table in tables] == list(range(1, rows + 1))
    # With u = exp(-x) the pole at 0 goes to infinity, where the integrand falls as 1 / x^2.
    means = [
        integrate.quad(lambda x, rank=rank: value(rank, math.exp(-x)) * math.exp(-x), 0, 200, limit=200)[0]
        for rank in range(1, rows + 1)
    ]
    # Only the first rank has a part beyond 200 that counts: the integral of 1 / x^2 from there.
    beyond = 1 / (200 + math.log(rows))
    assert np.mean(means) + beyond == pytest.approx(1, abs=1e-4)
    middle = [value(rank, 0.5) for rank in range(1, rows + 1)]
    assert middle == sorted(middle, reverse=True)
    assert value(rows, 1 - 1e-9) == pytest.approx(0.5, abs=1e-3)


def test_the_e_value_is_the_mixture_of_the_power_calibrators():
    row = np.random.default_rng(8).random((40, 1))
    for key in "abc":
        above = (row > row[0]).sum()
        u = (above + statistics._uniform(key)) / 40
        mixture, _ = integrate.quad(lambda k, u=u: k * u ** (k - 1), 0, 1)
        assert e_value(row, key) == pytest.approx(mixture, rel=1e-6)


def brute(first, second):
    """The permutation p-value of two groups by listing, with exact halves of all ways to deal."""
    ways = [
        [set(chosen) for chosen in combinations(range(len(a) + len(b)), len(a))]
        for a, b in zip(first, second, strict=True)
    ]

    def gap(deal):
        gaps = []
        for chosen, a, b in zip(deal, first, second, strict=True):
            values = [*a, *b]
            inside = [value for at, value in enumerate(values) if at in chosen]
            outside = [value for at, value in enumerate(values) if at not in chosen]
            gaps.append(np.mean(inside) - np.mean(outside))
        return np.mean(gaps)

    seen = gap([set(range(len(a))) for a in first])
    return seen, np.mean([abs(gap(deal)) >= abs(seen) - 1e-9 for deal in product(*ways)])


@pytest.mark.parametrize("sizes", [((3, 3),), ((2, 4), (3, 2)), ((2, 2), (2, 2), (2, 2))])
def test_the_difference_between_groups_is_tested_by_all_ways_to_deal(sizes):
    generator = np.random.default_rng(len(sizes))
    first = [generator.random(a).round(2) for a, _ in sizes]
    second = [generator.random(b).round(2) for _, b in sizes]
    found = between_groups(first, second)
    seen, p_value = brute(first, second)
    assert found.exact
    assert found.ways == math.prod(math.comb(a + b, a) for a, b in sizes)
    assert (found.difference, found.p_value) == pytest.approx((seen, p_value))
    assert found.within == pytest.approx(max(max(part) - min(part) for part in (*first, *second)))
    # The interval holds just those shifts that are not rejected.
    for shift, kept in ((found.low + 1e-6, True), (found.high - 1e-6, True), (found.low - 1e-3, False),
                        (found.high + 1e-3, False)):  # fmt: skip
        _, p_shifted = brute([part - shift for part in first], second)
        assert bool(p_shifted > 0.05) is kept or abs(shift) >= 1


def test_drawn_permutations_agree_with_all_of_them(monkeypatch):
    generator = np.random.default_rng(5)
    first, second = [generator.random(5) * 0.5 + 0.3, generator.random(4)], [generator.random(4), generator.random(5)]
    exact = between_groups(first, second)
    monkeypatch.setattr(statistics, "LISTED", 1)
    drawn, again = (between_groups(first, second, seed=2) for _ in range(2))
    assert exact.exact
    assert not drawn.exact
    assert drawn == again
    assert (drawn.ways, drawn.difference) == (statistics.PERMUTATIONS, exact.difference)
    # Five standard errors of a share of 10,000 draws.
    assert drawn.p_value == pytest.approx(exact.p_value, abs=5 * 0.5 / 100)
    assert (drawn.low, drawn.high) == pytest.approx((exact.low, exact.high), abs=0.03)


@pytest.mark.parametrize("call", [
    lambda: step_down([[float("nan")]]), lambda: step_down([]), lambda: rank_sum_p([0], [3]),
    lambda: rank_sum_p([4], [3]), lambda: rank_sum_p([1, 1], [3]), lambda: between_groups([[0.1]], [[]]),
    lambda: between_groups([], []),
])  # fmt: skip
def test_what_is_no_table_of_effects_is_refused(call):
    with pytest.raises(InvalidInputError):
        call()
