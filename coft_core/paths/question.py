"""A question about paths, such as "approved" against "denied": shares by world, and when their difference is decided.

Outcomes are True, False, or None where a path answers neither way. A share is that of True among the scored paths. A
world's paths are drawn independently of each other and of the other worlds'; so are the scored ones among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    each = _shared(alpha, worlds)
    return tuple(
        Comparison(
            0, other, each, bet_on_difference(_scored(worlds[0]), _scored(worlds[other]), each),
            _decided(worlds[0], worlds[other], each),
        )
        for other in range(1, len(worlds))
    )  # fmt: skip


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


def _scored(outcomes: Outcomes) -> list[bool]:
    return [item for item in outcomes if item is not None]


def _decided(first: Outcomes, second: Outcomes, alpha: float) -> int | None:
    """Paths of either world that it takes to see the pair that decides."""
    pair = pairs_to_decide(_scored(first), _scored(second), alpha)
    if pair is None:
        return None
    return 1 + max([at for at, item in enumerate(side) if item is not None][pair - 1] for side in (first, second))
