"""Answers that tests make up, with numbers that a reader can follow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from coft_core.suites.base import Figure, Item, Likelihood, Outcome, Scored


def scored(*log_p: float, tokens: Sequence[int] = (), masked: int = 0) -> Scored:
    """An answer with these log-likelihoods; texts have one token each unless said otherwise."""
    counts = tokens or [1] * len(log_p)
    return Scored(tuple(Likelihood(n, p, p) for n, p in zip(counts, log_p, strict=True)), masked)


def outcome(item: Item, *answers: Scored, seed: int = 0) -> Outcome:
    """An item with these answers, one an ask."""
    assert len(answers) == len(item.asks)
    return Outcome(item.id, item.unit, item.facts, answers, seed=seed)


def drawn(items: Iterable[Item], seed: int) -> list[Outcome]:
    """Outcomes of a model that draws every log-likelihood by lot."""
    lots = np.random.default_rng(seed)
    return [outcome(item, *(scored(*lots.normal(-20, 4, len(ask.texts))) for ask in item.asks)) for item in items]


def by_key(made: Iterable[Figure]) -> dict[tuple[str, str], Figure]:
    """Figures by key and part, each of which has to be there once."""
    figures = list(made)
    found = {(figure.key, figure.part): figure for figure in figures}
    assert len(found) == len(figures)
    return found


def values(figures: Iterable[Figure], part: str = "") -> dict[str, float | None]:
    """Values of a part by key."""
    return {figure.key: figure.value for figure in figures if figure.part == part}
