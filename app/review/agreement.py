"""How far two reviewers agree beyond chance: Cohen's kappa with its large-sample interval.

Kappa is ``(p_o - p_e) / (1 - p_e)`` with the observed share of agreement ``p_o`` and the share ``p_e`` that two
reviewers with the same habits would reach by chance (Cohen 1960). Its variance is that of Fleiss, Cohen and Everitt
(1969), which does not assume that there is no agreement. Where the reviewers agree throughout, that variance is 0 and
says nothing; the lower end is then that of the exact interval of ``p_o``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from app.shared.errors import ServiceError
from coft_core.conformal.coverage import clopper_pearson

PAIRS_PER_SQUARED_CATEGORY = 2
"""Pairs needed for k categories are ``2 k**2`` (Cicchetti 1981); with fewer the interval's law does not hold."""

LEVEL = 0.95
"""Level of the interval."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Cohen's kappa of two reviewers.

    Attributes:
        pairs: Targets that both judged.
        needed: Targets that are needed for a score.
        agreed: Targets on which they agree.
        categories: Names of the verdicts, in the order of the table.
        table: How often the first gave the row's and the second the column's verdict.
        kappa: 1 is full agreement, 0 what chance gives, below 0 less than that; None is unscored.
        low: Lower end of the interval, not below -1; None is unscored.
        high: Upper end, not above 1.
        error: Standard error of kappa.
        level: Level of the interval.
        reason: Why there is no score; empty otherwise.
    """

    pairs: int
    needed: int
    agreed: int
    categories: tuple[str, ...]
    table: tuple[tuple[int, ...], ...]
    kappa: float | None = None
    low: float | None = None
    high: float | None = None
    error: float | None = None
    level: float = LEVEL
    reason: str = ""

    @property
    def scored(self) -> bool:
        """Whether there is a kappa."""
        return self.kappa is not None

    @property
    def sentence(self) -> str:
        """The result in words."""
        shared = f"They agree on {self.agreed} of {self.pairs} targets that both judged"
        if self.kappa is None or self.low is None or self.high is None:
            return f"{shared}. Unscored: {self.reason}"
        return (
            f"{shared}; Cohen's kappa is {self.kappa:.2f}, with {self.level:.0%} confidence between {self.low:.2f} and "
            f"{self.high:.2f} (1 is full agreement, 0 is chance)."
        )


def cohen_kappa(pairs: Sequence[tuple[str, str]], categories: Sequence[str]) -> Agreement:
    """Agreement of two reviewers over targets that both judged.

    Args:
        pairs: The first reviewer's and the second reviewer's verdict of each target.
        categories: All verdicts that could be given, in the order of the table; those that nobody gave change nothing.

    Raises:
        ServiceError: A verdict is none of the categories.
    """
    names = tuple(categories)
    table = _table(pairs, names)  # (C, C)
    n = int(table.sum())
    used = int(np.count_nonzero(table.sum(0) + table.sum(1)))
    needed = PAIRS_PER_SQUARED_CATEGORY * max(used, 2) ** 2
    counted: dict[str, Any] = {
        "pairs": n,
        "needed": needed,
        "agreed": int(np.trace(table)),
        "categories": names,
        "table": tuple(tuple(int(cell) for cell in row) for row in table),
    }
    if n < needed:
        return Agreement(**counted, reason=f"{needed} targets are needed, and {n} were judged by both.")
    if 1 in (np.count_nonzero(table.sum(0)), np.count_nonzero(table.sum(1))):
        return Agreement(
            **counted,
            reason="a reviewer gave one and the same verdict throughout, so chance alone would agree as often.",
        )
    kappa, error = _kappa_and_error(table)
    reach = float(norm.ppf((1 + LEVEL) / 2)) * error
    low = kappa - reach if counted["agreed"] < n else _low_of_full_agreement(table)
    return Agreement(**counted, kappa=kappa, error=error, low=max(-1.0, low), high=min(1.0, kappa + reach))


def _table(pairs: Sequence[tuple[str, str]], names: tuple[str, ...]) -> npt.NDArray[np.int64]:
    places = {name: index for index, name in enumerate(names)}
    table = np.zeros((len(names), len(names)), dtype=np.int64)  # (C, C)
    for first, second in pairs:
        if unknown := [verdict for verdict in (first, second) if verdict not in places]:
            raise ServiceError(f"The verdict {unknown[0]!r} is none of {', '.join(names)}; correct it.")
        table[places[first], places[second]] += 1
    return table


def _kappa_and_error(table: npt.NDArray[np.int64]) -> tuple[float, float]:
    """Kappa and its standard error (Fleiss, Cohen and Everitt 1969, Eq. 13) from counts, ``(C, C)``."""
    n = int(table.sum())
    shares = table / n  # (C, C)
    rows, columns = shares.sum(1), shares.sum(0)  # (C,)
    observed, expected = float(np.trace(shares)), float(rows @ columns)
    kappa = (observed - expected) / (1 - expected)
    on = np.diag(shares) @ ((1 - expected) - (rows + columns) * (1 - observed)) ** 2
    # A cell in row i and column j weighs the habits crosswise: how often the first says j and the second i.
    crossed = shares * (columns[:, None] + rows[None, :]) ** 2  # (C, C)
    off = (1 - observed) ** 2 * (crossed.sum() - np.trace(crossed))
    last = (observed * expected - 2 * expected + observed) ** 2
    variance = (float(on) + float(off) - last) / (n * (1 - expected) ** 4)
    return kappa, math.sqrt(max(variance, 0.0))


def _low_of_full_agreement(table: npt.NDArray[np.int64]) -> float:
    n = int(table.sum())
    expected = float((table.sum(1) / n) @ (table.sum(0) / n))
    return (clopper_pearson(n, n, LEVEL)[0] - expected) / (1 - expected)
