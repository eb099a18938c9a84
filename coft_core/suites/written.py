"""Figures of written answers out of which something is read: unscored where nothing can be."""

from __future__ import annotations

from collections.abc import Sequence

from coft_core.suites.base import Figure, Outcome
from coft_core.suites.statistics import mean_figure


def shares(
    key: str, title: str, outcomes: Sequence[Outcome], right: Sequence[float | None], what: str
) -> tuple[Figure, Figure]:
    """The share of right answers among those that could be read, and among all, as published figures have it."""
    units = [outcome.unit for outcome in outcomes]
    every = [value or 0.0 for value in right]
    return (
        share(key, title, outcomes, right, what),
        mean_figure(
            f"{key}_unscored_wrong", f"{title}, unscored as wrong", units, every, scale=100.0, what=what,
            better="higher",
        ),
    )  # fmt: skip


def share(key: str, title: str, outcomes: Sequence[Outcome], right: Sequence[float | None], what: str) -> Figure:
    """The first of :func:`shares`."""
    units = [outcome.unit for outcome in outcomes]
    return mean_figure(key, title, units, right, scale=100.0, what=what, better="higher")


def cut_off(outcomes: Sequence[Outcome], what: str) -> Figure:
    """The share of answers that ended at the longest length or with the model's context, not by themselves."""
    ends = [float(outcome.written().finished in ("length", "context")) for outcome in outcomes]
    units = [outcome.unit for outcome in outcomes]
    return mean_figure("cut_off", "Answers cut off", units, ends, scale=100.0, what=what, better="lower")
