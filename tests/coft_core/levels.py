"""Values that tests write down, one for each step of each context, and policies with a calibration that fits them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from coft_core.conformal.calibration import Calibration
from coft_core.conformal.part import Part
from coft_core.conformal.values import CalibrationValues
from coft_core.fingerprint import Fingerprint
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import Policy


def by_step(values: np.ndarray) -> CalibrationValues:
    """Values of one chain a context, (contexts, steps)."""
    contexts, steps = values.shape
    return CalibrationValues(values.ravel(), np.tile(np.arange(steps), contexts), np.repeat(np.arange(contexts), steps))


def flat(log_tau: float, contexts: int = 99, steps: int = 1) -> CalibrationValues:
    """The same value everywhere, which is the threshold of every level that so many contexts allow."""
    return by_step(np.full((contexts, steps), log_tau))


def own_fingerprint(
    policy: Policy, model: LanguageModel, detector: str = "none", source: str = "reference"
) -> Fingerprint:
    """What a calibration that fits a policy holds."""
    return replace(policy.fingerprint(model, detector), estimator="hierarchical", source=source)


def fitting(policy: Policy, model: LanguageModel, values: CalibrationValues, **how: Any) -> Calibration:
    """A calibration of a policy; ``how`` takes the detector, the source and how values are read."""
    own = own_fingerprint(policy, model, how.pop("detector", "none"), how.pop("source", "reference"))
    return Calibration.of(own, 0.1, values, **how)


def fitting_by_family(
    policy: Policy, model: LanguageModel, log_taus: Mapping[str, float], steps: int = 1, source: str = "reference"
) -> Calibration:
    """A calibration with one threshold for each of two families."""
    own = own_fingerprint(policy, model, source=source)
    return Calibration(0.1, tuple((family, Part(own, 0.05, flat(tau, 99, steps))) for family, tau in log_taus.items()))
