"""Calibration of the factual reading alone, for methods that certify in one branch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

from coft_core.conformal.calibration import Calibration
from coft_core.conformal.calibrator import calibrate_many
from coft_core.conformal.options import CalibrationOptions
from coft_core.engine.model import LanguageModel
from coft_core.fingerprint import SINGLE_BRANCH
from coft_core.types import Example


def calibrate_single_branch(
    model: LanguageModel,
    examples: Sequence[Example],
    alpha: float = 0.1,
    estimator: str = "hierarchical",
    **options: Unpack[CalibrationOptions],
) -> Calibration:
    """Calibrate the log-probability of the true next token in the factual reading, on given references.

    Nothing is masked, so that both readings are the factual one and its log-probability is its own joint support.

    Args:
        model: The model.
        examples: Prompts with references; their spans are not looked at.
        alpha: Risk level.
        estimator: ``"hierarchical"``, ``"one_per_context"`` or ``"pooled"``.
        options: See :class:`CalibrationOptions`.

    Returns:
        A calibration that serves only methods that certify in the factual branch.

    Raises:
        InvalidInputError: As :func:`coft_core.calibrate_many` does.
    """
    plain = [replace(example, spans=()) for example in examples]
    (made,) = calibrate_many(model, plain, [0.0], alpha, estimator, **options)
    return replace(made, fingerprint=replace(made.fingerprint, method=SINGLE_BRANCH))
