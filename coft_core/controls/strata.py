"""Selections of groups within strata: exact tests, evidence that may be looked at at any time, and intervals.

A stratum is what hangs together, such as a pair of prompts that differ in the group only. Under the null hypothesis its
rows are exchangeable: given how many of them are selected, any of them is as likely to be. The number of the first
group's selections is hypergeometric then, whatever the stratum's own rate. With one row of each group in a stratum the
exact test is McNemar's, and that of several groups Cochran's Q.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp
from scipy.stats import chi2, hypergeom, t

from coft_core.conformal.coverage import clopper_pearson
from coft_core.errors import InvalidInputError

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

ODDS: Floats = np.exp(np.outer((-1, 1), np.geomspace(0.02, 4, 12)).ravel())
"""Odds ratios that the evidence bets on with equal stakes; 1, which is the null hypothesis, is not among them."""

DRAWS = 1999
"""Permutations of the test of several groups."""
NOISE = 1e-9
"""Relative size below which a number is 0."""
MOST_PERMUTED = 200
"""With more strata that tell something than this, the test of several groups takes its chi-squared limit."""


def exact_p(strata: npt.ArrayLike) -> float:
    """Two-sided p-value of "within strata the groups are selected alike", exact given sizes and selections.

    The chance that the number of the first group's selections is as far from what is expected. Strata ``(S, 4)`` are
    selected and all rows of the first group, then of the second one.
    """
    selected, kinds, place = _kinds(strata)
    times = np.bincount(place, minlength=len(kinds))
    law = np.ones(1)
    for kind, many in zip(kinds.tolist(), times.tolist(), strict=True):
        law = np.convolve(law, _power(_law(*kind), many))
    first, second, chosen = kinds.T
    least = times @ np.maximum(0, chosen - second)
    expected, seen = times @ (first * chosen / (first + second)) - least, selected.sum() - least
    far = np.abs(np.arange(len(law)) - expected) >= abs(seen - expected) - NOISE
    return float(min(1.0, law[far].sum()))


def _kinds(strata: npt.ArrayLike) -> tuple[Counts, Counts, Counts]:
    """The first group's selections in strata that tell something ``(S,)``; sizes and selections ``(K, 3)``; which."""
    table = np.asarray(strata, dtype=np.int64).reshape(-1, 4)
    chosen, sizes = table[:, 0] + table[:, 2], table[:, 1] + table[:, 3]
    telling = (table[:, 1] > 0) & (table[:, 3] > 0) & (chosen > 0) & (chosen < sizes)
    kinds, place = np.unique(np.column_stack([table[:, 1], table[:, 3], chosen])[telling], axis=0, return_inverse=True)
    return table[telling, 0], kinds, place


def _law(first: int, second: int, chosen: int) -> Floats:
    """Chances of the first group's selections, from the smallest that is possible."""
    return np.asarray(hypergeom.pmf(_support(first, second, chosen), first + second, chosen, first))


def _support(first: int, second: int, chosen: int) -> Counts:
    return np.arange(max(0, chosen - second), min(first, chosen) + 1)


