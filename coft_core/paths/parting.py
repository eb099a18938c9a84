"""Where two worlds part: the total variation between how their sampled paths go on, and what chance alone would give.

The total variation is that of the *sampled* distributions: half the sum of ``|a_k / n_a - b_k / n_b|`` over the ways
``k`` in which paths go on. Two finite samples of one distribution are never quite alike, so this number is positive
where nothing differs, and grows with the number of ways. Three things are therefore said with it:

- the interval: the basic bootstrap interval, each world's paths resampled among themselves; it takes off the upward
  bias that resampling shows (Davison and Hinkley, "Bootstrap Methods and their Application", 1997, section 2.4), and
  is cut to [0, 1];
- what shuffling gives: the mean total variation where paths change worlds at random, the numbers of paths kept;
- the p-value of the permutation test by that statistic, which is exact where the continuations behind a beginning are
  draws of one distribution (Phipson and Smyth, Statistical Applications in Genetics and Molecular Biology 9 (2010) 39).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coft_core.errors import InvalidInputError
from coft_core.paths.tree import PathTree

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


def total_variation(first: Sequence[int], second: Sequence[int]) -> float:
    """Total variation between two samples, each given by how often each value was seen."""
    a, b = _checked(first, second)
    return float(_distances(a, b))


def compare_counts(
    first: Sequence[int], second: Sequence[int], seed: int = 0, resamples: int = RESAMPLES, level: float = LEVEL
) -> Difference:
    """The total variation between two samples with its interval, and what chance alone would give."""
    a, b = _checked(first, second)
    generator = np.random.default_rng(seed)
    seen = float(_distances(a, b))
    drawn = _drawn_anew(a, b, generator, resamples)  # (R,)
    least, most = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    shuffled = _shuffled(a, b, generator, resamples)  # (R,)
    # A shuffle that is equal but for rounding is as extreme.
    extreme = int((shuffled >= seen - 1e-12).sum())
    return Difference(
        distance=seen,
        low=float(np.clip(2 * seen - most, 0.0, 1.0)),
        high=float(np.clip(2 * seen - least, 0.0, 1.0)),
        by_chance=float(shuffled.mean()),
        p_value=(extreme + 1) / (resamples + 1),
    )


def partings(
    tree: PathTree, first: int, second: int, seed: int = 0, least_visits: int = LEAST_VISITS
) -> tuple[Parting, ...]:
    """How two worlds go on behind the beginnings that enough paths of both have, in the tree's order.

    A beginning behind which all paths go on alike is no test. Which beginnings are tested depends on how many paths of
    each world have them, and on the ways on of both worlds taken together, which shuffling leaves as they are.
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
        compare_counts(
            tree.continuations(number, first), tree.continuations(number, second), _seed(seed, number), resamples
        )
        for number in tested
    ]
    adjusted = holm([difference.p_value for difference in found])
    return tuple(
        Parting(number, (tree.nodes[number].visits[first], tree.nodes[number].visits[second]), difference, p_value)
        for number, difference, p_value in zip(tested, found, adjusted, strict=True)
    )


def beginnings_by_depth(tree: PathTree, first: int, second: int, seed: int = 0) -> tuple[Difference, ...]:
    """How far apart two worlds are in their first 1, 2, ... tokens, a path that ended before being one of its own.

    The true total variation never falls with the depth. Shuffled paths come ever nearer to 1 too, because long
    beginnings are hardly ever drawn twice: compare both.
    """
    if not (tree.totals[first] and tree.totals[second]):
        return ()
    depths = max(node.depth for node in tree.nodes)
    differences = []
    for depth in range(1, depths + 1):
        pairs = [
            (counts[first], counts[second])
            for node in tree.nodes
            for counts in ((node.visits,) if node.depth == depth else (node.ends,) if node.depth < depth else ())
        ]
        a, b = zip(*pairs, strict=True)
        differences.append(compare_counts(a, b, _seed(seed, -depth), DEPTH_RESAMPLES))
    return tuple(differences)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted so that all of those at or below a level are right together (Holm, Scand. J. Stat. 6, 1979)."""
    order = np.argsort(p_values, kind="stable")
    adjusted = np.empty(len(p_values))
    factors = np.arange(len(p_values), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(np.asarray(p_values)[order] * factors), 1.0)
    return [float(value) for value in adjusted]


def _goes_several_ways(tree: PathTree, node: int, first: int, second: int) -> bool:
    pairs = zip(tree.continuations(node, first), tree.continuations(node, second), strict=True)
    return sum(a + b > 0 for a, b in pairs) > 1


def _checked(first: Sequence[int], second: Sequence[int]) -> tuple[Counts, Counts]:
    a, b = np.asarray(first, dtype=np.int64), np.asarray(second, dtype=np.int64)
    if a.shape != b.shape:
        raise InvalidInputError(f"The samples count {a.size} and {b.size} values; count the same ones in both.")
    if not (a.sum() and b.sum()):
        raise InvalidInputError("One of the samples is empty; compare worlds that both have paths.")
    # What neither has seen changes nothing.
    seen = (a + b) > 0
    return a[seen], b[seen]


def _distances(first: Counts, second: Counts) -> Floats:
    """Total variation over the last axis, ``(..., K)`` to ``(...)``."""
    a, b = (side / side.sum(axis=-1, keepdims=True) for side in (first, second))
    distances: Floats = np.abs(a - b).sum(axis=-1) / 2
    return distances


def _drawn_anew(first: Counts, second: Counts, generator: np.random.Generator, resamples: int) -> Floats:
    """Distances ``(R,)`` where each sample is resampled from itself.

    A value that only one sample has stays the other's 0, so that all of them count as one.
    """
    both = (first > 0) & (second > 0)
    a = np.array([*first[both], first[~both].sum(), 0])
    b = np.array([*second[both], 0, second[~both].sum()])
    return _distances(*(generator.multinomial(side.sum(), side / side.sum(), resamples) for side in (a, b)))


def _shuffled(first: Counts, second: Counts, generator: np.random.Generator, resamples: int) -> Floats:
    """Distances ``(R,)`` where the samples exchange members at random.

    Values that were seen once fall into one sample or the other, so that only how many fall into each matters.
    """
    together, size, other = first + second, int(first.sum()), int(second.sum())
    often = together[together > 1]
    moved = generator.multivariate_hypergeometric([*often, int((together == 1).sum())], size, resamples)  # (R, K + 1)
    once, left = moved[:, -1], int((together == 1).sum()) - moved[:, -1]
    apart = np.abs(moved[:, :-1] / size - (often - moved[:, :-1]) / other).sum(axis=1)
    distances: Floats = (apart + once / size + left / other) / 2
    return distances


def _seed(seed: int, number: int) -> int:
    return int(np.random.SeedSequence([seed, abs(number), int(number < 0)]).generate_state(1)[0])
