"""Means of bounded observations tested by betting: valid however long one looks, and whenever one stops.

Each observation ``X`` in [0, 1] multiplies the wealth of a bet that the mean is larger than ``m`` by ``1 + gamma (X / m
- 1)``, and of a bet that it is smaller by ``1 + gamma ((1 - X) / (1 - m) - 1)``. If the mean is ``m``, the wealth is a
martingale, which ever reaches ``1 / alpha`` with probability at most ``alpha`` (Ville). Half of the stake bets on
either side, spread over :data:`FRACTIONS` (Waudby-Smith and Ramdas, JRSS B 86 (2024) 1-27).

All that is asked of an observation is its mean, whatever was seen before it. So a pair of outcomes may hang together,
as those of draws with the same noise do, as long as no pair tells of a later one; the more its outcomes agree, the
sooner a difference of their means is found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coft_core.conformal.quantile import check_alpha
from coft_core.errors import InvalidInputError

Floats = npt.NDArray[np.float64]

BETS = 40
FRACTIONS: Floats = np.append(np.arange(1, BETS + 1) / (BETS + 1), 0.995)
"""Shares of the wealth that are at stake in each bet; below 1, so that no single observation takes all of it."""

STAKES: Floats = np.append(np.full(BETS, 0.5 / BETS), 0.5)
"""How much is put on each bet: half of it on the last, for pairs that differ seldom and then in one direction."""

HALVINGS = 34
"""Steps of the search for an interval's end. They find it to 1e-10; pages show three digits."""


@dataclass(frozen=True, slots=True)
class Bet:
    """What bets on the difference of two shares have come to."""

    pairs: int
    difference: float
    low: float
    high: float
    p_value: float
    decided_after: int | None


def log_wealth(observations: npt.ArrayLike, mean: float) -> Floats:
    """Logarithm of the wealth after each observation of whoever bets against a mean."""
    values, counts = _counted(observations)
    if not 0.0 < mean < 1.0:
        raise InvalidInputError(f"The mean that is tested is {mean}; give a number between 0 and 1.")
    return _log_wealth(values, counts, np.full(len(counts), mean))


def confidence_sequence(observations: npt.ArrayLike, alpha: float) -> Floats:
    """Intervals ``(T, 2)`` that hold the mean at all times at once with probability at least ``1 - alpha``.

    The wealth of betting against a mean is a convex function of it and at most 1 at the observed mean, so the means
    that are not rejected are an interval around that. Ends that have crossed say that there is no one mean.
    """
    check_alpha(alpha)
    found = _ends(*_counted(observations), alpha)
    return np.stack([np.maximum.accumulate(found[0]), np.minimum.accumulate(found[1])], axis=1)  # (T, 2)


def interval_now(observations: npt.ArrayLike, alpha: float) -> tuple[float, float]:
    """The interval after the last observation of :func:`confidence_sequence`, without those before it.

    Whoever looks several times may take what the intervals of all looks have in common.
    """
    check_alpha(alpha)
    values, counts = _counted(observations)
    low, high = _ends(values, counts[-1:], alpha) if len(counts) else ([0.0], [1.0])
    return float(low[0]), float(high[0])


def _ends(values: Floats, counts: Floats, alpha: float) -> tuple[Floats, Floats]:
    """The means ``(T,)`` on either side that are rejected at each time and nearest to the observed mean."""
    limit = -np.log(alpha)
    observed = counts @ values / np.maximum(counts.sum(axis=1), 1)  # (T,)

    def end(outside: float) -> Floats:
        """The rejected side of the border between the observed means and an end of the unit interval."""
        inner, outer = observed.copy(), np.full(len(observed), outside)
        for _ in range(HALVINGS):
            middle = (inner + outer) / 2
            # At the very ends a mean of 0 or 1 cannot be bet against; it is never reached, only approached.
            kept = _log_wealth(values, counts, np.clip(middle, 1e-12, 1 - 1e-12)) < limit
            inner, outer = np.where(kept, middle, inner), np.where(kept, outer, middle)
        return outer

    return end(0.0), end(1.0)


def interval_of_quotient(first: npt.ArrayLike, second: npt.ArrayLike, alpha: float) -> tuple[float, float]:
    """An interval of the first mean over the second, of pairs in [0, 1]; valid however long and often one looks.

    If the quotient is ``q``, then ``x / q - y`` and ``q y - x`` have mean 0 and are at least -1, so that bets on them
    are martingales. Their wealth falls and rises in ``q``, so that each rejects everything on one side of a number.
    """
    check_alpha(alpha)
    x, y = _inside(first), _inside(second)

    def rejected(larger: bool, place: float) -> bool:
        quotient = place / (1 - place)
        return _ever_reached(x / quotient - y if larger else quotient * y - x, alpha / 2)

    low, high = _rejected_sides(rejected)
    return low / (1 - low), high / (1 - high) if high < 1 else np.inf


