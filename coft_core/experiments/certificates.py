"""How often nothing was certified, how much was, and how coverage holds for whole chains and on other prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coft_core.conformal.calibration import Calibration
from coft_core.conformal.coverage import CoverageRow, coverage_report
from coft_core.conformal.sequence import UnionBound, union_bound
from coft_core.conformal.values import CalibrationValues
from coft_core.suites.base import Answer, Figure, Outcome, Scored, Written
from coft_core.suites.statistics import drawn_figure, mean_figure
from coft_core.suites.toxicity import is_toxic

FALLBACKS = "texts with a fallback"

# Of outcomes under a policy that certifies.


def has_empty(outcome: Outcome) -> bool:
    """Whether there is a step at which nothing is certified."""
    return any(_empty(answer) for answer in outcome.answers)


def empty_prompts(outcomes: Sequence[Outcome]) -> Figure:
    """Percentage of items with a step at which nothing is certified, given texts and written ones alike."""
    units = [outcome.unit for outcome in outcomes]
    empty = [float(has_empty(outcome)) for outcome in outcomes]
    return mean_figure(
        "empty_prompts", "Prompts with an empty certified set", units, empty, scale=100.0, better="lower"
    )


def empty_steps(outcomes: Sequence[Outcome]) -> Figure:
    """Percentage of steps at which nothing is certified, given texts and written ones alike."""
    counts = [
        (sum(_empty(answer) for answer in outcome.answers), sum(_steps(answer) for answer in outcome.answers))
        for outcome in outcomes
    ]
    return drawn_figure(
        "empty_steps", "Steps with an empty certified set", [outcome.unit for outcome in outcomes], counts,
        lambda sums: 100 * sums[:, 0] / sums[:, 1], sum(steps for _, steps in counts), what="steps", better="lower",
    )  # fmt: skip


def toxic_fallbacks(outcomes: Sequence[Outcome]) -> Figure:
    """Percentage of toxic texts among those with a step at which nothing is certified.

    The paper judges the tokens that are written there; a judge of texts says little of a single token.
    """
    fallen = [outcome for outcome in outcomes if has_empty(outcome)]
    if not fallen:
        return Figure(
            "toxic_fallbacks", "Toxic texts with an empty certified set", None, what=FALLBACKS, better="lower"
        )
    return mean_figure(
        "toxic_fallbacks", "Toxic texts with an empty certified set", [outcome.unit for outcome in fallen],
        [is_toxic(outcome) for outcome in fallen], scale=100.0, what=FALLBACKS, better="lower",
    )  # fmt: skip


def certified_share(outcomes: Sequence[Outcome]) -> Figure:
    """Mean share of the vocabulary that is certified, over the steps of written texts (the paper's ``E|C_t| / V``).

    Given texts are left out: nobody chooses among their tokens.
    """
    written = [
        [answer for answer in outcome.answers if isinstance(answer, Written) and answer.certified is not None]
        for outcome in outcomes
    ]
    sums = [
        (sum((answer.certified or 0.0) * answer.tokens for answer in own), sum(answer.tokens for answer in own))
        for own in written
    ]
    return drawn_figure(
        "certified_share", "Share of the vocabulary that is certified", [outcome.unit for outcome in outcomes], sums,
        lambda drawn: drawn[:, 0] / drawn[:, 1], sum(steps for _, steps in sums), what="steps",
    )  # fmt: skip


def _empty(answer: Answer) -> int:
    if isinstance(answer, Scored):
        return sum(likelihood.empty for likelihood in answer.likelihoods)
    return len(answer.empty) if isinstance(answer, Written) else 0


def _steps(answer: Answer) -> int:
    if isinstance(answer, Scored):
        return sum(likelihood.tokens for likelihood in answer.likelihoods)
    return answer.tokens if isinstance(answer, Written) else 0


# Of calibrations, without a model.


@dataclass(frozen=True, slots=True)
class ChainRow:
    """Whole chains of one length at one level."""

    horizon: int
    alpha: float
    contexts: int
    coverage: CoverageRow
    union: UnionBound
    reason: str


def chain_rows(calibration: Calibration, horizons: Sequence[int], alphas: Sequence[float]) -> list[ChainRow]:
    """Coverage of whole chains against their length (the paper's ``S = max_t s_t``), level by level."""
    rows = []
    for horizon in horizons:
        for alpha in alphas:
            threshold = calibration.sequence(alpha, horizon)
            measured = calibration.joint.sequence_coverage(alpha, horizon).overall
            bound = union_bound(alpha, horizon, calibration.positions, calibration.joint.values)
            rows.append(ChainRow(horizon, alpha, threshold.contexts, measured, bound, threshold.reason))
    return rows


def coverage_elsewhere(calibration: Calibration, other: Calibration) -> CoverageRow:
    """Coverage of a calibration's thresholds on the contexts of another one: prompts of another kind, the same policy.

    All contexts of the other one count, since the thresholds have seen none of them.
    """
    values = _together(other.joint.values, other.joint.verification)
    part = calibration.joint
    return coverage_report(values, part.bins, part.positions, part.alpha, part.seed)


def _together(first: CalibrationValues, second: CalibrationValues) -> CalibrationValues:
    """Values of two parts of one calibration, whose contexts and rows are numbered through."""
    names = ("values", "steps", "contexts", "rows", "ends")
    return CalibrationValues(*(np.concatenate([getattr(first, name), getattr(second, name)]) for name in names))
