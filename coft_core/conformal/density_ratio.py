"""Shift weights estimated from prompts: logistic regression that tells deployment prompts from calibration prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from coft_core.conformal.weighted import effective_size
from coft_core.errors import InvalidInputError

LEAST_PROMPTS = 20
"""Prompts that either side needs; with fewer, a regression separates anything."""

HASHED_WORDS = 4096
FOLDS = 5
PENALTIES = (0.1, 1.0, 10.0, 100.0)
"""Inverse strengths of the L2 penalty that are tried."""


@dataclass(frozen=True, eq=False)
class DensityRatio:
    """An estimated density ratio of deployment prompts to calibration prompts.

    Attributes:
        weights: Ratio at each calibration prompt, ``(n,)``, with mean about 1.
        target_weights: Ratio at each deployment prompt, ``(m,)``.
        separability: Cross-validated area under the ROC curve: 0.5, the two sets cannot be told apart; 1, they do not
            overlap and no weight can repair that.
    """

    weights: npt.NDArray[np.float64]
    target_weights: npt.NDArray[np.float64]
    separability: float
    _features: Any
    _classifier: Any
    _prior: float

    @property
    def effective(self) -> float:
        """Effective number of calibration prompts under the weights."""
        return effective_size(self.weights)

    @property
    def test_weight(self) -> float:
        """Largest ratio at a deployment prompt: one threshold then serves all of them."""
        return float(self.target_weights.max())

    def weight(self, prompt: str) -> float:
        """Ratio at one prompt."""
        return float(_ratio(self._classifier, self._features.transform([prompt]), self._prior)[0])

    @property
    def sentence(self) -> str:
        """The estimate in words."""
        return (
            f"{self.weights.size} calibration prompts are worth {self.effective:.0f} under the shift; the two sets of "
            f"prompts can be told apart with an area of {self.separability:.2f} (0.5 is not at all)."
        )


def estimate_density_ratio(calibration: Sequence[str], target: Sequence[str]) -> DensityRatio:
    """Estimate how much likelier each prompt is in deployment than in the calibration.

    Features are hashed lower-case words (scaled to length 1) and the logarithm of the number of words. A logistic
    regression with an L2 penalty (its strength chosen by cross-validation) gives the odds, which are the density ratio
    up to the two sets' sizes. The estimate uses prompts alone, never values, and is as good as these features: the
    level becomes approximate.

    Args:
        calibration: Calibration prompts, one per row.
        target: Prompts of the deployment.

    Raises:
        InvalidInputError: A set has fewer than :data:`LEAST_PROMPTS` prompts.
    """
    for name, prompts in (("calibration", calibration), ("deployment", target)):
        if len(prompts) < LEAST_PROMPTS:
            raise InvalidInputError(
                f"There are {len(prompts)} {name} prompts; estimating a shift needs at least {LEAST_PROMPTS}."
            )
    # Loaded here because it takes a second, and only an estimated shift needs it.
    from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    features = _features()
    table = features.fit_transform([*calibration, *target])  # (n + m, F)
    is_target = np.repeat([0, 1], [len(calibration), len(target)])  # (n + m,)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    # The strength of the penalty is chosen by held-out likelihood: too strong a one would understate the shift.
    fitted = LogisticRegressionCV(
        Cs=PENALTIES, cv=folds, scoring="neg_log_loss", l1_ratios=(0.0,), use_legacy_attributes=False, max_iter=1000
    ).fit(table, is_target)
    chosen = LogisticRegression(C=float(fitted.C_), max_iter=1000)
    held_out = cross_val_predict(chosen, table, is_target, cv=folds, method="decision_function")
    prior = len(calibration) / len(target)
    ratio = _ratio(fitted, table, prior)  # (n + m,)
    return DensityRatio(
        weights=ratio[is_target == 0],
        target_weights=ratio[is_target == 1],
        separability=float(roc_auc_score(is_target, held_out)),
        _features=features,
        _classifier=fitted,
        _prior=prior,
    )


def _features() -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.pipeline import make_pipeline, make_union
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    words = HashingVectorizer(n_features=HASHED_WORDS, alternate_sign=False, token_pattern=r"(?u)\b\w+\b")
    return make_union(words, make_pipeline(FunctionTransformer(_log_length), StandardScaler()))


def _log_length(prompts: Sequence[str]) -> npt.NDArray[np.float64]:
    return np.log1p([[len(prompt.split())] for prompt in prompts])


def _ratio(classifier: Any, table: Any, prior: float) -> npt.NDArray[np.float64]:
    odds: npt.NDArray[np.float64] = np.exp(classifier.decision_function(table)) * prior
    return odds
