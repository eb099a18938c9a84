"""A head with bounds on its tail: normaliser, membership in the certified set, its size and mass, and divergence.

Numbers are bounds on the exact values of the method. Decoding compares in float32, so a decision is called certain only
if it also stands after every rounding that float32 allows.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from coft_core.errors import StoredLogitsError
from coft_core.policies.base import Views
from coft_core.policies.fusion import fuse_logits
from coft_core.stored_logits import StoredLogits, Tail

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Bounds:
    """A number that is known exactly, or to lie within two others.

    Attributes:
        low: It is at least this.
        high: It is at most this.
    """

    low: float
    high: float

    @classmethod
    def at(cls, value: float) -> Bounds:
        """A number that is known."""
        return cls(value, value)

    @property
    def exact(self) -> bool:
        """Whether the number is known."""
        return self.low == self.high


ROUNDING = 1e-9
"""By this much bounds are widened, so that rounding in float64 cannot cross them."""


@dataclass(frozen=True, slots=True)
class FusedTail:
    """The fused tokens outside the head at one lambda, logits divided by the temperature."""

    log_mass: Bounds
    slope: Bounds
    largest: float


def fused_tail(tail: Tail, lam: float, temperature: float) -> FusedTail:
    """Bound the fused tail at a lambda.

    ``log sum exp((1 - lam) a + lam b)`` is convex in lambda. Between two lambdas at which it was measured it lies below
    the chord, which between 0 and 1 is Hoelder's inequality, and above both tangents; its slope lies between theirs.
    The largest fused logit is convex too. At a measured lambda all is exact.
    """
    above = bisect_right(tail.lams, lam)
    left = above - 1
    if tail.lams[left] == lam:
        return FusedTail(
            Bounds.at(tail.fused_log_mass[left]),
            Bounds.at(tail.fused_slope[left]),
            tail.fused_largest[left] / temperature,
        )
    start, end = tail.lams[left], tail.lams[above]
    weight = (lam - start) / (end - start)
    high = _chord(tail.fused_log_mass[left], tail.fused_log_mass[above], weight)
    slopes = Bounds(tail.fused_slope[left], tail.fused_slope[above])
    largest = _chord(tail.fused_largest[left], tail.fused_largest[above], weight) / temperature
    if high == -math.inf:
        return FusedTail(Bounds.at(high), Bounds.at(0.0), -math.inf)
    low = max(
        tail.fused_log_mass[left] + slopes.low * (lam - start),
        tail.fused_log_mass[above] - slopes.high * (end - lam),
    )
    return FusedTail(Bounds(min(low, high) - ROUNDING, high + ROUNDING), slopes, largest + ROUNDING)


def _chord(left: float, right: float, weight: float) -> float:
    """Linear interpolation inside an interval; a token forbidden at one end is forbidden between the ends."""
    return -math.inf if -math.inf in (left, right) else (1.0 - weight) * left + weight * right


UNIT = 2.0**-24
"""Relative rounding error of one operation in float32."""

OPERATIONS = 32
"""Roundings that a token's logit goes through on its way to a log-probability, amply counted (mean over families)."""

_NEGLIGIBLE = 40.0
"""Nats below the largest from which on a token's own rounding cannot show in a sum in float32."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """One branch with its threshold: a token must pass all of a step's criteria.

    With a masked branch a token passes by its joint support; the factual branch, where it certifies, decides alone.
    """

    log_p: Floats
    log_tau: float
    tail_largest: float
    tail_log_mass: float
    alone: bool = False

    def support(self, head: Head) -> tuple[Floats, Floats]:
        """Bounds on the head tokens' support, ``(n,)`` each."""
        if self.alone:
            return self.log_p, self.log_p
        return np.minimum(head.log_p_low, self.log_p), np.minimum(head.log_p_high, self.log_p)


@dataclass(frozen=True, slots=True)
class Members:
    """What is known of a certified set."""

    sure: Flags
    maybe: Flags
    tail: Bounds


