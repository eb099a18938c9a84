"""Outcomes made by hand, and suites small enough that their figures are known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from app.evaluate.runs import EvaluationMethod, EvaluationRequest, EvaluationView
from app.evaluate.tables import Extent, Measured, Table, measured, table_of
from app.shared.audits import AuditSettings
from coft_core.suites.base import (
    Card,
    Choices,
    Figure,
    Item,
    Likelihood,
    Outcome,
    Outside,
    Scored,
    Suite,
    Unread,
    Writing,
    Written,
)
from coft_core.suites.files import DataFolder
from coft_core.suites.multiple_choice import accuracies
from coft_core.suites.statistics import mean_figure

CARD = Card("What.", "What not.", "Criticism.", "Sizes.")
FACTS = {"right": 0, "lengths": [1, 1]}


class Questions(Suite):
    """Right where the first of two texts is the likelier one; also by subject, and a figure that judges nothing."""

    key, title, kind, main = "questions", "Questions", "utility", "accuracy"
    citation, licence, card = "Nobody 2026", "none", CARD

    def items(self, data: DataFolder) -> list[Item]:
        return []

    def figures(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> list[Figure]:
        tokens = [float(sum(text.tokens for text in outcome.scored().likelihoods)) for outcome in outcomes]
        units = [outcome.unit for outcome in outcomes]
        figures = [
            next(accuracies(outcomes, outside, "questions")),
            mean_figure("length", "Tokens of the answers", units, tokens, what="questions"),
        ]
        for subject in sorted({outcome.facts["subject"] for outcome in outcomes}):
            part = [outcome for outcome in outcomes if outcome.facts["subject"] == subject]
            figures.append(replace(next(accuracies(part, outside, "questions")), part=subject))
        return figures

    def reference(self, item: Item) -> str | None:
        ask = item.asks[0]
        assert isinstance(ask, Choices)
        return ask.texts[0]


class Harm(Suite):
    """Mean of what a judge says of written texts."""

    key, title, kind, main = "harm", "Harm", "bias", "harm"
    citation, licence, card = "Nobody 2026", "none", CARD
    judges = ("harm",)

    def items(self, data: DataFolder) -> list[Item]:
        return []

    def figures(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> list[Figure]:
        judged = [outcome.marks["harm"][0] for outcome in outcomes if "harm" in outcome.marks]
        if len(judged) < len(outcomes):
            return []
        units = [outcome.unit for outcome in outcomes]
        return [mean_figure("harm", "Mean harm", units, judged, what="texts", better="lower")]


def method(label: str, policy: str = "coft", calibrated: bool = False, **settings: Any) -> EvaluationMethod:
    return EvaluationMethod(label, AuditSettings(policy=policy, **settings), calibrated)


VANILLA, COFT = method("Vanilla", "vanilla"), method("COFT", calibrated=True)


def question(
    item: str,
    right: bool | None,
    *,
    seed: int = 0,
    unit: str = "",
    subject: str = "law",
    masked: int = 1,
    refused: int = 0,
    empty: int = 0,
) -> Outcome:
    """Two texts of three tokens, the first of which is the right answer; None makes both equally likely."""
    first = {True: -1.0, False: -3.0, None: -2.0}[right]
    texts = (Likelihood(3, first, first, 0.0, refused, empty), Likelihood(3, -2.0, -2.0))
    return Outcome(item, unit or item, {**FACTS, "subject": subject}, (Scored(texts, masked),), seed=seed)


def unread(item: str, reason: str, *, seed: int = 0) -> Outcome:
    return Outcome(item, item, {**FACTS, "subject": "law"}, (Unread(reason),), seed=seed)


def text(
    item: str,
    harm: float | None,
    *,
    seed: int = 0,
    words: str = "She left.",
    masked: int = 1,
    empty: tuple[int, ...] = (),
    tokens: int = 4,
) -> Outcome:
    """A text that a judge has read."""
    answer = Written(words, tokens, "end", empty, 0.5, masked)
    return Outcome(item, item, {}, (answer,), {"harm": (harm,)}, seed)


def view_of(*methods: EvaluationMethod, name: str = "first") -> EvaluationView:
    """An evaluation of which nothing is kept."""
    request = EvaluationRequest(name, (), methods, "tiny")
    return EvaluationView(1, name, request, datetime(2026, 1, 1, tzinfo=UTC), None, ())


class Part(NamedTuple):
    """What became of items of a suite under a method."""

    suite: str
    method: str
    outcomes: tuple[Outcome, ...]


def measured_of(
    suites: Sequence[Suite],
    methods: Sequence[EvaluationMethod],
    given: Iterable[Part],
    outside: Outside = "floor",
    extent: Extent = "all",
) -> dict[str, dict[str, Measured]]:
    found: dict[str, dict[str, list[Outcome]]] = {suite.key: {} for suite in suites}
    for part in given:
        found[part.suite].setdefault(part.method, []).extend(part.outcomes)
    return {suite.key: measured(suite, methods, found[suite.key], outside, extent) for suite in suites}


def main_table(
    suites: Sequence[Suite],
    methods: Sequence[EvaluationMethod],
    given: Iterable[Part],
    outside: Outside = "floor",
    reference: str | None = None,
) -> Table:
    """The main figure of each suite, and the average ranks over them."""
    return table_of(suites, methods, measured_of(suites, methods, given, outside, "main"), outside, reference)


def suite_table(
    suite: Suite, methods: Sequence[EvaluationMethod], given: Iterable[Part], reference: str | None = None
) -> Table:
    """All figures of one suite."""
    own = [part for part in given if part.suite == suite.key]
    found = measured_of([suite], methods, own, "floor", "table")
    return table_of([suite], methods, found, "floor", reference, suite.key)


def questions(label: str, found: Iterable[Outcome]) -> Part:
    return Part("questions", label, tuple(found))


def texts(label: str, found: Iterable[Outcome]) -> Part:
    return Part("harm", label, tuple(found))


def rights(pattern: str, seed: int = 0, **told: Any) -> list[Outcome]:
    """Questions ``q000`` and on, one a letter: ``r`` right, ``w`` wrong, ``t`` a tie."""
    return [
        question(f"q{place:03}", {"r": True, "w": False, "t": None}[letter], seed=seed, **told)
        for place, letter in enumerate(pattern)
    ]


CHOICES = Choices("Who?", (" she", " he"))
WRITING = Writing("Then", 8, ("\n",))
