"""Where worlds part: total variation against brute force, and what chance alone gives."""

from itertools import combinations, product

import numpy as np
import pytest

from coft_core.controls.statistics import holm
from coft_core.errors import InvalidInputError
from coft_core.paths.parting import beginnings_by_depth, compare_twins, partings, parts_at
from coft_core.paths.tree import merge_paths


def distance(first, second):
    values = {*first, *second}
    return sum(abs(first.count(v) / len(first) - second.count(v) / len(second)) for v in values) / 2


def single(first, second, **options):
    """Compared as samples of which no path has a twin that begins so."""
    return compare_twins([*first, *[None] * len(second)], [*[None] * len(first), *second], **options)


def sample(counts):
    return [value for value, count in enumerate(counts) for _ in range(count)]


def test_the_total_variation_is_the_largest_difference_that_any_event_has():
    generator = np.random.default_rng(0)
    for _ in range(20):
        first, second = generator.integers(1, 9, (2, 5))
        p, q = first / first.sum(), second / second.sum()
        events = [list(event) for size in range(6) for event in combinations(range(5), size)]
        found = compare_twins(sample(first), sample(second), resamples=1).distance
        assert found == pytest.approx(max(p[event].sum() - q[event].sum() for event in events))


def test_the_chance_mean_and_the_p_value_are_those_of_all_exchanges():
    """Three twins, of which one goes on alike, with two and three single paths: few enough for every way."""
    twins, first, second = [(0, 1), (2, 0), (1, 1)], [0, 0], [1, 1, 2]
    seen = distance([a for a, _ in twins] + first, [b for _, b in twins] + second)
    every = []
    for turned in product((1, -1), repeat=3):
        pairs = [pair[::turn] for pair, turn in zip(twins, turned, strict=True)]
        for members in combinations(range(5), 2):
            pooled = first + second
            one = [a for a, _ in pairs] + [pooled[at] for at in members]
            other = [b for _, b in pairs] + [way for at, way in enumerate(pooled) if at not in members]
            every.append(distance(one, other))
    ways = [*twins, *((way, None) for way in first), *((None, way) for way in second)]
    found = compare_twins(*zip(*ways, strict=True), seed=1, resamples=20_000)
    assert found.distance == pytest.approx(seen)
    assert found.by_chance == pytest.approx(np.mean(every), abs=0.01)
    assert found.p_value == pytest.approx(np.mean([value >= seen - 1e-12 for value in every]), abs=0.01)


def test_the_interval_is_that_of_drawing_every_twin_anew():
    """Counting values that one sample alone has as one changes nothing."""
    generator = np.random.default_rng(1)
    pairs = np.array([(0, 0)] * 12 + [(0, 1)] * 9 + [(1, 1)] * 4 + [(2, 4)] * 3 + [(3, 5)] * 2 + [(1, 0)])
    drawn = [
        distance(*(side.tolist() for side in pairs[generator.integers(len(pairs), size=len(pairs))].T))
        for _ in range(20_000)
    ]
    least, most = np.quantile(drawn, [0.025, 0.975])
    found = compare_twins(*pairs.T.tolist(), seed=2, resamples=20_000)
    assert (found.low, found.high) == (
        pytest.approx(max(2 * found.distance - most, 0), abs=0.02),
        pytest.approx(2 * found.distance - least, abs=0.02),
    )


def test_worlds_that_do_not_differ_are_rarely_said_to():
    generator = np.random.default_rng(2)
    chances = [0.4, 0.2, 0.1, *[0.05] * 6]
    found = [
        single(*(generator.choice(9, size, p=chances).tolist() for size in (80, 60)), seed=seed, resamples=199)
        for seed in range(200)
    ]
    assert np.mean([item.p_value <= 0.1 for item in found]) <= 0.1 + 3 * np.sqrt(0.09 / 200)
    # The plain number alone would say that they differ.
    assert np.mean([item.distance for item in found]) > 0.08
    assert np.mean([item.distance - item.by_chance for item in found]) == pytest.approx(0, abs=0.02)


def test_twins_that_hang_together_are_said_to_differ_no_more_often_than_the_level_and_sooner_where_they_do():
    """Half of the twins are one draw; the others are two, of one law or with a tenth moved from one way to another."""
    generator, levels, power = np.random.default_rng(7), [], []
    for seed in range(200):
        own, other = generator.choice(4, (2, 80))
        twins = np.where(generator.random(80) < 0.5, own, other)
        levels.append(compare_twins(own.tolist(), twins.tolist(), seed, 199).p_value <= 0.1)
        moved = np.where((own == 0) & (generator.random(80) < 0.4), 1, own)
        power.append(compare_twins(own.tolist(), moved.tolist(), seed, 199).p_value <= 0.1)
    assert np.mean(levels) <= 0.1 + 3 * np.sqrt(0.09 / 200)
    assert np.mean(power) > 0.9


def test_the_interval_mostly_holds_the_true_total_variation():
    generator = np.random.default_rng(3)
    p, q = np.array([0.6, 0.2, 0.1, 0.1]), np.array([0.3, 0.3, 0.3, 0.1])
    true = np.abs(p - q).sum() / 2
    held = [
        item.low <= true <= item.high
        for seed in range(150)
        for item in [single(*(generator.choice(4, 150, p=r).tolist() for r in (p, q)), seed=seed, resamples=399)]
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
    assert found[()].difference.distance == pytest.approx(distance(tree.ways(0, 0), tree.ways(0, 1)))


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
        slow.append(distance(*cut))
    assert [item.distance for item in depths] == pytest.approx(slow) == [0.25, 0.25]
    assert beginnings_by_depth(merge_paths([[(1,)], []]), 0, 1) == ()


def test_the_same_seed_gives_the_same_numbers_and_holm_multiplies_the_smallest():
    ways = [0, 1, 1, None, 2], [1, 1, 0, 2, 2]
    assert compare_twins(*ways, seed=3) == compare_twins(*ways, seed=3)
    assert compare_twins(ways[0][:4], ways[1], seed=3) == compare_twins([*ways[0][:4], None], ways[1], seed=3)
    assert holm([0.03, 0.01, 0.5]) == pytest.approx([0.06, 0.03, 0.5])
    assert holm([]) == []
    with pytest.raises(InvalidInputError, match="is empty"):
        compare_twins([None], [1])


def test_twins_part_at_the_first_token_that_only_one_of_them_has():
    for first, second, at in (((1, 2), (1, 2), None), ((1, 2), (1, 3), 2), ((1,), (1, 2), 2), ((), (), None)):
        assert parts_at(first, second) == at
