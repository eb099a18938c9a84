"""p-values and e-values of an effect beside its controls.

Row 0 of a table of effects ``(R, T)`` is the marked word, the other rows are its controls, and columns are steps.
Under the null hypothesis the rows are exchangeable: the marked word does what any comparable word does. Every function
here is exact then, or says that it draws at random.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from coft_core.errors import InvalidInputError

Floats = npt.NDArray[np.float64]

PERMUTATIONS = 10_000
"""Ways to deal members to groups that are drawn where there are too many to list."""

LISTED = 20_000
"""So many ways at most are listed: those of two groups of eight, and of four prompts with two groups of three."""

HALVINGS = 40
"""Steps of the search for an interval's end."""


def step_down(effects: npt.ArrayLike) -> list[float]:
    """p-values of the marked word's effects, adjusted for all steps of the text.

    Step-down max-T (Westfall and Young, "Resampling-Based Multiple Testing", 1993, algorithm 2.8): the strongest step
    is compared with the strongest step of each control, the second strongest with the strongest of the rest, and so on.
    The chance that any step without an effect gets at most p is at most p.
    """
    matrix = _matrix(effects)
    order = np.argsort(-matrix[0], kind="stable")
    # The largest effect of each row among a step and all weaker ones, (R, T).
    largest = np.maximum.accumulate(matrix[:, order][:, ::-1], axis=1)[:, ::-1]
    p_values = np.empty(matrix.shape[1])
    p_values[order] = np.maximum.accumulate((largest >= largest[0]).mean(axis=0))
    return [float(p) for p in p_values]


def rank_of(effects: npt.ArrayLike) -> int:
    """The rank of the marked word's strongest effect among all rows', 1 for the largest; ties count against it."""
    strongest = _matrix(effects).max(axis=1)
    return int((strongest >= strongest[0]).sum())


def rank_sum_p(ranks: Sequence[int], rows: Sequence[int]) -> float:
    """The chance that independent ranks, each uniform on 1 to its number of rows, have a sum this small.

    The null distribution of the sum is exact: the convolution of the prompts' own.
    """
    if len(ranks) != len(rows) or any(not 1 <= rank <= count for rank, count in zip(ranks, rows, strict=False)):
        raise InvalidInputError("Each prompt needs a rank from 1 to its number of rows.")
    # Chances of the sums up to the one seen; they begin at one for each prompt.
    chances = np.zeros(sum(ranks) - len(ranks) + 1)
    chances[0] = 1
    for count in rows:
        sums = np.cumsum(chances)
        sums[count:] -= sums[:-count]
        chances = sums / count
    return float(min(1.0, chances.sum()))


