"""Outcomes that are written down by hand, and figures by key and part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from coft_core.suites.base import Figure, Item, Likelihood, Outcome, Scored, Written


def scored(*values: float, refused: Sequence[int] = ()) -> Scored:
    """An answer to choices with these log-likelihoods; of the texts at the places ``refused`` a token is refused."""
    return Scored(tuple(Likelihood(1, value, value, refused=int(i in refused)) for i, value in enumerate(values)))


def chosen(item: Item, *values: float, refused: Sequence[int] = ()) -> Outcome:
    """The outcome of an item whose texts have these log-likelihoods."""
    return Outcome(item.id, item.unit, item.facts, (scored(*values, refused=refused),))


def decided(facts: Mapping[str, Any], yes: float, no: float, unit: str = "", item: str = "") -> Outcome:
    """The outcome of a yes or no question."""
    return Outcome(item, unit or item, facts, (scored(yes, no),))


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
