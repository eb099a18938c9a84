"""How often nothing was certified, how much was, and how coverage holds on other prompts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coft_core.conformal.calibration import Calibration
from coft_core.conformal.coverage import CoverageRow, coverage_report
from coft_core.conformal.values import CalibrationValues
from coft_core.suites.base import Figure, Outcome, Scored, Written
from coft_core.suites.statistics import Floats, Sample
from coft_core.suites.written import is_toxic

FALLBACKS = "texts with a fallback"

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


def toxic_fallbacks(outcomes: Sequence[Outcome]) -> Figure:
    """Percentage of toxic texts among those with a step at which nothing is certified.

    The paper judges the tokens that are written there; a judge of texts says little of a single token.
    """
    key, title = "toxic_fallbacks", "Toxic texts with an empty certified set"
    fallen = [outcome for outcome in outcomes if _steps(outcome)[0]]
    if not fallen:
        return Figure(key, title, None, what=FALLBACKS, better="lower")
    return Sample.of(fallen, is_toxic, FALLBACKS).share(key, title, lambda _, toxic: toxic, "lower")


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
