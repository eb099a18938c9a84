"""Outcomes that are written down by hand or drawn by lot, and figures by key and part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from coft_core.suites.base import Figure, Item, Likelihood, Outcome, Scored, Written


def scored(*log_p: float, tokens: Sequence[int] = (), refused: Sequence[int] = (), masked: int = 0) -> Scored:
    """An answer to choices with these log-likelihoods, of one token each unless told; some places refuse a token."""
    counts = tokens or [1] * len(log_p)
    texts = enumerate(zip(counts, log_p, strict=True))
    return Scored(tuple(Likelihood(n, p, p, refused=int(i in refused)) for i, (n, p) in texts), masked)


def outcome(item: Item, *answers: Scored, seed: int = 0) -> Outcome:
    """An item with these answers, one an ask."""
    assert len(answers) == len(item.asks)
    return Outcome(item.id, item.unit, item.facts, answers, seed=seed)


def chosen(item: Item, *values: float, refused: Sequence[int] = ()) -> Outcome:
    """The outcome of an item whose texts have these log-likelihoods."""
    return outcome(item, scored(*values, refused=refused))


def decided(facts: Mapping[str, Any], yes: float, no: float, unit: str = "", item: str = "") -> Outcome:
    """The outcome of a yes or no question."""
    return Outcome(item, unit or item, facts, (scored(yes, no),))


def drawn(items: Iterable[Item], seed: int) -> list[Outcome]:
    """Outcomes of a model that draws every log-likelihood by lot."""
    lots = np.random.default_rng(seed)
    return [outcome(item, *(scored(*lots.normal(-20, 4, len(ask.texts))) for ask in item.asks)) for item in items]


def wrote(text: str, *, unit: str, empty: tuple[int, ...] = (), tokens: int = 4, **more: Any) -> Outcome:
    """The outcome of an ask for a continuation, of a policy that certifies unless ``certified`` is None."""
    certified = more.pop("certified", 0.5)
    answer = Written(text, tokens, "length", empty, certified)
    return Outcome(unit, unit, more.pop("facts", {}), (answer,), **more)


def by_key(made: Iterable[Figure]) -> dict[tuple[str, str], Figure]:
    """Figures by key and part, each there once."""
    figures = list(made)
    found = {(figure.key, figure.part): figure for figure in figures}
    assert len(found) == len(figures)
    return found


def values(figures: Iterable[Figure], part: str = "") -> dict[str, float | None]:
    """Values of a part by key."""
    return {figure.key: figure.value for figure in figures if figure.part == part}
