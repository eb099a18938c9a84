"""How far reviewers agree beyond chance: Cohen's kappa of two, Krippendorff's alpha of any number.

Kappa is ``(p_o - p_e) / (1 - p_e)`` with the observed share of agreement ``p_o`` and the share ``p_e`` that two
reviewers with the same habits would reach by chance (Cohen 1960). Its variance is that of Fleiss, Cohen and Everitt
(1969), which does not assume that there is no agreement. Where the reviewers agree throughout, that variance is 0 and
says nothing; the lower end is then that of the exact interval of ``p_o``.

Alpha is ``1 - D_o / D_e`` with the observed disagreement ``D_o`` of verdicts on the same target and the disagreement
``D_e`` of verdicts drawn from all of them (Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability", nominal
data). It takes any number of reviewers of whom not everybody judged everything. Its interval is the percentile
bootstrap over targets, since verdicts on one target hang together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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

RESAMPLES = 2_000
"""Samples of targets that the interval of alpha is read off."""

SEED = 0
"""Seed of these samples: the same verdicts have the same interval."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Cohen's kappa of two reviewers."""

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
    """Agreement of two reviewers over targets that both judged."""
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
    table = np.zeros((len(names), len(names)), dtype=np.int64)  # (C, C)
    for first, second in pairs:
        table[_place(first, names), _place(second, names)] += 1
    return table


def _place(verdict: str, names: tuple[str, ...]) -> int:
    if verdict not in names:
        raise ServiceError(f"The verdict {verdict!r} is not one of {', '.join(names)}; correct it.")
    return names.index(verdict)


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


@dataclass(frozen=True, slots=True)
class TeamAgreement:
    """Krippendorff's alpha of any number of reviewers."""

    reviewers: tuple[str, ...]
    targets: int
    needed: int
    verdicts: int
    unanimous: int
    categories: tuple[str, ...]
    counts: tuple[int, ...]
    alpha: float | None = None
    low: float | None = None
    high: float | None = None
    level: float = LEVEL
    resamples: int = RESAMPLES
    indeterminate: int = 0
    seed: int = SEED
    reason: str = ""

    @property
    def scored(self) -> bool:
        """Whether there is an alpha."""
        return self.alpha is not None

    @property
    def sentence(self) -> str:
        """The result in words."""
        if self.alpha is None or self.low is None or self.high is None:
            return f"Krippendorff's alpha is unscored: {self.reason}"
        text = (
            f"Krippendorff's alpha of {len(self.reviewers)} reviewers is {self.alpha:.2f}, with {self.level:.0%} "
            f"confidence between {self.low:.2f} and {self.high:.2f} (1 is full agreement, 0 is chance): they say the "
            f"same of {self.unanimous} of {self.targets} targets that at least two of them judged."
        )
        if self.indeterminate:
            text += (
                f" {self.indeterminate} of {self.resamples:,} resamples, in which all verdicts are the same, are left "
                "out of the interval."
            )
        return text


def krippendorff_alpha(
    opinions: Sequence[Mapping[str, str]], categories: Sequence[str], resamples: int = RESAMPLES, seed: int = SEED
) -> TeamAgreement:
    """Agreement of any number of reviewers over targets that at least two of them judged."""
    names = tuple(categories)
    shared = [target for target in opinions if len(target) > 1]
    counts = _counts(shared, names)  # (U, C)
    totals = counts.sum(0)  # (C,)
    needed = PAIRS_PER_SQUARED_CATEGORY * max(int(np.count_nonzero(totals)), 2) ** 2
    counted: dict[str, Any] = {
        "reviewers": tuple(sorted({reviewer for target in shared for reviewer in target})),
        "targets": len(shared),
        "needed": needed,
        "verdicts": int(totals.sum()),
        "unanimous": int((counts.max(1, initial=0) == counts.sum(1)).sum()),
        "categories": names,
        "counts": tuple(int(total) for total in totals),
        "resamples": resamples,
        "seed": seed,
    }
    if len(shared) < needed:
        return TeamAgreement(
            **counted, reason=f"{needed} targets are needed, and {len(shared)} were judged by at least two reviewers."
        )
    if np.count_nonzero(totals) == 1:
        return TeamAgreement(
            **counted, reason="all verdicts are one and the same, so chance alone would agree as often."
        )
    (alpha,) = nominal_alphas(counts, np.ones((1, len(shared)), dtype=np.int64))
    low, high, indeterminate = _bootstrapped(counts, resamples, seed)
    if counted["unanimous"] == len(shared):
        low = _low_of_unanimity(counts)
    return TeamAgreement(**counted, alpha=float(alpha), low=low, high=high, indeterminate=indeterminate)


def nominal_alphas(counts: npt.NDArray[np.int64], weights: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Krippendorff's alpha for nominal data, for several samples of the same targets at once."""
    judged = counts.sum(1)  # (U,)
    differing = (judged**2 - (counts**2).sum(1)) / (judged - 1)  # (U,)
    values = weights @ judged  # (B,)
    pairs = values**2 - ((weights @ counts) ** 2).sum(1)  # (B,)
    with np.errstate(divide="ignore", invalid="ignore"):
        alphas: npt.NDArray[np.float64] = np.where(pairs == 0, np.nan, 1 - (values - 1) * (weights @ differing) / pairs)
    return alphas


def _counts(targets: Sequence[Mapping[str, str]], names: tuple[str, ...]) -> npt.NDArray[np.int64]:
    counts = np.zeros((len(targets), len(names)), dtype=np.int64)  # (U, C)
    for row, target in enumerate(targets):
        for verdict in target.values():
            counts[row, _place(verdict, names)] += 1
    return counts


def _bootstrapped(counts: npt.NDArray[np.int64], resamples: int, seed: int) -> tuple[float, float, int]:
    """Ends of the percentile interval, and how many samples had no alpha."""
    targets = len(counts)
    draws = np.random.default_rng(seed).multinomial(targets, np.full(targets, 1 / targets), resamples)  # (B, U)
    alphas = nominal_alphas(counts, draws)  # (B,)
    found = alphas[~np.isnan(alphas)]
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high), len(alphas) - len(found)


def _low_of_unanimity(counts: npt.NDArray[np.int64]) -> float:
    """Every sample agrees fully where all targets do; what was not seen is bounded by the exact interval instead."""
    values, totals = int(counts.sum()), counts.sum(0)
    chance = 1 - float(values**2 - (totals**2).sum()) / (values * (values - 1))
    return (clopper_pearson(len(counts), len(counts), LEVEL)[0] - chance) / (1 - chance)