def e_value(effects: npt.ArrayLike, key: str) -> float:
    """Evidence against the null hypothesis from one prompt; its mean is 1 where the hypothesis holds.

    The rank among the rows, ties broken at random, is turned into a number that is uniform on (0, 1), and that into an
    e-value by the mixture of all power calibrators (Vovk and Wang, Annals of Statistics 49 (2021) 1736, section 2).
    ``key`` names the prompt: what is drawn depends on nothing else, so that trying again changes nothing.
    """
    strongest = _matrix(effects).max(axis=1)
    above, equal = (strongest > strongest[0]).sum(), (strongest == strongest[0]).sum()
    u = (above + equal * _uniform(key)) / len(strongest)
    logarithm = math.log(u)
    # Near 1 the formula is 0 / 0, and its limit 1 / 2.
    return 0.5 if logarithm > -1e-4 else (1 - u + u * logarithm) / (u * logarithm**2)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted so that all of those at or below a level are right together (Holm, Scand. J. Stat. 6, 1979)."""
    order = np.argsort(p_values, kind="stable")
    adjusted = np.empty(len(p_values))
    factors = np.arange(len(p_values), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(np.asarray(p_values)[order] * factors), 1.0)
    return [float(value) for value in adjusted]


def _uniform(key: str) -> float:
    """A number in (0, 1) that depends on the key only."""
    digest = hashlib.blake2b(f"evidence|{key}".encode(), digest_size=8).digest()
    return ((int.from_bytes(digest, "big") >> 12) + 0.5) / float(1 << 52)


def _matrix(effects: npt.ArrayLike) -> Floats:
    matrix = np.asarray(effects, dtype=np.float64)
    if matrix.ndim != 2 or not matrix.size or not np.isfinite(matrix).all():
        raise InvalidInputError("The effects are not a table of numbers with a row for each word; compute them again.")
    return matrix


@dataclass(frozen=True, slots=True)
class GroupDifference:
    """How far two groups are apart, compared with members of one group.

    ``difference`` is the mean over prompts of the first group's mean less the second's, with its 95 % interval, and
    ``within`` the largest difference between two members of one group. ``ways`` counts the ways in which the members
    were dealt to the groups, which are all that there are if it is ``exact``.
    """

    difference: float
    low: float
    high: float
    within: float
    p_value: float
    ways: int
    exact: bool


def between_groups(
    first: Sequence[Sequence[float]], second: Sequence[Sequence[float]], seed: int = 0, level: float = 0.95
) -> GroupDifference:
    """Stratified permutation test: members change groups within their prompt, a prompt being a sequence of each side.

    All ways to deal the members are listed where there are at most :data:`LISTED`, otherwise :data:`PERMUTATIONS` are
    drawn. Values lie in [0, 1]. The interval holds the shifts of the first group that the test does not reject.
    """
    if not first or len(first) != len(second) or not all(len(a) and len(b) for a, b in zip(first, second, strict=True)):
        raise InvalidInputError("Each prompt needs at least one member of both groups.")
    prompts = [(np.asarray([*a, *b], dtype=np.float64), len(a)) for a, b in zip(first, second, strict=True)]
    ways = math.prod(math.comb(len(values), size) for values, size in prompts)
    exact = ways <= LISTED
    generator = np.random.default_rng(seed)
    # For each way to deal: the difference of the values, and of whether a value was the first group's, (W,) each.
    found, share = np.zeros(1), np.zeros(1)
    for values, size in prompts:
        chosen = _deals(len(values), size, exact, generator)  # (W, M), 1 for members of the first group
        own = (np.arange(len(values)) < size).astype(np.float64)
        here, own_share = (_gap(chosen, row, size) / len(prompts) for row in (values, own))
        found, share = (
            (np.add.outer(a, b).ravel() if exact else a + b) for a, b in ((found, here), (share, own_share))
        )
    seen = float(np.mean([values[:size].mean() - values[size:].mean() for values, size in prompts]))

    def p_at(shift: float) -> float:
        """The p-value of the hypothesis that the first group's values are larger by a shift."""
        extreme = np.abs(found - shift * share) >= abs(seen - shift) - 1e-12
        return float(extreme.mean()) if exact else float((extreme.sum() + 1) / (len(extreme) + 1))

    low, high = (_end(p_at, seen, outside, 1 - level) for outside in (-1.0, 1.0))
    within = max(float(np.ptp(part)) for values, size in prompts for part in (values[:size], values[size:]))
    return GroupDifference(seen, low, high, within, p_at(0.0), ways if exact else len(found), exact)


def _deals(members: int, size: int, exact: bool, generator: np.random.Generator) -> Floats:
    if exact:
        chosen = np.zeros((math.comb(members, size), members))
        for way, places in enumerate(combinations(range(members), size)):
            chosen[way, places] = 1
        return chosen
    order = generator.random((PERMUTATIONS, members)).argsort(axis=1)
    return (order < size).astype(np.float64)


def _gap(chosen: Floats, values: Floats, size: int) -> Floats:
    gap: Floats = chosen @ values / size - (1 - chosen) @ values / (len(values) - size)
    return gap


def _end(p_at: Callable[[float], float], inside: float, outside: float, alpha: float) -> float:
    """The end of the shifts that are not rejected, between one that is not and the largest that there can be."""
    if p_at(outside) > alpha:
        return outside
    for _ in range(HALVINGS):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if p_at(middle) > alpha else (inside, middle)
    return outside
