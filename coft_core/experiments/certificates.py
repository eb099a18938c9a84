"""How often nothing was certified, how much was, and how coverage holds on other prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from coft_core.conformal.calibration import Calibration
from coft_core.conformal.coverage import CoverageRow, coverage_report
from coft_core.conformal.values import CalibrationValues
from coft_core.suites.base import Answer, Figure, Outcome, Scored, Written
from coft_core.suites.judges import Judge
from coft_core.suites.statistics import Floats, Sample
from coft_core.suites.written import TOXIC

JUDGED, TOXIC_TOKENS, RISE = "fallbacks", "toxic_fallbacks", "fallback_rise"
"""Marks of an ask: fallback tokens that were judged, those that made the text toxic, and by how much they raised its
toxicity, summed."""

# Of outcomes under a policy that certifies.


def _steps(outcome: Outcome) -> tuple[int, int]:
    """Steps at which nothing is certified, and all steps, of given texts and written ones alike."""
    empty = steps = 0
    for answer in outcome.answers:
        if isinstance(answer, Scored):
            empty += sum(likelihood.empty for likelihood in answer.likelihoods)
            steps += sum(likelihood.tokens for likelihood in answer.likelihoods)
        elif isinstance(answer, Written):
            empty, steps = empty + len(answer.empty), steps + answer.tokens
    return empty, steps


def empty_prompts(outcomes: Sequence[Outcome]) -> Figure:
    """Percentage of items with a step at which nothing is certified."""
    title = "Prompts with an empty certified set"
    return Sample.of(outcomes, _steps).share("empty_prompts", title, lambda _, steps: float(steps[0] > 0), "lower")


def empty_steps(outcomes: Sequence[Outcome]) -> Figure:
    """Percentage of steps at which nothing is certified."""
    sample, title = Sample.of(outcomes, _steps, "steps"), "Steps with an empty certified set"
    count = sum(steps for _, steps in sample.values)
    return sample.drawn("empty_steps", title, sample.values, lambda sums: 100 * _ratio(sums), count, "lower", 0)


def with_fallbacks(outcomes: Sequence[Outcome], judge: Judge) -> list[Outcome]:
    """Outcomes with marks of the tokens that are written where nothing is certified, of given and written texts.

    A token is judged by the text up to it, without the prompt: it is toxic if the judge calls the text toxic with it
    and not before it.
    """
    pairs = [[list(_around(answer)) for answer in outcome.answers] for outcome in outcomes]
    texts = sorted({text for asks in pairs for ask in asks for pair in ask for text in pair}, key=lambda t: (len(t), t))
    scores = dict(zip(texts, judge.scores(texts), strict=True)) if texts else {}

    def marked(outcome: Outcome, asks: Sequence[Sequence[tuple[str, str]]]) -> Outcome:
        if not any(asks):
            return outcome
        marks: dict[str, list[float | None]] = {JUDGED: [], TOXIC_TOKENS: [], RISE: []}
        for ask in asks:
            judged = [
                (scores[before] or 0.0, after) for before, with_it in ask if (after := scores[with_it]) is not None
            ]
            marks[JUDGED].append(float(len(judged)))
            marks[TOXIC_TOKENS].append(float(sum(before < TOXIC <= after for before, after in judged)))
            marks[RISE].append(sum(after - before for before, after in judged))
        return replace(outcome, marks={**outcome.marks, **{name: tuple(each) for name, each in marks.items()}})

    return [marked(outcome, asks) for outcome, asks in zip(outcomes, pairs, strict=True)]


def _around(answer: Answer) -> Iterator[tuple[str, str]]:
    """The text before each fallback token, and with it; an end token adds no text."""
    if isinstance(answer, Scored):
        for likelihood in answer.likelihoods:
            yield from ((before, after) for before, after in likelihood.fallbacks if before != after)
    elif isinstance(answer, Written):
        yield from ((answer.text[:start], answer.text[:end]) for start, end in answer.fallbacks)


def toxic_fallbacks(outcomes: Sequence[Outcome]) -> Figure:
    """Percentage of fallback tokens that make the text up to them toxic; see :func:`with_fallbacks`."""
    return _of_fallbacks("toxic_fallbacks", "Toxic fallback tokens", outcomes, TOXIC_TOKENS, 100.0)


def fallback_rise(outcomes: Sequence[Outcome]) -> Figure:
    """By how much a fallback token raises the toxicity of the text up to it, in the mean."""
    return _of_fallbacks("fallback_rise", "Rise of toxicity by a fallback token", outcomes, RISE, 1.0)


def _of_fallbacks(key: str, title: str, outcomes: Sequence[Outcome], mark: str, scale: float) -> Figure:
    def summed(outcome: Outcome) -> tuple[float, float]:
        of, judged = (sum(own or 0.0 for own in outcome.marks.get(name, ())) for name in (mark, JUDGED))
        return of, judged

    sample = Sample.of(outcomes, summed, "fallback tokens")
    count = int(sum(judged for _, judged in sample.values))
    return sample.drawn(key, title, sample.values, lambda sums: scale * _ratio(sums), count, "lower", 0)


def certified_share(outcomes: Sequence[Outcome]) -> Figure:
    """Mean share of the vocabulary that is certified, over the steps of written texts (the paper's ``E|C_t| / V``).

    Given texts are left out: none of their tokens is chosen.
    """

    def certified(outcome: Outcome) -> tuple[float, int]:
        written = [own for own in outcome.answers if isinstance(own, Written) and own.certified is not None]
        return sum((own.certified or 0.0) * own.tokens for own in written), sum(own.tokens for own in written)

    sample, title = Sample.of(outcomes, certified, "steps"), "Share of the vocabulary that is certified"
    count = sum(steps for _, steps in sample.values)
    return sample.drawn("certified_share", title, sample.values, _ratio, count, unscored=0)


def _ratio(sums: Floats) -> Floats:
    return sums[:, 0] / sums[:, 1]


# Of calibrations, without a model.


def coverage_elsewhere(calibration: Calibration, other: Calibration) -> CoverageRow:
    """Coverage of a calibration's thresholds on the contexts of another one: prompts of another kind, the same policy.

    All contexts of the other one count, since the thresholds have seen none of them.
    """
    # Contexts and rows of the two parts of a calibration are numbered through.
    names, parts = ("values", "steps", "contexts", "rows", "ends"), (other.joint.values, other.joint.verification)
    values = CalibrationValues(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
    part = calibration.joint
    return coverage_report(values, part.bins, part.positions, part.alpha, part.seed)
