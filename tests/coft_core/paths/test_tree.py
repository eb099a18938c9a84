"""The merged tree against slow counting of beginnings."""

import numpy as np
import pytest

from coft_core.paths.tree import merge_paths


def drawn_worlds(seed=0, worlds=(60, 40)):
    """Paths over three tokens, of one to five of them."""
    generator = np.random.default_rng(seed)
    return [[tuple(generator.integers(3, size=generator.integers(1, 6))) for _ in range(number)] for number in worlds]


def test_nodes_count_their_paths_in_any_order_parents_first_and_worlds_alike():
    worlds = drawn_worlds()
    tree = merge_paths(worlds)
    beginnings = {path[:length] for paths in worlds for path in paths for length in range(len(path) + 1)}
    assert {tree.beginning(number) for number in range(len(tree.nodes))} == beginnings
    assert len(tree.nodes) == len(beginnings)
    for number, node in enumerate(tree.nodes):
        beginning = tree.beginning(number)
        assert node.depth == len(beginning)
        for world, paths in enumerate(worlds):
            assert node.visits[world] == sum(path[: len(beginning)] == beginning for path in paths)
            assert node.ends[world] == paths.count(beginning)
            assert sum(tree.continuations(number, world)) == node.visits[world]
    tree = merge_paths(drawn_worlds(1))
    for number, node in enumerate(tree.nodes):
        assert node.parent < number or number == 0
        shares = [sum(tree.share(child, world) for world in range(len(tree.totals))) for child in node.children]
        assert shares == sorted(shares, reverse=True)
        assert all(tree.nodes[child].parent == number for child in node.children)
    tree = merge_paths([[(1,)] * 90 + [(2,)] * 10, [(2,)] * 10])
    assert tree.share(1, 0) + tree.share(1, 1) == pytest.approx(1.1)
    assert tree.nodes[1].token_id == 2
    assert tree.share(1, 0) == pytest.approx(0.1)
    worlds = drawn_worlds(2)
    assert merge_paths(worlds).nodes == merge_paths([paths[::-1] for paths in worlds]).nodes
    tree = merge_paths([[tuple(range(3000))], []])
    assert len(tree.nodes) == 3001
    assert tree.totals == (1, 0)
    assert tree.share(5, 1) == 0.0
    assert tree.beginning(3000) == tuple(range(3000))
