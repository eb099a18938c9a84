"""Judges claims on prompts by what was seen so far, with intervals that are valid however often one looks.

Intervals are confidence sequences (:mod:`coft_core.conformal.betting`). A context is one observation, whatever number
of rows it has, since its rows hang together.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations
from statistics import fmean
from typing import Literal

import numpy as np

from app.gate.file import Claim
from coft_core.conformal.betting import interval_now, interval_of_quotient

STEP = 1 / 256
"""Observations are rounded to multiples of this, which bounds what an interval costs; intervals are that much wider."""

Verdict = Literal["pass", "fail", "undecided"]
Means = dict[str, dict[str, float]]
"""The mean of each group by context."""


@dataclass(frozen=True, slots=True)
class Item:
    """What was seen of one row."""

    line: int
    context: str
    group: str
    outcome: str
    value: float


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim with its verdict, and the interval that it rests on."""

    claim: Claim
    verdict: Verdict
    low: float | None
    high: float | None
    estimate: float | None
    observations: int


@dataclass(slots=True)
class Seen:
    """What was seen so far."""

    items: list[Item] = field(default_factory=list)
    evidence: list[float] = field(default_factory=list)
    covered: list[float] = field(default_factory=list)
    left_out: list[tuple[int, str]] = field(default_factory=list)

    def means(self, outcome: str) -> Means:
        """The means of an outcome."""
        return means_of(self.items, outcome)


def means_of(items: Iterable[Item], outcome: str) -> Means:
    """The mean of each group by context."""
    values: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        if item.outcome == outcome:
            values[item.context][item.group].append(item.value)
    return {context: {group: fmean(own) for group, own in by.items()} for context, by in values.items()}


class Judge:
    """Looks at one claim again and again; what one look has excluded stays excluded."""

    def __init__(self, claim: Claim, alpha: float, groups: Sequence[str], before: Sequence[Item] = ()) -> None:
        self._claim, self._alpha, self._before = claim, alpha, means_of(before, claim.outcome)
        self._groups = claim.groups or tuple(groups)
        self._low, self._high = -math.inf, math.inf

    def look(self, seen: Seen, ended: bool = False) -> Judged:
        """The verdict by what was seen so far; ``ended`` says that nothing more will be."""
        if self._claim.measure == "strongest_effect.p":
            return self._of_evidence(seen.evidence, ended)
        if self._claim.measure == "coverage":
            low, high, estimate, count = _mean(seen.covered, self._alpha)
        else:
            means = seen.means(self._claim.outcome)
            if self._claim.measure == "regression":
                low, high, estimate, count = _grown(means, self._before, self._groups, self._alpha)
            else:
                measure = {"gap": _gap, "impact_ratio": _ratio, "rate": _rate}[self._claim.measure]
                low, high, estimate, count = measure(means, self._groups, self._alpha)
        self._low, self._high = max(self._low, low), min(self._high, high)
        return Judged(self._claim, self._claim.judged(self._low, self._high), self._low, self._high, estimate, count)

    def _of_evidence(self, evidence: Sequence[float], ended: bool) -> Judged:
        """A p-value that may be looked at whenever one likes: one over the most evidence that there ever was."""
        product = most = 1.0
        for value in evidence:
            product *= value
            most = max(most, product)
        p_value = 1 / most
        # More prompts can only lower it, so that a claim that it is large holds at the end of the file only.
        low = p_value if ended else 0.0
        return Judged(self._claim, self._claim.judged(low, p_value), low, p_value, p_value, len(evidence))


Found = tuple[float, float, float | None, int]
"""Both ends of a measure, its estimate, and the number of observations."""


def _mean(values: Sequence[float], alpha: float, least: float = 0.0, most: float = 1.0) -> Found:
    """The mean of values between two ends."""
    if not values:
        return least, most, None, 0
    width = most - least
    scaled = [round((value - least) / width / STEP) * STEP for value in values]
    low, high = (least + width * end for end in interval_now(scaled, alpha))
    return max(least, low - width * STEP / 2), min(most, high + width * STEP / 2), fmean(values), len(values)