def _power(law: Floats, times: int) -> Floats:
    """The law of a sum of so many."""
    if times == 1:
        return law
    half = _power(law, times // 2)
    whole = np.convolve(half, half)
    return np.convolve(whole, law) if times % 2 else whole


def evidence(strata: npt.ArrayLike) -> Floats:
    """e-values against "the groups are selected alike" after each stratum that tells something, in their order.

    Each stratum multiplies a bet on an odds ratio by its likelihood ratio, which has mean 1 under the hypothesis
    whatever came before; the e-value is the mean of the bets. So it ever reaches ``1 / alpha`` with probability at most
    ``alpha``, whenever one stops (Ville's inequality). Strata are those of :func:`exact_p`.
    """
    selected, kinds, place = _kinds(strata)
    logs = np.log(ODDS)
    normal = np.array(
        [logsumexp(np.outer(_support(*kind), logs), axis=0, b=_law(*kind)[:, None]) for kind in kinds.tolist()]
    ).reshape(-1, len(logs))  # (K, W)
    gains = np.outer(selected, logs) - normal[place]  # (S, W)
    # Beyond this nobody reads digits, and the product of very many would overflow.
    mean = logsumexp(gains.cumsum(axis=0), axis=1) - math.log(len(logs))
    return np.asarray(np.exp(np.minimum(mean, 700.0)))


@dataclass(frozen=True, slots=True)
class SeveralGroups:
    """The test of "all groups are selected alike within strata".

    Attributes:
        statistic: Cochran's Q where each stratum has one row of each group; in general the Cochran-Mantel-Haenszel
            statistic of general association.
        freedom: Its degrees of freedom.
        draws: Permutations that the p-value rests on; 0 where it is that of the chi-squared distribution.
    """

    statistic: float
    freedom: int
    p_value: float
    draws: int


def several_groups(selected: npt.ArrayLike, totals: npt.ArrayLike, seed: int = 0) -> SeveralGroups:
    """Test many groups at once; selections and rows ``(S, G)`` by stratum and group."""
    hits, rows = np.asarray(selected, dtype=np.int64), np.asarray(totals, dtype=np.int64)
    chosen, sizes = hits.sum(axis=1), rows.sum(axis=1)
    telling = (chosen > 0) & (chosen < sizes)
    hits, rows, chosen, sizes = hits[telling], rows[telling], chosen[telling], sizes[telling]
    if not len(hits):
        return SeveralGroups(0.0, 0, 1.0, 0)
    shares = rows / sizes[:, None]  # (S, G)
    scale = chosen * (sizes - chosen) / (sizes - 1)  # (S,)
    spread = np.diag(scale @ shares) - (shares * scale[:, None]).T @ shares  # (G, G)
    inverse = np.linalg.pinv(spread, rcond=NOISE, hermitian=True)
    freedom = int(np.linalg.matrix_rank(spread, tol=NOISE * spread.max(), hermitian=True))
    expected = (shares * chosen[:, None]).sum(axis=0)  # (G,)

    def statistic(sums: npt.ArrayLike) -> Floats:
        off = np.asarray(sums, dtype=float) - expected
        return np.asarray(np.einsum("...g,gh,...h", off, inverse, off))

    seen = float(statistic(hits.sum(axis=0)))
    if len(hits) > MOST_PERMUTED:
        return SeveralGroups(seen, freedom, float(chi2.sf(seen, freedom)), 0)
    generator = np.random.default_rng(seed)
    sums = np.zeros((DRAWS, rows.shape[1]), dtype=np.int64)
    for own, count in zip(rows, chosen, strict=True):
        sums += generator.multivariate_hypergeometric(own, count, size=DRAWS, method="marginals")
    extreme = int((statistic(sums) >= seen - 1e-9).sum())
    return SeveralGroups(seen, freedom, (extreme + 1) / (DRAWS + 1), DRAWS)


@dataclass(frozen=True, slots=True)
class Selections:
    """Selected and all rows of a group by unit, ``(U,)`` each; units are independent of each other."""

    selected: Counts
    totals: Counts

    @classmethod
    def of(cls, units: Sequence[Hashable], groups: Sequence[str], chosen: Sequence[bool]) -> dict[str, Self]:
        """Those of each group, over the same units."""
        places = {unit: place for place, unit in enumerate(dict.fromkeys(units))}
        found = {group: cls(*np.zeros((2, len(places)), dtype=np.int64)) for group in dict.fromkeys(groups)}
        for unit, group, was in zip(units, groups, chosen, strict=True):
            found[group].totals[places[unit]] += 1
            found[group].selected[places[unit]] += was
        return found

    @property
    def rate(self) -> float:
        """The share that is selected."""
        return float(self.selected.sum() / self.totals.sum())

    @property
    def influence(self) -> Floats:
        """What each unit adds to the rate's error."""
        return np.asarray((self.selected - self.rate * self.totals) / self.totals.sum())

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The rate's interval, exact where units have one row each.

        Else it is that of as many independent rows as these are worth, and never of more than there are (Korn and
        Graubard, Survey Methodology 24 (1998) 193).
        """
        rows, hits, units = int(self.totals.sum()), int(self.selected.sum()), int((self.totals > 0).sum())
        if not rows:
            raise InvalidInputError("The group has no rows; leave it out.")
        if units == rows:
            return clopper_pearson(hits, rows, level)
        worth, variance = float(units), _variance(self.influence, units)
        if variance > 0:
            narrower = (t.ppf((1 + level) / 2, rows - 1) / t.ppf((1 + level) / 2, units - 1)) ** 2
            worth = min(float(rows), self.rate * (1 - self.rate) / variance * narrower)
        return clopper_pearson(self.rate * worth, worth, level)


def _variance(influence: Floats, units: int) -> float:
    return float(units / (units - 1) * (influence**2).sum()) if units > 1 else 0.0


def ratio_interval(group: Selections, reference: Selections, level: float = 0.95) -> tuple[float, float] | None:
    """Interval of a group's rate over another's, on the log scale; rows of one unit may hang together.

    Where nobody of the group was selected, or where there is one unit, the ends of both rates' intervals are divided,
    each at half the risk, which is wider than need be. None where nobody of the reference was selected.
    """
    if not reference.selected.sum():
        return None
    units = int(((group.totals + reference.totals) > 0).sum())
    influence = reference.influence / reference.rate
    if group.selected.sum() and (spread := _variance(group.influence / group.rate - influence, units)) > 0:
        reach, middle = t.ppf((1 + level) / 2, units - 1) * math.sqrt(spread), math.log(group.rate / reference.rate)
        return math.exp(middle - reach), math.exp(middle + reach)
    (low, high), (least, most) = (own.interval((1 + level) / 2) for own in (group, reference))
    return low / most, high / least
