"""Deployment prompts that are not distributed like the calibration's: a bound on the density ratio, or weights.

Either keeps a guarantee under covariate shift: the law of the prompts changes, the law of the values given the prompt
does not. A bound ``rho`` on the density ratio costs a factor on alpha (paper, Theorem 5); weights proportional to the
ratio give the weighted quantile of Tibshirani, Barber, Candes and Ramdas (2019).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from coft_core.conformal.weighted import check_weights, effective_size
from coft_core.errors import CalibrationFormatError, InvalidInputError

ShiftKind = Literal["none", "bound", "weights"]
"""How a shift is allowed for."""

EFFECTIVE_FLOOR = 30.0
"""Effective contexts below which shift weights are refused: a few heavy contexts would decide alone."""


@dataclass(frozen=True, slots=True)
class Shift:
    """What is assumed of the deployment prompts.

    Attributes:
        kind: ``none``: as the calibration's; ``bound``: the density ratio is at most ``rho``; ``weights``: it is
            proportional to the weights.
        rho: Bound of the density ratio, at least 1.
        contexts: Calibration and verification contexts that have a weight, ascending.
        weights: Their weights, in that order.
        test_weight: Weight of a new prompt; the largest that is expected makes one threshold serve all of them.
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
        """A density ratio of at most ``rho``.

        The bound is on contexts that reach the step: where deployed chains reach a late step more often than the
        calibration's, it must bound the ratio among those.

        Raises:
            InvalidInputError: ``rho`` is below 1 or not finite; a ratio of two densities is at least 1 somewhere.
        """
        if not (math.isfinite(rho) and rho >= 1):
            raise InvalidInputError(f"The density ratio's bound rho is {rho}; choose 1 (no shift) or larger.")
        return cls("bound", float(rho)) if rho > 1 else cls()

    @classmethod
    def weighted(cls, weights: Mapping[int, float], test_weight: float | None = None, estimated: bool = False) -> Shift:
        """A density ratio proportional to given weights.

        Args:
            weights: Weight of each context, by its number.
            test_weight: Weight of a new prompt; None takes the largest of ``weights``.
            estimated: Whether the weights were estimated.

        Raises:
            InvalidInputError: There is no weight, or one is no finite number above 0.
        """
        if not weights:
            raise InvalidInputError("There are no shift weights; give one per context.")
        contexts = sorted(weights)
        listed = check_weights([weights[context] for context in contexts])
        own = float(listed.max()) if test_weight is None else test_weight
        if not (math.isfinite(own) and own > 0):
            raise InvalidInputError(f"The new prompt's weight is {own}; give a finite number above 0.")
        return cls("weights", 1.0, tuple(contexts), tuple(listed.tolist()), float(own), estimated)

    def level(self, alpha: Fraction) -> Fraction:
        """Risk level at which thresholds are read: ``alpha / rho`` under a bound, else ``alpha``."""
        return alpha / Fraction(str(self.rho))

    def of(self, contexts: npt.NDArray[np.integer]) -> npt.NDArray[np.float64] | None:
        """Weight of each row's context, ``(n,)``; None where there are no weights.

        Raises:
            InvalidInputError: A context has no weight.
        """
        if self.kind != "weights":
            return None
        known, weights = np.array(self.contexts), np.array(self.weights)  # (K,)
        place = np.minimum(np.searchsorted(known, contexts), known.size - 1)  # (n,)
        if (bad := np.flatnonzero(known[place] != contexts)).size:
            raise InvalidInputError(f"Context {int(contexts[bad[0]])} has no shift weight; give one per context.")
        found: npt.NDArray[np.float64] = weights[place]
        return found

    def effective(self, contexts: Iterable[int]) -> float | None:
        """Effective number of some distinct contexts; None without weights."""
        weights = self.of(np.fromiter(contexts, dtype=np.int64))
        return None if weights is None else effective_size(weights)

    def require_effective(self, contexts: npt.NDArray[np.integer], needed: float) -> None:
        """Refuse weights that leave too few effective contexts.

        Args:
            contexts: Distinct calibration contexts.
            needed: Effective contexts that are needed.

        Raises:
            InvalidInputError: There are fewer, or a context has no weight.
        """
        effective = self.effective(contexts.tolist())
        if effective is not None and effective < needed:
            raise InvalidInputError(
                f"The weights leave {contexts.size} contexts worth {effective:.1f} and at least {needed:g} are needed; "
                "calibrate on prompts that are more like those of the deployment."
            )

    def thinned(self, contexts: npt.NDArray[np.integer], seed: int) -> npt.NDArray[np.integer]:
        """Keep each context with probability weight over largest weight: what is left is a sample of the target.

        Coverage measured on it is coverage under the shift, with independent contexts and exact intervals.

        Args:
            contexts: Distinct contexts.
            seed: Seed of the draws.
        """
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
        """Rebuild from :meth:`to_dict`.

        Raises:
            CalibrationFormatError: A field is missing, or its value cannot be a shift's.
        """
        try:
            if data["kind"] == "weights":
                weights = dict(zip(data["contexts"], data["weights"], strict=True))
                return cls.weighted(weights, data["test_weight"], bool(data["estimated"]))
            return cls.bounded(data["rho"])
        except (KeyError, TypeError, ValueError) as error:
            raise CalibrationFormatError(f"The calibration's shift is damaged ({error}).") from error


def weights_by_context(weights: Sequence[float], contexts: Sequence[int]) -> dict[int, float]:
    """Weights given per row of a prompt set, by context.

    Args:
        weights: One weight per row.
        contexts: The rows' contexts, see :func:`coft_core.conformal.split.context_numbers`.

    Raises:
        InvalidInputError: The lengths differ, a weight is unusable, or rows of one context have different weights.
    """
    listed = check_weights(weights)
    if listed.size != len(contexts):
        raise InvalidInputError(f"There are {listed.size} weights for {len(contexts)} rows; give one per row.")
    found: dict[int, float] = {}
    for row, (context, weight) in enumerate(zip(contexts, listed.tolist(), strict=True), start=1):
        if found.setdefault(context, weight) != weight:
            raise InvalidInputError(
                f"Row {row} has the weight {weight:g} and another row of its context has {found[context]:g}; "
                "rows of one context share one weight."
            )
    return found