@dataclass(frozen=True, slots=True)
class Head:
    """The head of one step at one lambda; logits divided by the temperature."""

    ids: npt.NDArray[np.int64]
    factual: Floats
    masked: Floats
    fused: Floats
    error: Floats
    slack: float
    tail: FusedTail
    tail_count: int
    normaliser: Bounds
    log_p_low: Floats
    log_p_high: Floats
    masked_normaliser: float
    criteria: tuple[Criterion, ...]
    twins: npt.NDArray[np.int64]

    def place(self, token_id: int) -> int:
        """Where a token stands in the head."""
        place = int(np.searchsorted(self.ids, token_id))
        if place == len(self.ids) or self.ids[place] != token_id:
            raise StoredLogitsError(f"The kept logits do not hold the step's own token {token_id}; decode it again.")
        return place


def head_of(stored: StoredLogits, views: Views, lam: float) -> Head:
    """Fuse a stored head and bound what lies outside; of the policy's views only the thresholds are read."""
    tail = stored.tail
    if tail is None:
        raise StoredLogitsError("All logits of this step were kept; read them as they are.")
    logits = stored.tensor().float().double().numpy() / stored.temperature  # (B, n)
    factual = logits[0]
    masked = logits[1:].mean(0) if len(logits) > 1 else factual  # (n,)
    fused = fuse_logits(torch.from_numpy(factual), torch.from_numpy(masked), lam).numpy()  # (n,)
    fused_rest = fused_tail(tail, lam, stored.temperature)
    inside = log_sum_exp(fused)
    mass = fused_rest.log_mass
    normaliser = Bounds(float(np.logaddexp(inside, mass.low)), float(np.logaddexp(inside, mass.high)))
    with np.errstate(invalid="ignore"):
        # If lambda forbids the whole head, the normaliser is the tail's, and that may have no lower bound.
        log_p_high = np.where(fused > -np.inf, fused - normaliser.low, -np.inf)  # (n,)
    size = np.where(np.isfinite(logits), np.abs(logits), 0.0).max(0)  # (n,)
    error = OPERATIONS * UNIT * (2.0 * size + abs(normaliser.high) + 1.0)  # (n,)
    # A sum of V positive numbers is off by less than V roundings, in whatever order it is taken.
    summing = UNIT * (stored.vocabulary_size + OPERATIONS * math.log(stored.vocabulary_size))
    heavy = fused >= fused.max() - _NEGLIGIBLE
    return Head(
        ids=tail.ids,
        factual=factual,
        masked=masked,
        fused=fused,
        error=error,
        slack=summing + float(error[heavy].max()),
        tail=fused_rest,
        tail_count=stored.tail_count,
        normaliser=normaliser,
        log_p_low=fused - normaliser.high,
        log_p_high=log_p_high,
        masked_normaliser=float(np.logaddexp(log_sum_exp(masked), tail.fused_log_mass[-1])),
        criteria=tuple(
            _criterion(row, logits[row], log_tau, tail.log_mass[row], tail.largest[row] / stored.temperature)
            for row, log_tau in thresholds(views, len(logits))
        ),
        twins=np.unique(logits, axis=1, return_inverse=True)[1].ravel(),
    )


def thresholds(views: Views, rows: int) -> tuple[tuple[int, float], ...]:
    """The branches that certify, with their thresholds; ``rows`` counts all branches, the factual one is row 0."""
    if rows == 1:
        return ()
    if views.families:
        return tuple((row, view.log_tau) for row, view in enumerate(views.families, start=1))
    return ((0 if views.certified_in == "factual" else 1, views.log_tau),)


def members_of(head: Head, criteria: tuple[Criterion, ...]) -> Members:
    """Which tokens pass all criteria, as far as the head and the bounds on the tail can tell."""
    sure, possible = np.ones_like(head.ids, dtype=bool), np.ones_like(head.ids, dtype=bool)
    tail_low = tail_high = head.tail_count
    for criterion in (c for c in criteria if c.log_tau > -math.inf):
        slack = head.slack + head.error + OPERATIONS * UNIT * abs(criterion.log_tau)  # (n,)
        low, high = criterion.support(head)
        sure &= low - slack >= criterion.log_tau
        possible &= high + slack >= criterion.log_tau
        tail_low, tail_high = 0, min(tail_high, _tail_members(head, criterion, float(slack.max())))
    return Members(sure, possible & ~sure, Bounds(tail_low, tail_high))


