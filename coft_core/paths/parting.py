"""Where two worlds part: the total variation between how their sampled paths go on, and what chance alone would give.

The k-th paths of two worlds are twins: they are drawn with the same noise, so that they go on alike where the worlds
do not differ. All that is computed keeps twins together, which is right for independent paths as well.

The total variation is that of the *sampled* distributions: half the sum of ``|a_k / n_a - b_k / n_b|`` over the ways
``k`` in which paths go on. Two finite samples of one distribution are never quite alike, so this number is positive
where nothing differs, and grows with the number of ways. Three things are therefore said with it:

- the interval: the basic bootstrap interval, twins being resampled together; it takes off the upward bias that
  resampling shows (Davison and Hinkley, "Bootstrap Methods and their Application", 1997, section 2.4), and is cut to
  [0, 1];
- what exchanging gives: the mean total variation where twins change worlds at random, and so do those paths whose
  twins begin otherwise, their numbers kept;
- the p-value of the permutation test by that statistic. Where the continuations behind a beginning are draws of one
  distribution, such exchanges do not change the law of what is seen: twins that both begin so are exchangeable, and
  the others' next tokens depend on noise that had no part in how they began. So the test is exact (Phipson and Smyth,
  Statistical Applications in Genetics and Molecular Biology 9 (2010) 39).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import numpy.typing as npt

from coft_core.controls.statistics import holm
from coft_core.errors import InvalidInputError
from coft_core.paths.tree import PathTree, TokenPath

RESAMPLES = 1999
LEVEL = 0.95
LEAST_VISITS = 10
"""Beginnings that fewer paths of either world have are not tested: nothing could be found there."""

MOST_TESTED = 200
"""So many beginnings are tested at most, those that most paths of both worlds have."""

RESAMPLES_EACH = 40
"""So many times as many shuffles as tests at least, so that one difference can be found among all of them."""

DEPTH_RESAMPLES = 499
"""Fewer for whole beginnings, of which there are many different ones and whose p-values nobody reads."""

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Difference:
    """The total variation between two samples."""

    distance: float
    low: float
    high: float
    by_chance: float
    p_value: float


@dataclass(frozen=True, slots=True)
class Parting:
    """How two worlds go on behind a common beginning."""

    node: int
    visits: tuple[int, int]
    difference: Difference
    adjusted: float


def compare_twins(
    first: Sequence[Hashable],
    second: Sequence[Hashable],
    seed: int = 0,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Difference:
    """How far apart two worlds go on, by how the k-th path of each does; None where it does not begin so."""
    ways = _numbered(first, second)  # (N, 2)
    generator = np.random.default_rng(seed)
    seen = float(_distances(*_tallied(ways, np.ones(len(ways)), int(ways.max()) + 1)))
    drawn = _drawn_anew(ways, generator, resamples)  # (R,)
    least, most = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    exchanged = _exchanged(ways, generator, resamples)  # (R,)
    # An exchange that is equal but for rounding is as extreme.
    extreme = int((exchanged >= seen - 1e-12).sum())
    return Difference(
        distance=seen,
        low=float(np.clip(2 * seen - most, 0.0, 1.0)),
        high=float(np.clip(2 * seen - least, 0.0, 1.0)),
        by_chance=float(exchanged.mean()),
        p_value=(extreme + 1) / (resamples + 1),
    )


def partings(
    tree: PathTree, first: int, second: int, seed: int = 0, least_visits: int = LEAST_VISITS
) -> tuple[Parting, ...]:
    """How two worlds go on behind the beginnings that enough paths of both have, in the tree's order.

    A beginning behind which all paths go on alike is no test. Which beginnings are tested depends on how many paths of
    each world have them, and on the ways on of both worlds taken together, which exchanges leave as they are.
    """
    visits = {
        number: min(node.visits[first], node.visits[second])
        for number, node in enumerate(tree.nodes)
        if _goes_several_ways(tree, number, first, second)
    }
    often = [number for number, both in visits.items() if both >= least_visits]
    tested = sorted(sorted(often, key=lambda number: -visits[number])[:MOST_TESTED])
    resamples = max(RESAMPLES, RESAMPLES_EACH * len(tested) - 1)
    found = [
        compare_twins(tree.ways(number, first), tree.ways(number, second), _seed(seed, number), resamples)
        for number in tested
    ]
    adjusted = holm([difference.p_value for difference in found])
    return tuple(
        Parting(number, (tree.nodes[number].visits[first], tree.nodes[number].visits[second]), difference, p_value)
        for number, difference, p_value in zip(tested, found, adjusted, strict=True)
    )


def beginnings_by_depth(tree: PathTree, first: int, second: int, seed: int = 0) -> tuple[Difference, ...]:
    """How far apart two worlds are in their first 1, 2, ... tokens, a path that ended before being one of its own.

    The true total variation never falls with the depth. Independent paths come ever nearer to 1 too, because long
    beginnings are hardly ever drawn twice: compare both.
    """
    if not (tree.totals[first] and tree.totals[second]):
        return ()
    differences = []
    for depth in range(1, 1 + max(node.depth for node in tree.nodes)):
        a, b = ([path[:depth] for path in tree.worlds[world]] for world in (first, second))
        differences.append(compare_twins(a, b, _seed(seed, -depth), DEPTH_RESAMPLES))
    return tuple(differences)


def parts_at(first: TokenPath, second: TokenPath) -> int | None:
    """The first token, counted from 1, at which twins differ; None where they never do."""
    pairs = enumerate(zip_longest(first, second), start=1)
    return next((number for number, (one, other) in pairs if one != other), None)


def _goes_several_ways(tree: PathTree, node: int, first: int, second: int) -> bool:
    pairs = zip(tree.continuations(node, first), tree.continuations(node, second), strict=True)
    return sum(a + b > 0 for a, b in pairs) > 1


def _numbered(first: Sequence[Hashable], second: Sequence[Hashable]) -> Counts:
    """The ways of both worlds' paths as numbers ``(N, 2)``, -1 for None and for a missing path."""
    numbers: dict[Hashable, int] = {None: -1}
    pairs = zip_longest(first, second)
    ways = np.array([[numbers.setdefault(way, len(numbers) - 1) for way in pair] for pair in pairs]).reshape(-1, 2)
    if (ways < 0).all(axis=0).any():
        raise InvalidInputError("One of the samples is empty; compare worlds that both have paths.")
    return ways