def interval_of_rest(observations: npt.ArrayLike, total: int, alpha: float) -> tuple[float, float]:
    """An interval of the mean of ``total`` values in [0, 1], of which these were drawn in a random order.

    NaN is a value that was drawn and is not there: it counts in no mean. Only the order has to be random, and after the
    last draw the interval is a point. If the mean is ``m``, that of the values left is known before each draw, and is
    what is bet against (Waudby-Smith and Ramdas, NeurIPS 2020); a missing value counts as ``m``.
    """
    check_alpha(alpha)
    seen = np.asarray(observations, dtype=np.float64)
    there = ~np.isnan(seen)  # (T,)
    values = _inside(np.where(there, seen, 0.0))
    left = total - np.arange(len(seen))  # (T,) before each draw
    count_before = np.cumsum(there) - there  # (T,)
    count, rest = int(there.sum()), total - len(seen)
    if not count + rest:
        return 0.0, 1.0
    # All that is left may be 0, or 1.
    ends = float(values.sum()) / (count + rest), (float(values.sum()) + rest) / (count + rest)
    if not count or not rest:
        return ends

    def rejected(larger: bool, mean: float) -> bool:
        own, mean = (values, mean) if larger else (there - values, 1 - mean)
        expected = ((left + count_before) * mean - (np.cumsum(own) - own)) / left  # (T,)
        possible = bool((expected > 0).all())
        return not possible or _ever_reached(np.where(there, own, mean) / expected - 1, alpha / 2)

    low, high = _rejected_sides(rejected)
    return max(low, ends[0]), min(high, ends[1])


def _rejected_sides(rejected: Callable[[bool, float], bool]) -> tuple[float, float]:
    """Up to where the bets that a number in [0, 1] is larger reject, and from where those that it is smaller do."""

    def end(larger: bool) -> float:
        inner, outer = (1.0, 0.0) if larger else (0.0, 1.0)
        for _ in range(HALVINGS):
            middle = (inner + outer) / 2
            inner, outer = (inner, middle) if rejected(larger, middle) else (middle, outer)
        return outer

    return end(True), end(False)


def _ever_reached(gains: Floats, alpha: float) -> bool:
    """Whether bets with these gains ``(T,)``, each at least -1, have ever come to ``1 / alpha``."""
    course = np.cumsum(np.log1p(FRACTIONS[:, None] * gains), axis=1) + np.log(STAKES)[:, None]  # (BETS + 1, T)
    return bool((np.logaddexp.reduce(course, axis=0) >= -np.log(alpha)).any())


def bet_on_difference(first: npt.ArrayLike, second: npt.ArrayLike, alpha: float) -> Bet:
    """Bet that two shares differ, on pairs of the k-th outcomes of either side; the longer side waits."""
    check_alpha(alpha)
    observations = _paired(first, second)
    if not len(observations):
        return Bet(0, 0.0, -1.0, 1.0, 1.0, None)
    low, high = 2 * confidence_sequence(observations, alpha)[-1] - 1
    wealth = log_wealth(observations, 0.5)
    return Bet(
        pairs=len(observations),
        difference=float(2 * observations.mean() - 1),
        low=float(low),
        high=float(high),
        p_value=float(min(1.0, np.exp(-wealth.max()))),
        decided_after=_reached(wealth, alpha),
    )


def pairs_to_decide(first: npt.ArrayLike, second: npt.ArrayLike, alpha: float) -> int | None:
    """What :func:`bet_on_difference` says of when it was decided, without the interval, which takes far longer."""
    check_alpha(alpha)
    observations = _paired(first, second)
    return _reached(log_wealth(observations, 0.5), alpha) if len(observations) else None


def _paired(first: npt.ArrayLike, second: npt.ArrayLike) -> Floats:
    """Differences of the pairs ``(T,)``, brought to [0, 1]: no difference is 1/2."""
    a, b = (np.asarray(side, dtype=np.float64) for side in (first, second))
    if not (np.isin(a, (0.0, 1.0)).all() and np.isin(b, (0.0, 1.0)).all()):
        raise InvalidInputError("An outcome is neither 0 nor 1; leave out those that are not scored.")
    pairs = min(len(a), len(b))
    observations: Floats = (a[:pairs] - b[:pairs] + 1) / 2
    return observations


def _reached(wealth: Floats, alpha: float) -> int | None:
    """Observations after which the wealth first reached ``1 / alpha``."""
    reached = np.flatnonzero(wealth >= -np.log(alpha))
    return int(reached[0]) + 1 if len(reached) else None


def _counted(observations: npt.ArrayLike) -> tuple[Floats, Floats]:
    """The different values ``(U,)``, and how often each was seen after each observation ``(T, U)``."""
    seen = _inside(observations)
    values, which = np.unique(seen, return_inverse=True)
    return values, np.cumsum(np.eye(len(values))[which], axis=0)


def _inside(observations: npt.ArrayLike) -> Floats:
    """Observations, all of them in [0, 1]."""
    seen = np.asarray(observations, dtype=np.float64)
    if not ((seen >= 0) & (seen <= 1)).all():
        raise InvalidInputError("An observation lies outside 0 to 1; scale the observations first.")
    return seen


def _log_wealth(values: Floats, counts: Floats, mean: Floats) -> Floats:
    """Log-wealth ``(T,)`` of betting against one mean at each time, all inside (0, 1)."""
    larger = values / mean[:, None]  # (T, U)
    smaller = (1 - values) / (1 - mean[:, None])
    sides = [
        np.log(STAKES / 2)[:, None] + np.einsum("gtu,tu->gt", np.log1p(FRACTIONS[:, None, None] * (factor - 1)), counts)
        for factor in (larger, smaller)
    ]  # (BETS + 1, T) each
    total: Floats = np.logaddexp.reduce(np.concatenate(sides), axis=0)
    return total
