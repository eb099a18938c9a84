"""What methods make of suites: figures of stored outcomes, in an order of items that does not depend on theirs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from app.evaluate.runs import EvaluationMethod, SuiteOutcomes
from coft_core.suites.base import Figure, Outcome, Outside, Suite

Figures = Mapping[tuple[str, str], Figure]
"""Figures of a suite by key and part."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A method on a suite: figures of what it read, and of the items that every method read.

    Attributes:
        outcomes: All of them, sorted.
        own: Figures of what it read, all seeds together.
        own_by_seed: The same by seed.
        shared: Figures of what every method read.
        shared_by_seed: The same by seed.
        compared: Items that every method read.
    """

    outcomes: tuple[Outcome, ...]
    own: Figures
    own_by_seed: Mapping[int, Figures]
    shared: Figures
    shared_by_seed: Mapping[int, Figures]
    compared: int


def measured_by_suite(
    suites: Sequence[Suite], methods: Sequence[EvaluationMethod], given: Iterable[SuiteOutcomes], outside: Outside
) -> dict[str, dict[str, Measured]]:
    """What was measured, by suite and method; methods without outcomes are left out."""
    found: dict[tuple[str, str], list[Outcome]] = {}
    for part in given:
        found.setdefault((part.suite, part.method), []).extend(part.outcomes)
    return {
        suite.key: _measured(
            suite,
            {method.label: own for method in methods if (own := found.get((suite.key, method.label)))},
            outside,
        )
        for suite in suites
    }


def _measured(suite: Suite, given: Mapping[str, Sequence[Outcome]], outside: Outside) -> dict[str, Measured]:
    # Units are drawn in the order in which they first appear, so that a fixed order makes figures of the same items
    # the same, and those of different methods paired.
    ordered = {label: tuple(sorted(outcomes, key=_place)) for label, outcomes in given.items()}
    read = {label: [outcome for outcome in outcomes if not outcome.unread] for label, outcomes in ordered.items()}
    together = [{_place(outcome) for outcome in outcomes} for outcomes in read.values() if outcomes]
    common = set.intersection(*together) if together else set()
    measured = {}
    for label, outcomes in ordered.items():
        own, own_by_seed = _figures(suite, read[label], outside), _by_seed(suite, read[label], outside)
        shared, shared_by_seed = own, own_by_seed
        if len(common) < len(read[label]):
            both = [outcome for outcome in read[label] if _place(outcome) in common]
            shared, shared_by_seed = _figures(suite, both, outside), _by_seed(suite, both, outside)
        measured[label] = Measured(outcomes, own, own_by_seed, shared, shared_by_seed, len(common))
    return measured


def _place(outcome: Outcome) -> tuple[str, str, int]:
    return outcome.unit, outcome.item, outcome.seed


def _figures(suite: Suite, outcomes: Sequence[Outcome], outside: Outside) -> Figures:
    figures = suite.figures(outcomes, outside) if outcomes else []
    return {(figure.key, figure.part): figure for figure in figures}


def _by_seed(suite: Suite, outcomes: Sequence[Outcome], outside: Outside) -> Mapping[int, Figures]:
    seeds = sorted({outcome.seed for outcome in outcomes})
    return {seed: _figures(suite, [outcome for outcome in outcomes if outcome.seed == seed], outside) for seed in seeds}