def set_size(members: Members) -> Bounds:
    """Number of tokens in the certified set."""
    sure, maybe = int(members.sure.sum()), int(members.maybe.sum())
    return Bounds(sure + members.tail.low, sure + maybe + members.tail.high)


def set_mass(head: Head, members: Members) -> Bounds:
    """Fused probability of the certified set."""
    if members.sure.all() and members.tail.low == head.tail_count:
        return Bounds.at(1.0)
    low = _share(log_sum_exp(head.fused[members.sure]), head.normaliser.high)
    high = _share(log_sum_exp(head.fused[members.sure | members.maybe]), head.normaliser.low)
    if members.tail.high:
        most = members.tail.high * _share(head.tail.largest, head.normaliser.low)
        high += min(_share(head.tail.log_mass.high, head.normaliser.high), most)
    return Bounds(low, min(high, 1.0))


def divergence(head: Head, lam: float) -> Bounds:
    """``KL(fused || masked)``; never below 0.

    With Z the sum of exponentials of the fused logits it is ``sum exp(fused) (fused - masked) / Z - log Z + log Z_m``,
    and ``fused - masked = (1 - lam) (factual - masked)``, so the tail enters by its mass and by the slope of that. For
    a given slope the value rises up to one mass and falls from there on.
    """
    if lam == 1.0:
        return Bounds.at(0.0)
    alive = head.fused > -math.inf
    with np.errstate(invalid="ignore"):
        gap = (1.0 - lam) * (head.factual - head.masked)[alive]  # (alive,)
    slope = head.tail.slope
    if np.isposinf(gap).any() or (slope.exact and slope.low == -math.inf):
        return Bounds.at(math.inf)
    inside = log_sum_exp(head.fused)
    head_gap = float((np.exp(head.fused[alive] - inside) * gap).sum())
    scale = max(inside, head.tail.log_mass.high)
    weight = math.exp(inside - scale)
    masses = [math.exp(edge - scale) for edge in (head.tail.log_mass.low, head.tail.log_mass.high)]

    def value(mass: float, pull: float) -> float:
        if weight + mass == 0.0:
            return math.inf
        total = weight * head_gap + (mass * pull if mass else 0.0)
        return total / (weight + mass) - math.log(weight + mass) - scale + head.masked_normaliser

    weakest, strongest = -(1.0 - lam) * slope.high, -(1.0 - lam) * slope.low
    low = min(value(mass, weakest) for mass in masses)
    peak = min(max(weight * (strongest - head_gap - 1.0), masses[0]), masses[1]) if weight else masses[0]
    high = max(value(mass, strongest) for mass in (*masses, peak))
    return Bounds(max(low, 0.0), max(high, 0.0))


def log_sum_exp(numbers: Floats) -> float:
    """Logarithm of the sum of exponentials; ``-inf`` of nothing."""
    return float(np.logaddexp.reduce(numbers)) if len(numbers) else -math.inf


def _share(part: float, whole: float) -> float:
    """A share of a mass from the logarithms of both, where the whole may be no more than a bound."""
    return 0.0 if part == -math.inf else math.exp(min(part - whole, 0.0))


def _criterion(row: int, logits: Floats, log_tau: float, tail_log_mass: float, tail_largest: float) -> Criterion:
    normaliser = float(np.logaddexp(log_sum_exp(logits), tail_log_mass))
    return Criterion(logits - normaliser, log_tau, tail_largest - normaliser, tail_log_mass - normaliser, row == 0)


def _tail_members(head: Head, criterion: Criterion, slack: float) -> int:
    """How many tokens of the tail can pass a criterion: each needs tau of the mass of every view that it asks."""
    largest, mass = criterion.tail_largest, criterion.tail_log_mass
    if not criterion.alone:
        largest = min(head.tail.largest - head.normaliser.low, largest)
        mass = min(head.tail.log_mass.high - head.normaliser.high, mass)
    if largest + slack < criterion.log_tau:
        return 0
    ratio = mass + slack - criterion.log_tau
    return head.tail_count if ratio >= math.log(head.tail_count) else math.floor(math.exp(ratio))
