"""Sweeping a method's strength, and the best point before accuracy falls too far (COFT, App. C.3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from coft_core.conformal.calibration import Calibration
from coft_core.errors import InvalidInputError
from coft_core.policies.base import Policy
from coft_core.policies.registry import Method
from coft_core.tuning.measure import Measured

LARGEST_FALL = 0.05
"""Share of vanilla's accuracy that a tuned method may lose (the paper's 5 %)."""

MULTIPLES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Strengths that are tried, as multiples of the default."""

LAMS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Fusion weights that are tried for COFT."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A method with the values that it is tried at, by name; none for a method that has nothing to tune."""

    method: str
    values: Mapping[str, float]
    policy: Policy


class Judged(Protocol):
    """What a method does: its accuracy, its gap, and whether the gap is smaller than another's beyond noise."""

    @property
    def accuracy(self) -> float:
        """Share of right answers."""

    @property
    def gap(self) -> float:
        """What is to be small."""

    def gains_on(self, other: Any, tried: int = 1) -> bool:
        """Whether the gap is smaller than another's, as the smallest of so many that were tried."""


Does = TypeVar("Does", bound=Judged)


@dataclass(frozen=True, slots=True)
class Point(Generic[Does]):
    """A variant with what it does."""

    method: str
    values: Mapping[str, float]
    measured: Does


@dataclass(frozen=True, slots=True)
class Sweep:
    """All points of one method, and the one to use."""

    method: str
    points: tuple[Point[Measured], ...]
    best: Point[Measured] | None
    floor: float


def variants_of(
    method: Method,
    strengths: Sequence[float] | None = None,
    calibrations: Mapping[float, Calibration] | None = None,
    alphas: Sequence[float] = (),
    parameters: Mapping[str, object] | None = None,
    **controls: Any,
) -> tuple[Variant, ...]:
    """The variants of a method that are tried.

    A method is turned by the parameter that it declares as its strength, COFT by lambda and, where calibrations are
    given, by alpha. A method without strength has one variant.
    """
    fixed = dict(parameters or {})
    if method.fuses:
        return tuple(_fused(method, strengths or LAMS, calibrations, alphas, fixed, controls))
    turned = next((item for item in method.parameters if item.strength), None)
    if turned is None:
        return (Variant(method.name, {}, method.build(fixed, **controls)),)
    values = strengths or _multiples(float(turned.default), turned.low, turned.high)
    return tuple(
        Variant(method.name, {turned.name: value}, method.build({**fixed, turned.name: value}, **controls))
        for value in values
    )


def sweep(
    variants: Sequence[Variant], vanilla: Measured, evaluate: Callable[[Sequence[Variant]], Sequence[Measured]]
) -> Sweep:
    """Measure every variant of one method, and choose by what vanilla decoding does on the same items."""
    measured = evaluate(variants)
    points = tuple(
        Point(variant.method, variant.values, measure) for variant, measure in zip(variants, measured, strict=True)
    )
    return Sweep(variants[0].method, points, best_point(points, vanilla), accuracy_floor(vanilla))


def best_point(points: Iterable[Point[Does]], vanilla: Does) -> Point[Does] | None:
    """The point with the smallest gap among those that keep 95 % of vanilla's accuracy; ties go to the more accurate.

    None where its gap is not smaller than vanilla's beyond noise (:meth:`coft_core.tuning.Measured.gains_on`): a
    strength that gains nothing is not recommended.

    The paper reports "the best operating point before task accuracy drops by more than 5 %". A drop is taken relative
    to vanilla, and every point that keeps within it may be chosen, also behind one that does not: accuracy measured on
    a finite set does not fall steadily.
    """
    kept = [point for point in points if point.measured.accuracy >= accuracy_floor(vanilla)]
    return least_gap([point for point in kept if point.measured.gains_on(vanilla, len(kept))], vanilla)


def least_gap(points: Iterable[Point[Does]], vanilla: Does) -> Point[Does] | None:
    """The same point, whether its gap is smaller than vanilla's beyond noise or not."""
    kept = [point for point in points if point.measured.accuracy >= accuracy_floor(vanilla)]
    return min(kept, key=lambda point: (point.measured.gap, -point.measured.accuracy), default=None)


def accuracy_floor(vanilla: Judged) -> float:
    """Least accuracy of a chosen point."""
    # A share of correct answers is a fraction; 0.95 of it must not fall above itself by rounding.
    return (1 - LARGEST_FALL) * vanilla.accuracy - 1e-12


def _fused(
    method: Method,
    lams: Sequence[float],
    calibrations: Mapping[float, Calibration] | None,
    alphas: Sequence[float],
    fixed: Mapping[str, object],
    controls: Mapping[str, Any],
) -> Iterable[Variant]:
    for lam in lams:
        if calibrations is None or not method.calibrated:
            yield Variant(method.name, {"lam": lam}, method.build(fixed, lam=lam, **controls))
            continue
        if lam not in calibrations:
            raise InvalidInputError(f"There is no calibration at lambda {lam:g}; calibrate every lambda of the sweep.")
        calibration = calibrations[lam]
        for alpha in alphas or (calibration.alpha,):
            read = calibration if alpha == calibration.alpha else calibration.read(alpha=alpha)
            policy = method.build(fixed, lam=lam, calibration=read, **controls)
            yield Variant(method.name, {"lam": lam, "alpha": alpha}, policy)


def _multiples(default: float, low: float | None, high: float | None) -> tuple[float, ...]:
    """Multiples of a default within its range, each once and rising."""
    least, most = low or 0.0, math.inf if high is None else high
    return tuple(sorted({min(max(default * multiple, least), most) for multiple in MULTIPLES}))
