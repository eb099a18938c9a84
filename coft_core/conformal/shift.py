"""Deployment prompts that are not distributed like the calibration's: a bound on the density ratio, or weights.

The law of the prompts changes, the law of the values given the prompt does not. A bound ``rho`` costs a factor on alpha
(paper, Theorem 5); weights give the weighted quantile of Tibshirani, Barber, Candes and Ramdas (2019).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from coft_core.conformal.quantile import check_weights, effective_size
from coft_core.errors import CalibrationFormatError, InvalidInputError

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
        separability: Cross-validated area under the ROC curve: 0.5, alike; 1, no overlap, which no weight can repair.
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


def estimate_density_ratio(calibration: Sequence[str], target: Sequence[str]) -> DensityRatio:
    """Estimate how much likelier each prompt is in deployment than in the calibration.

    A logistic regression on hashed lower-case words and the logarithm of their number gives the odds, which are the
    density ratio up to the two sets' sizes. The estimate is as good as these features: the level becomes approximate.

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


ShiftKind = Literal["none", "bound", "weights"]
"""How a shift is allowed for."""

LARGEST_RATIO = 1_000_000
"""Beyond it no number of contexts is enough for any alpha, and fractions outgrow floating-point numbers."""

EFFECTIVE_FLOOR = 30.0
"""Effective contexts below which shift weights are refused: a few heavy contexts would decide alone."""


@dataclass(frozen=True, slots=True)
class Shift:
    """What is assumed of the deployment prompts.

    Attributes:
        kind: As the calibration's; a density ratio of at most ``rho``; or one proportional to the weights.
        rho: Bound of the density ratio, at least 1.
        contexts: Calibration and verification contexts that have a weight, ascending.
        weights: Their weights, in that order.
        test_weight: Weight of a new prompt; the largest expected makes one threshold serve all.
        estimated: Whether the weights were estimated; the level is then approximate.
    """

    kind: ShiftKind = "none"
    rho: float = 1.0
    contexts: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()
    test_weight: float = 1.0
    estimated: bool = False

    @classmethod
    def bounded(cls, rho: float) -> Shift:
        """A density ratio of at most ``rho``, on contexts that reach the step."""
        if not 1 <= rho <= LARGEST_RATIO:
            raise InvalidInputError(
                f"The density ratio's bound rho is {rho}; choose 1 (no shift) or larger, at most {LARGEST_RATIO:,}."
            )
        return cls("bound", float(rho)) if rho > 1 else cls()

    @classmethod
    def weighted(cls, weights: Mapping[int, float], test_weight: float | None = None, estimated: bool = False) -> Shift:
        """A density ratio proportional to weights by context; a new prompt weighs as much as the largest if None."""
        if not weights:
            raise InvalidInputError("There are no shift weights; give one per context.")
        contexts = sorted(weights)
        listed = check_weights([weights[context] for context in contexts])
        weight = float(listed.max()) if test_weight is None else test_weight
        if not (math.isfinite(weight) and weight > 0):
            raise InvalidInputError(f"The new prompt's weight is {weight}; give a finite number above 0.")
        return cls("weights", 1.0, tuple(contexts), tuple(listed.tolist()), float(weight), estimated)

    def level(self, alpha: Fraction) -> Fraction:
        """Risk level at which thresholds are read: ``alpha / rho`` under a bound, else ``alpha``."""
        return alpha / Fraction(str(self.rho))

    def of(self, contexts: npt.NDArray[np.integer]) -> npt.NDArray[np.float64] | None:
        """Weight of each row's context, ``(n,)``; None where there are no weights."""
        if self.kind != "weights":
            return None
        known, weights = np.array(self.contexts), np.array(self.weights)  # (K,)
        place = np.minimum(np.searchsorted(known, contexts), known.size - 1)  # (n,)
        if (bad := np.flatnonzero(known[place] != contexts)).size:
            raise InvalidInputError(f"Context {int(contexts[bad[0]])} has no shift weight; give one per context.")
        chosen: npt.NDArray[np.float64] = weights[place]
        return chosen

    def effective(self, contexts: Iterable[int]) -> float | None:
        """Effective number of some distinct contexts; None without weights."""
        weights = self.of(np.fromiter(contexts, dtype=np.int64))
        return None if weights is None else effective_size(weights)

    def require_effective(self, contexts: npt.NDArray[np.integer], needed: float) -> None:
        """Refuse weights that leave too few effective contexts."""
        effective = self.effective(contexts.tolist())
        if effective is not None and effective < needed:
            raise InvalidInputError(
                f"The weights leave {contexts.size} contexts worth {effective:.1f} and at least {needed:g} are needed; "
                "calibrate on prompts that are more like those of the deployment."
            )

    def thinned(self, contexts: npt.NDArray[np.integer], seed: int) -> npt.NDArray[np.integer]:
        """Keep each context with probability weight over largest weight: what is left is a sample of the target."""
        weights = self.of(contexts)
        if weights is None or not contexts.size:
            return contexts
        draws = np.random.default_rng(seed).random(contexts.size)  # (K,)
        kept: npt.NDArray[np.integer] = contexts[draws < weights / weights.max()]
        return kept

    @property
    def sentence(self) -> str:
        """What is assumed, in words; empty without a shift."""
        if self.kind == "bound":
            return f"Holds for prompts whose density ratio to the calibration's is at most {self.rho:g}."
        if self.kind == "weights":
            how = "estimated, so the level is approximate" if self.estimated else "as given"
            return f"Weighted to the shifted prompts (weights {how}; a new prompt weighs {self.test_weight:.3g})."
        return ""

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionary; JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Shift:
        """Rebuild from :meth:`to_dict`."""
        try:
            if data["kind"] == "weights":
                weights = dict(zip(data["contexts"], data["weights"], strict=True))
                return cls.weighted(weights, data["test_weight"], bool(data["estimated"]))
            return cls.bounded(data["rho"])
        except (KeyError, TypeError, ValueError) as error:
            raise CalibrationFormatError(f"The calibration's shift is damaged ({error}).") from error


def weights_by_context(weights: Sequence[float], contexts: Sequence[int]) -> dict[int, float]:
    """Weights given per row of a prompt set, by context (see :func:`coft_core.context_numbers`)."""
    listed = check_weights(weights)
    if listed.size != len(contexts):
        raise InvalidInputError(f"There are {listed.size} weights for {len(contexts)} rows; give one per row.")
    by_context: dict[int, float] = {}
    for row, (context, weight) in enumerate(zip(contexts, listed.tolist(), strict=True), start=1):
        if by_context.setdefault(context, weight) != weight:
            raise InvalidInputError(
                f"Row {row} has the weight {weight:g} and another row of its context has {by_context[context]:g}; "
                "rows of one context share one weight."
            )
    return by_context
