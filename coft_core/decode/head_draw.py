"""Which token a keyed draw falls on when only a head is known: named only if no tail could make it another one.

What may be drawn is held as tokens that surely are in, tokens that may be in, and bounds on a tail. The cuts of
:func:`coft_core.policies.sampling.choose` go through it one after another; each keeps a beginning of the order of
likelihood, so the mass before a token is the same in all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from coft_core.decode.heads import Bounds, Flags, Floats, Head, Members
from coft_core.types import Sampling

Counts = npt.NDArray[np.int64]

_EXACT = 1e-9
"""Relative rounding of sums in float64, amply counted."""


@dataclass(frozen=True, slots=True)
class Pool:
    """What may be drawn; weights are ``exp`` of the fused logits, up to a common factor."""

    low: Floats
    high: Floats
    sure: Flags
    maybe: Flags
    tail_count: int
    tail_mass: Bounds
    tail_largest: float
    twins: Counts

    @property
    def possible(self) -> Flags:
        """Tokens that are or may be in, ``(n,)``."""
        return self.sure | self.maybe

    @property
    def mass(self) -> Bounds:
        """Weight of all that is in."""
        low = float(self.low[self.sure].sum()) + self.tail_mass.low
        return Bounds(low, float(self.high[self.possible].sum()) + self.tail_mass.high)

    def cut(self, surely: Flags, possibly: Flags, tail: bool) -> Pool:
        """Keep what a cut keeps: surely, possibly, and whether it can reach into the tail."""
        sure = self.sure & surely
        return replace(
            self,
            sure=sure,
            maybe=self.possible & possibly & ~sure,
            tail_count=self.tail_count if tail else 0,
            tail_mass=Bounds(0.0, self.tail_mass.high if tail else 0.0),
        )


@dataclass(frozen=True, slots=True)
class Before:
    """How many tokens are likelier than each head token, and their weight; all ``(n,)``."""

    count_low: Counts
    count_high: Counts
    mass_low: Floats
    mass_high: Floats


def pool_of(head: Head, members: Members) -> Pool:
    """What a certified set leaves to draw from."""
    scale = max(float(head.fused.max()), head.tail.largest)
    error = float(head.error.max())
    tail_high = math.exp(head.tail.log_mass.high - scale + error)
    largest = math.exp(head.tail.largest - scale + error)
    whole = members.tail.low == head.tail_count
    return Pool(
        low=np.exp(head.fused - scale - head.error),
        high=np.exp(head.fused - scale + head.error),
        sure=members.sure,
        maybe=members.maybe,
        tail_count=int(members.tail.high),
        tail_mass=Bounds(
            math.exp(head.tail.log_mass.low - scale - error) if whole else 0.0,
            tail_high if whole else min(tail_high, members.tail.high * largest),
        ),
        tail_largest=largest,
        twins=head.twins,
    )


def likeliest(pool: Pool) -> int | None:
    """Place of the token that surely is the likeliest of the pool; None if that hangs on the tail."""
    first = np.flatnonzero(pool.sure & (_before(pool).count_high == 0))
    return int(first[0]) if len(first) else None


def drawn(pool: Pool, sampling: Sampling, uniform: float, vocabulary: int) -> int | None:
    """Place of the token on which a draw surely falls; None if that hangs on the tail."""
    before = _before(pool)
    likelier_than_tail = pool.sure & (pool.low > pool.tail_largest)
    if 0 < sampling.top_k < vocabulary:
        into_tail = int(likelier_than_tail.sum()) < sampling.top_k
        pool = pool.cut(before.count_high < sampling.top_k, before.count_low < sampling.top_k, into_tail)
    total = pool.mass
    if sampling.top_p < 1:
        goal = Bounds(sampling.top_p * total.low * (1 - _EXACT), sampling.top_p * total.high * (1 + _EXACT))
        into_tail = pool.tail_count > 0 and float(pool.low[likelier_than_tail].sum()) < goal.high
        pool = pool.cut(before.mass_high < goal.low, before.mass_low < goal.high, into_tail)
        total = _nucleus(pool, before, goal)
    start, end = before.mass_high, before.mass_low + pool.low  # (n,)
    falls = (start <= uniform * total.low * (1 - _EXACT)) & (uniform * total.high * (1 + _EXACT) < end)
    places = np.flatnonzero(pool.sure & falls)
    return int(places[0]) if len(places) else None


def _nucleus(pool: Pool, before: Before, goal: Bounds) -> Bounds:
    """Weight of a nucleus: at least its goal, and above it by less than the weight of the token that reaches it."""
    crossing = pool.high[pool.possible & (before.mass_high + pool.high >= goal.low)]
    largest = max(float(crossing.max()) if len(crossing) else 0.0, pool.tail_largest if pool.tail_count else 0.0)
    return Bounds(max(pool.mass.low, goal.low), min(pool.mass.high, goal.high + largest))


def _before(pool: Pool) -> Before:
    by_low = np.sort(pool.low[pool.sure])[::-1]
    by_high = np.sort(pool.high[pool.possible])[::-1]
    # Above a token's upper bound, another one is likelier; not below its lower bound, it may be.
    surely = np.searchsorted(-by_low, -pool.high, side="left")  # (n,)
    possibly = np.searchsorted(-by_high, -pool.low, side="right") - pool.possible  # (n,), without the token itself
    sums_low = np.concatenate([[0.0], np.cumsum(by_low)])
    sums_high = np.concatenate([[0.0], np.cumsum(by_high)])
    mass_high = sums_high[possibly + pool.possible] - np.where(pool.possible, pool.high, 0.0)  # (n,)
    tied_before, tied_after = _tied(pool)
    tail = pool.tail_largest >= pool.low  # (n,)
    count_high = possibly - tied_after  # (n,)
    mass_high = np.where(count_high > 0, (mass_high - tied_after * pool.high) * (1 + _EXACT), 0.0)
    return Before(
        count_low=surely + tied_before,
        count_high=count_high + tail * pool.tail_count,
        mass_low=(sums_low[surely] + tied_before * pool.low) * (1 - _EXACT),
        mass_high=np.add(mass_high, tail * pool.tail_mass.high),
    )


def _tied(pool: Pool) -> tuple[Counts, Counts]:
    """Of a token's twins, how many surely come before it and how many of the pool come after it, ``(n,)`` each.

    Twins are equally likely for certain, and the smaller id comes first.
    """
    order = np.argsort(pool.twins, kind="stable")  # (n,), by group, in it by id
    begins = np.searchsorted(pool.twins[order], pool.twins)  # (n,), where a token's group begins in that order
    ends = np.searchsorted(pool.twins[order], pool.twins, side="right")  # (n,)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    sure = np.concatenate([[0], np.cumsum(pool.sure[order])])
    possible = np.concatenate([[0], np.cumsum(pool.possible[order])])
    return sure[place] - sure[begins], possible[ends] - possible[place + 1]