def _gap(means: Means, groups: Sequence[str], alpha: float) -> Found:
    """The largest difference between the rates of two groups."""
    pairs = list(combinations(groups, 2))
    found = [_difference(means, *pair, alpha / len(pairs)) for pair in pairs]
    low = max(0.0, *(max(low, -high) for low, high, _, _ in found))
    high = max(max(abs(low), abs(high)) for low, high, _, _ in found)
    estimates = [abs(estimate) for _, _, estimate, _ in found if estimate is not None]
    return low, high, max(estimates, default=None), min(count for *_, count in found)


def _difference(means: Means, first: str, second: str, alpha: float) -> Found:
    """Difference of two groups' rates: within contexts where both are in one, else of the groups' own means."""
    paired = [own[first] - own[second] for own in means.values() if first in own and second in own]
    if paired:
        return _mean(paired, alpha, least=-1.0)
    (low, high, one, count), (other_low, other_high, other, others) = (
        _rate(means, (group,), alpha / 2) for group in (first, second)
    )
    estimate = None if one is None or other is None else one - other
    return low - other_high, high - other_low, estimate, min(count, others)


def _grown(means: Means, before: Means, groups: Sequence[str], alpha: float) -> Found:
    """By how much the largest difference between two groups has grown since.

    The change is estimated within contexts that both checks read; the earlier difference is taken as it was measured.
    Where a difference turned round, what it lost first does not count.
    """
    pairs = list(combinations(groups, 2))
    found: list[Found] = []
    for pair in pairs:
        old, new = (
            {context: own[pair[0]] - own[pair[1]] for context, own in each.items() if own.keys() >= {*pair}}
            for each in (before, means)
        )
        changes, measured = (
            [new[context] - old[context] for context in new if context in old],
            fmean(old.values() or [0]),
        )
        low, high, change, count = _mean(changes, alpha / len(pairs), -2.0, 2.0)
        up, down = 2 * min(measured, 0.0), -2 * max(measured, 0.0)
        grown = None if change is None else max(change + up, down - change)
        found.append((max(low + up, down - high), max(high + up, down - low), grown, count))
    low, high = max(low for low, *_ in found), max(high for _, high, *_ in found)
    estimates = [estimate for _, _, estimate, _ in found if estimate is not None]
    return low, high, max(estimates, default=None), min(count for *_, count in found)


def _rate(means: Means, groups: Sequence[str], alpha: float) -> Found:
    return _mean([own[groups[0]] for own in means.values() if groups[0] in own], alpha)


def _ratio(means: Means, groups: Sequence[str], alpha: float) -> Found:
    """The lowest rate of a group over the highest one."""
    pairs = list(combinations(groups, 2))
    paired = {pair: [(own[pair[0]], own[pair[1]]) for own in means.values() if own.keys() >= {*pair}] for pair in pairs}
    if not all(paired.values()):
        return _ratio_of_rates(means, groups, alpha)
    found = [
        interval_of_quotient(first, second, alpha / len(pairs)) for first, second in map(np.transpose, paired.values())
    ]
    # The ratio is the least of all pairs' quotients, either way round, and at most 1.
    low = min(1.0, *(min(low, _inverse(high)) for low, high in found))
    high = min(1.0, *(min(high, _inverse(low)) for low, high in found))
    return low, high, _lowest_over_highest(means, groups), min(map(len, paired.values()))


def _ratio_of_rates(means: Means, groups: Sequence[str], alpha: float) -> Found:
    """The same by each group's own rate, where groups have no contexts in common."""
    rates = {group: _rate(means, (group,), alpha / len(groups)) for group in groups}
    # The true highest group is not known: the ratio is at least the worst that any pair may have.
    low = min(min(1.0, rates[a][0] / max(rates[b][1], 1e-9)) for a, b in permutations(groups, 2))
    most = min(1.0, min(high for _, high, _, _ in rates.values()) / max(max(low for low, *_ in rates.values()), 1e-9))
    return low, most, _lowest_over_highest(means, groups), min(count for *_, count in rates.values())


def _inverse(quotient: float) -> float:
    return 1 / quotient if quotient else math.inf


def _lowest_over_highest(means: Means, groups: Sequence[str]) -> float | None:
    rates = [fmean(own) for group in groups if (own := [each[group] for each in means.values() if group in each])]
    return min(rates) / max(rates) if len(rates) == len(groups) and max(rates) > 0 else None
