"""Where worlds part: total variation against brute force, and what chance alone gives."""

from itertools import combinations

import numpy as np
import pytest

from coft_core.errors import InvalidInputError
from coft_core.paths.parting import beginnings_by_depth, compare_counts, holm, partings, total_variation
from coft_core.paths.tree import merge_paths


def test_the_total_variation_is_the_largest_difference_that_any_event_has():
    generator = np.random.default_rng(0)
    for _ in range(20):
        first, second = generator.integers(1, 9, (2, 5))
        p, q = first / first.sum(), second / second.sum()
        events = [list(event) for size in range(6) for event in combinations(range(5), size)]
        assert total_variation(first, second) == pytest.approx(max(p[event].sum() - q[event].sum() for event in events))


def test_the_chance_mean_and_the_p_value_are_those_of_all_shuffles():
    """Two and three paths over three continuations: few enough to be shuffled in every way."""
    pooled = [0, 0, 1, 1, 2]
    total = [2, 2, 1]
    seen = total_variation([2, 0, 0], [0, 2, 1])
    every = []
    for members in combinations(range(5), 2):
        counts = np.bincount([pooled[at] for at in members], minlength=3)
        every.append(total_variation(counts, total - counts))
    found = compare_counts([2, 0, 0], [0, 2, 1], seed=1, resamples=20_000)
    assert found.distance == seen == pytest.approx(1.0)
    assert found.by_chance == pytest.approx(np.mean(every), abs=0.01)
    assert found.p_value == pytest.approx(np.mean([value >= seen - 1e-12 for value in every]), abs=0.01)


def test_the_interval_is_that_of_drawing_every_value_anew():
    """Counting values that one sample alone has as one changes nothing."""
    generator = np.random.default_rng(1)
    first, second = np.array([20, 9, 4, 3, 0, 0]), np.array([11, 15, 0, 0, 5, 2])
    p, q = first / first.sum(), second / second.sum()
    drawn = [
        total_variation(generator.multinomial(first.sum(), p), generator.multinomial(second.sum(), q))
        for _ in range(20_000)
    ]
    least, most = np.quantile(drawn, [0.025, 0.975])
    found = compare_counts(first, second, seed=2, resamples=20_000)
    seen = np.abs(p - q).sum() / 2
    assert (found.low, found.high) == (
        pytest.approx(2 * seen - most, abs=0.01),
        pytest.approx(2 * seen - least, abs=0.01),
    )


def test_worlds_that_do_not_differ_are_rarely_said_to():
    generator = np.random.default_rng(2)
    chances = np.array([0.4, 0.2, 0.1, *[0.05] * 6])
    found = [
        compare_counts(generator.multinomial(80, chances), generator.multinomial(60, chances), seed, 199)
        for seed in range(200)
    ]
    assert np.mean([item.p_value <= 0.1 for item in found]) <= 0.1 + 3 * np.sqrt(0.09 / 200)
    # The plain number alone would say that they differ.
    assert np.mean([item.distance for item in found]) > 0.08
    assert np.mean([item.distance - item.by_chance for item in found]) == pytest.approx(0, abs=0.02)


def test_the_interval_mostly_holds_the_true_total_variation():
    generator = np.random.default_rng(3)
    p, q = np.array([0.6, 0.2, 0.1, 0.1]), np.array([0.3, 0.3, 0.3, 0.1])
    true = np.abs(p - q).sum() / 2
    held = [
        item.low <= true <= item.high
        for seed in range(150)
        for item in [compare_counts(generator.multinomial(150, p), generator.multinomial(150, q), seed, 399)]
    ]
    assert np.mean(held) >= 0.88


def test_only_the_beginning_where_worlds_go_different_ways_is_marked():
    generator = np.random.default_rng(4)

    def paths(second_share):
        return [
            (int(generator.random() < 0.5), int(generator.random() < second_share), int(generator.random() < 0.5))
            for _ in range(150)
        ]

    tree = merge_paths([paths(0.2), paths(0.8)])
    found = {tree.beginning(item.node): item for item in partings(tree, 0, 1, seed=5)}
    marked = {beginning for beginning, item in found.items() if item.adjusted <= 0.05}
    assert marked == {(0,), (1,)}
    assert found[()].visits == (150, 150)
    counts = [tree.continuations(0, world) for world in (0, 1)]
    assert found[()].difference.distance == total_variation(*counts)


def test_beginnings_of_few_paths_are_not_tested_and_one_among_many_is_still_found():
    few, often, alike = [(1, 2), (1, 4)] * 4, [(1, 2), (1, 4)] * 25, [(3, 5)] * 20
    other = [(6, 5), (6, 7)] * 9
    tree = merge_paths([few + alike + other, often + alike + other])
    assert [tree.beginning(item.node) for item in partings(tree, 0, 1)] == [(), (6,)]
    common = [(first, second) for first in range(150) for second in (0, 1) for _ in range(5)]
    tree = merge_paths([[*common, *[(150, 0)] * 40], [*common, *[(150, 1)] * 40]])
    marked = [tree.beginning(item.node) for item in partings(tree, 0, 1) if item.adjusted <= 0.05]
    assert marked == [(150,)]


def test_the_distance_of_beginnings_grows_with_depth_and_counts_paths_that_ended():
    worlds = [[(1,), (1,), (2, 1), (2, 2)], [(1,), (2, 1), (2, 2), (2, 2)]]
    depths = beginnings_by_depth(merge_paths(worlds), 0, 1)
    slow = []
    for depth in (1, 2):
        cut = [[path[:depth] for path in paths] for paths in worlds]
        values = sorted({path for paths in cut for path in paths})
        slow.append(total_variation(*([paths.count(value) for value in values] for paths in cut)))
    assert [item.distance for item in depths] == pytest.approx(slow) == [0.25, 0.25]
    assert beginnings_by_depth(merge_paths([[(1,)], []]), 0, 1) == ()


def test_the_same_seed_gives_the_same_numbers_and_holm_multiplies_the_smallest():
    assert compare_counts([5, 2], [1, 6], seed=3) == compare_counts([5, 2], [1, 6], seed=3)
    assert compare_counts([5, 2, 0], [1, 6, 0], seed=3) == compare_counts([5, 2], [1, 6], seed=3)
    assert holm([0.03, 0.01, 0.5]) == pytest.approx([0.06, 0.03, 0.5])
    assert holm([]) == []
    with pytest.raises(InvalidInputError, match="is empty"):
        total_variation([0, 0], [1, 2])
    with pytest.raises(InvalidInputError, match="count the same ones"):
        total_variation([1], [1, 2])
