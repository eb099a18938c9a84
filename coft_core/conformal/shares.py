"""How a risk level is shared out among attribute families."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from coft_core.conformal.quantile import check_alpha, exact_alpha, level_at_least
from coft_core.errors import InvalidInputError

SHARE_DECIMALS = 9
"""Digits of an equal share: shares are rounded down, so that their sum stays within alpha."""


def split_alpha(
    alpha: float, families: Sequence[str], by_family: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Share a risk level out among families.

    Args:
        alpha: Risk level of all families together.
        families: The families.
        by_family: A level for each, by hand; None gives each an equal share.

    Returns:
        Level by family; the sum of the levels as printed is at most ``alpha``.

    Raises:
        InvalidInputError: A level is outside (0, 1), the levels sum to more than ``alpha``, or a family is missing.
    """
    total = exact_alpha(alpha)
    if by_family is None:
        share = Fraction(math.floor(total / len(families) * 10**SHARE_DECIMALS), 10**SHARE_DECIMALS)
        return dict.fromkeys(families, check_alpha(float(share)))
    if missing := [name for name in families if name not in by_family]:
        raise InvalidInputError(f"The family {missing[0]!r} has no share of alpha; give one for each family.")
    shares = {name: check_alpha(by_family[name]) for name in families}
    if sum(exact_alpha(share) for share in shares.values()) > total:
        listed = ", ".join(f"{name} {share:g}" for name, share in shares.items())
        raise InvalidInputError(f"The shares ({listed}) sum to more than alpha {alpha:g}; lower one of them.")
    return shares


def least_total(share: float, count: int) -> float | None:
    """Smallest level that gives each of some families at least a share; None if none below 1 does."""
    rounded = Fraction(math.ceil(exact_alpha(share) * 10**SHARE_DECIMALS), 10**SHARE_DECIMALS)
    return level_at_least(rounded * count)
