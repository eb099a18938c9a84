"""A question about paths, such as "approved" against "denied": shares by world, and when their difference is decided.

Outcomes are True, False, or None where a path answers neither way. A share is that of True among the scored paths. A
world's paths are drawn independently of each other, and so are the scored ones among them; paths of one number in two
worlds are twins, whose outcomes are mostly the same where the worlds are alike. The bets are on twins, so that what
both have in common cancels out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coft_core.conformal.betting import Bet, bet_on_difference, pairs_to_decide
from coft_core.conformal.coverage import clopper_pearson

Outcomes = Sequence[bool | None]

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class ShareEstimate:
    """How often a world's paths answer one way."""

    yes: int
    no: int
    unscored: int
    low: float | None
    high: float | None

    @property
    def share(self) -> float | None:
        """Share of yes among the scored paths; None where there is none."""
        scored = self.yes + self.no
        return self.yes / scored if scored else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two worlds' shares compared."""

    first: int
    second: int
    alpha: float
    bet: Bet
    decided_after: int | None


def estimate(outcomes: Outcomes) -> ShareEstimate:
    """A world's share with its exact interval."""
    yes, no = sum(item is True for item in outcomes), sum(item is False for item in outcomes)
    low, high = clopper_pearson(yes, yes + no, LEVEL) if yes + no else (None, None)
    return ShareEstimate(yes, no, len(outcomes) - yes - no, low, high)


def compare(worlds: Sequence[Outcomes], alpha: float) -> tuple[Comparison, ...]:
    """The first world compared with each other one."""
    each, found = _shared(alpha, worlds), []
    for other in range(1, len(worlds)):
        after, first, second = _bets(worlds[0], worlds[other])
        bet = bet_on_difference(first, second, each)
        found.append(Comparison(0, other, each, bet, bet.decided_after and int(after[bet.decided_after - 1])))
    return tuple(found)


def decided_after(worlds: Sequence[Outcomes], alpha: float) -> int | None:
    """Paths of each world after which every comparison with the first world was decided; None while one is not.

    It depends on the outcomes alone: paths that were drawn beyond it, because paths come in batches, do not matter.
    """
    each = _shared(alpha, worlds)
    found = [_decided(worlds[0], other, each) for other in worlds[1:]]
    decided = [number for number in found if number is not None]
    return max(decided) if decided and len(decided) == len(found) else None


def _shared(alpha: float, worlds: Sequence[Outcomes]) -> float:
    return alpha / max(len(worlds) - 1, 1)


def _bets(first: Outcomes, second: Outcomes) -> npt.NDArray[np.int64]:
    """Pairs to bet on ``(3, T)``: after how many paths each is known, and its two outcomes.

    A pair has the first scored path of either world since the pair before, twins where both are scored at once. As no
    path since then counts in a later pair, the past says nothing of a pair, and each outcome has the law of the scored.
    """
    pairs: list[tuple[int, bool, bool]] = []
    one = other = None
    for number, (a, b) in enumerate(zip(first, second, strict=False), start=1):
        one, other = a if one is None else one, b if other is None else other
        if one is not None and other is not None:
            pairs.append((number, one, other))
            one = other = None
    return np.array(pairs, dtype=np.int64).reshape(-1, 3).T


def _decided(first: Outcomes, second: Outcomes, alpha: float) -> int | None:
    """Paths of either world that it takes to see the pair that decides."""
    after, a, b = _bets(first, second)
    pair = pairs_to_decide(a, b, alpha)
    return None if pair is None else int(after[pair - 1])
