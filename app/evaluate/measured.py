"""What methods make of suites: figures of stored outcomes, in an order of items that does not depend on theirs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from app.evaluate.runs import EvaluationMethod, SuiteOutcomes
from app.shared.policies import certifies
from coft_core.suites.base import Figure, Outcome, Outside, Scored, Suite, Unread, Written
from coft_core.suites.statistics import Detail, made_with

Figures = Mapping[tuple[str, str], Figure]
"""Figures of a suite by key and part."""

Extent = Literal["main", "table", "all"]
"""Which figures are made: the main one, whose ranks by seed are told; all, with values alone by seed; or all, each with
its interval by seed too."""

_BY_SEED: Mapping[Extent, Detail] = {"main": "draws", "table": "value", "all": "interval"}


@dataclass(frozen=True, slots=True)
class SuiteReading:
    """How one method read the items of a suite, over all seeds."""

    suite: str
    title: str
    items: int
    unread: int
    reasons: tuple[tuple[str, int], ...]
    compared: int
    unmasked: float | None
    refused: float | None
    empty: float | None
    writes: bool
    seeds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """A method on a suite: figures of what it read, and of the items that every method read."""

    outcomes: tuple[Outcome, ...]
    own: Figures
    own_by_seed: Mapping[int, Figures]
    shared: Figures
    shared_by_seed: Mapping[int, Figures]
    reading: SuiteReading


def measured_by_suite(
    suites: Sequence[Suite],
    methods: Sequence[EvaluationMethod],
    given: Iterable[SuiteOutcomes],
    outside: Outside,
    extent: Extent = "all",
) -> dict[str, dict[str, Measured]]:
    """What was measured, by suite and method; methods without outcomes are left out."""
    found: dict[tuple[str, str], list[Outcome]] = {}
    for part in given:
        found.setdefault((part.suite, part.method), []).extend(part.outcomes)
    return {
        suite.key: measured(
            suite,
            methods,
            {method.label: own for method in methods if (own := found.get((suite.key, method.label)))},
            outside,
            extent,
        )
        for suite in suites
    }


def measured(
    suite: Suite,
    methods: Sequence[EvaluationMethod],
    given: Mapping[str, Sequence[Outcome]],
    outside: Outside,
    extent: Extent,
) -> dict[str, Measured]:
    """What was measured on one suite, by method; ``given`` are outcomes by method, where there are any."""
    # Units are drawn in the order in which they first appear, so that a fixed order makes figures of the same items
    # the same, and those of different methods paired.
    ordered = {label: tuple(sorted(outcomes, key=_place)) for label, outcomes in given.items()}
    reasons = {label: [outcome.unread for outcome in outcomes] for label, outcomes in ordered.items()}
    read = {
        label: [outcome for outcome, reason in zip(outcomes, reasons[label], strict=True) if not reason]
        for label, outcomes in ordered.items()
    }
    together = [{_place(outcome) for outcome in outcomes} for outcomes in read.values() if outcomes]
    common = set.intersection(*together) if together else set()
    certifying = {method.label: certifies_tokens(method) for method in methods}
    found = {}
    for label, outcomes in ordered.items():
        own, own_by_seed = _figures(suite, read[label], outside, extent)
        shared, shared_by_seed = own, own_by_seed
        if len(common) < len(read[label]):
            both = [outcome for outcome in read[label] if _place(outcome) in common]
            shared, shared_by_seed = _figures(suite, both, outside, extent)
        reading = _reading(suite, reasons[label], read[label], outcomes, len(common), certifying[label])
        found[label] = Measured(outcomes, own, own_by_seed, shared, shared_by_seed, reading)
    return found


def certifies_tokens(method: EvaluationMethod) -> bool:
    """Whether a method certifies its tokens."""
    return method.calibrated and certifies(method.settings)


def _place(outcome: Outcome) -> tuple[str, str, int]:
    return outcome.unit, outcome.item, outcome.seed


def _figures(
    suite: Suite, outcomes: Sequence[Outcome], outside: Outside, extent: Extent
) -> tuple[Figures, Mapping[int, Figures]]:
    """Figures of outcomes, and of those of each seed."""

    def made(given: Sequence[Outcome]) -> Figures:
        figures: Iterable[Figure | None] = ()
        if given:
            figures = [suite.main_figure(given, outside)] if extent == "main" else suite.figures(given, outside)
        return {(figure.key, figure.part): figure for figure in figures if figure is not None}

    whole, seeds = made(outcomes), sorted({outcome.seed for outcome in outcomes})
    with made_with(_BY_SEED[extent]):
        return whole, {seed: made([outcome for outcome in outcomes if outcome.seed == seed]) for seed in seeds}


def _reading(
    suite: Suite,
    reasons: Sequence[str],
    read: Sequence[Outcome],
    outcomes: Sequence[Outcome],
    compared: int,
    certifying: bool,
) -> SuiteReading:
    counted = Counter(reason for reason in reasons if reason)
    answers = [answer for outcome in read for answer in outcome.answers]
    texts = [likelihood for answer in answers if isinstance(answer, Scored) for likelihood in answer.likelihoods]
    written = [answer for answer in answers if isinstance(answer, Written)]
    given = sum(text.tokens for text in texts)
    steps = given + sum(answer.tokens for answer in written)
    empty = sum(text.empty for text in texts) + sum(len(answer.empty) for answer in written)
    untouched = sum(not any(own.masked for own in outcome.answers if not isinstance(own, Unread)) for outcome in read)
    return SuiteReading(
        suite.key,
        suite.title,
        len(outcomes),
        len(outcomes) - len(read),
        tuple(sorted(counted.items(), key=lambda item: (-item[1], item[0]))),
        compared,
        untouched / len(read) if read else None,
        sum(text.refused for text in texts) / given if certifying and given else None,
        empty / steps if certifying and steps else None,
        bool(written),
        tuple(sorted({outcome.seed for outcome in outcomes})),
    )
