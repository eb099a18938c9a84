"""Shift weights of calibration prompts: given row by row, or estimated from prompts like those that will be audited."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.services.calibration.store import AnyCalibration
from app.services.errors import ServiceError
from app.services.prompts.files import PromptRow
from app.services.views import CalibrationRequest
from coft_core.conformal.density_ratio import estimate_density_ratio
from coft_core.conformal.quantile import minimum_contexts
from coft_core.conformal.shift import EFFECTIVE_FLOOR, Shift, weights_by_context
from coft_core.conformal.split import context_numbers


@dataclass(frozen=True, slots=True)
class ContextWeights:
    """Weight of each context.

    Attributes:
        by_context: Weight by the context's number.
        test_weight: Weight of a new prompt; None takes the largest weight.
        estimated: Whether they were estimated.
    """

    by_context: dict[int, float]
    test_weight: float | None = None
    estimated: bool = False

    def require_effective(self, alpha: float) -> None:
        """Refuse weights under which all contexts together, those kept apart included, are worth too little.

        Raises:
            InvalidInputError: They are; the finished calibration would refuse them.
        """
        shift = Shift.weighted(self.by_context, self.test_weight, self.estimated)
        shift.require_effective(np.array(sorted(self.by_context)), max(EFFECTIVE_FLOOR, minimum_contexts(alpha)))


def asked_weights(rows: Sequence[PromptRow], request: CalibrationRequest) -> ContextWeights | None:
    """The weights that a request asks for; None if it asks for none.

    Raises:
        ServiceError: The rows have no weights.
        InvalidInputError: There are too few prompts to estimate weights, or rows of one context differ in theirs.
    """
    if request.weighting == "none":
        return None
    numbers = context_numbers([row.example for row in rows], request.by_group)
    if request.weighting == "estimated":
        return estimated_weights([row.example.prompt for row in rows], numbers, request.deployment)
    given = [row.weight for row in rows if row.weight is not None]
    if len(given) != len(rows):
        raise ServiceError("The prompt set has no column of weights; add one, or choose other weights.")
    return ContextWeights(weights_by_context(given, numbers))


def estimated_weights(prompts: Sequence[str], contexts: Sequence[int], deployment: Sequence[str]) -> ContextWeights:
    """Estimate how much likelier each context is in the deployment.

    A context of several prompts weighs the mean of their ratios.

    Args:
        prompts: Calibration prompts.
        contexts: Their contexts' numbers.
        deployment: Prompts like those that will be audited; blank ones do not count.

    Raises:
        InvalidInputError: There are too few prompts on either side.
    """
    ratio = estimate_density_ratio(prompts, [prompt for prompt in deployment if prompt.strip()])
    found: defaultdict[int, list[float]] = defaultdict(list)
    for context, weight in zip(contexts, ratio.weights.tolist(), strict=True):
        found[context].append(weight)
    by_context = {context: sum(weights) / len(weights) for context, weights in found.items()}
    return ContextWeights(by_context, ratio.test_weight, estimated=True)


def weighted(calibration: AnyCalibration, weights: ContextWeights) -> AnyCalibration:
    """Thresholds for the prompts that weights speak of.

    Raises:
        InvalidInputError: The weights leave too few effective contexts, with factorized masks for any family.
    """
    return calibration.reweighted(weights.by_context, weights.test_weight, weights.estimated)