def _tallied(kinds: Counts, counts: npt.ArrayLike, size: int) -> tuple[Floats, Floats]:
    """How often each way was gone in either world ``(..., K)``, by kinds of twins ``(U, 2)`` and their counts."""
    a, b = (np.asarray(counts) @ (kinds[:, side, None] == np.arange(size)).astype(float) for side in (0, 1))
    return a, b


def _alike(kinds: Counts) -> tuple[npt.NDArray[np.bool_], ...]:
    """Which twins both begin so, and of which only the path of the first or of the second world does; ``(U,)`` each."""
    first, second = (kinds >= 0).T
    return first & second, first & ~second, second & ~first


def _distances(first: Floats, second: Floats) -> Floats:
    """Total variation over the last axis, ``(..., K)`` to ``(...)``."""
    a, b = (side / side.sum(axis=-1, keepdims=True) for side in (first, second))
    distances: Floats = np.abs(a - b).sum(axis=-1) / 2
    return distances


def _drawn_anew(ways: Counts, generator: np.random.Generator, resamples: int) -> Floats:
    """Distances ``(R,)`` where twins that both begin so are resampled among themselves, and so are single paths.

    A way that only one world goes stays the other's 0, so that all of them count as one.
    """
    merged, more = ways.copy(), int(ways.max()) + 1
    for side in (0, 1):
        merged[~np.isin(ways[:, side], [-1, *ways[:, 1 - side]]), side] = more + side
    kinds, counts = np.unique(merged, axis=0, return_counts=True)
    drawn = np.zeros((resamples, len(kinds)))
    for alike in filter(np.any, _alike(kinds)):
        drawn[:, alike] = generator.multinomial(counts[alike].sum(), counts[alike] / counts[alike].sum(), resamples)
    return _distances(*_tallied(kinds, drawn, more + 2))


def _exchanged(ways: Counts, generator: np.random.Generator, resamples: int) -> Floats:
    """Distances ``(R,)`` where twins change worlds at random, and where single paths do, their numbers kept.

    Ways that were gone once fall to one world or the other, so that only how many fall to each matters.
    """
    once = int(ways.max()) + 1
    rare = np.flatnonzero(np.bincount(ways[ways >= 0]) == 1)
    kinds, counts = np.unique(np.where(np.isin(ways, rare), once, ways), axis=0, return_counts=True)
    both, first, second = _alike(kinds)
    turned = generator.binomial(counts[both], 0.5, (resamples, int(both.sum())))  # (R, U)
    a, b = _tallied(kinds[both], counts[both] - turned, once + 1)  # (R, K) each
    other_b, other_a = _tallied(kinds[both], turned, once + 1)
    alone = first | second
    single = np.add(*_tallied(kinds[alone], counts[alone], once + 1)).astype(int)  # (K,)
    moved = generator.multivariate_hypergeometric(single, int(counts[first].sum()), resamples)  # (R, K)
    a, b = a + other_a + moved, b + other_b + single - moved
    return _distances(np.pad(a, ((0, 0), (0, 1))), np.insert(b, once, 0.0, axis=1))


def _seed(seed: int, number: int) -> int:
    return int(np.random.SeedSequence([seed, abs(number), int(number < 0)]).generate_state(1)[0])
