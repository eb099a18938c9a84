"""The figures of suites that claims can be about."""

from __future__ import annotations

from collections.abc import Sequence

from app.shared.errors import ServiceError
from coft_core.suites.base import Figure, Outcome, Suite
from coft_core.suites.registry import SUITES
from coft_core.suites.statistics import made_with


def suite_of(where: str, key: str) -> Suite:
    """The suite of a key."""
    known = {suite.key: suite for suite in SUITES}
    if key not in known:
        raise ServiceError(f"{where}: there is no suite {key!r}; the suites are {', '.join(known)}.")
    return known[key]


def figures_of(suite: Suite, outcomes: Sequence[Outcome]) -> dict[str, Figure]:
    """Figures of the whole suite by key, with the values of items where they are means."""
    with made_with("items"):
        return {figure.key: figure for figure in suite.figures(outcomes) if not figure.part}


def require_figure(where: str, suite: Suite, key: str, known: Sequence[str] = ()) -> None:
    """Refuse a figure that a suite does not have; which ones its judges give shows in outcomes only."""
    names = known or list(figures_of(suite, ()))
    if key not in names and (known or not suite.judges):
        raise ServiceError(f"{where}: {suite.key} has no figure {key!r}; it has {', '.join(names)}.")
