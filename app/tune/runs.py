"""Tuning runs: what is asked of one, what it found, and how both are stored and exported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from app.shared.audits import AuditSettings, ParameterValue
from app.shared.files import to_csv
from app.shared.json import settings_json
from app.shared.policies import KNOWN_POLICIES
from app.tune.sets import TuningSet
from coft_core.tuning.measure import Measured
from coft_core.tuning.sweep import Sweep
from db.jobs import JobRecord
from db.types import JsonObject

TUNABLE = tuple(item for item in KNOWN_POLICIES if item.fuses or any(own.strength for own in item.parameters))
"""Methods that have a strength."""


@dataclass(frozen=True, slots=True)
class TuningRequest:
    """A request to tune methods on a set.

    Attributes:
        policies: Names of the policies; vanilla is measured in any case.
        settings: Model, sampling and masks; the policy, its parameters and its calibration are not looked at.
        calibration_set: Prompt set with references on which COFT is calibrated for every lambda of the sweep; None
            tunes it without certification.
        alphas: Risk levels that are tried where COFT is calibrated.
        calibration_source: Where its contexts come from: ``reference`` (the set's own continuations) or ``rollout``
            (what the policy itself writes, up to the settings' steps), as for any calibration.
    """

    name: str
    policies: tuple[str, ...]
    settings: AuditSettings = field(default_factory=AuditSettings)
    calibration_set: str | None = None
    alphas: tuple[float, ...] = (0.05, 0.1, 0.2)
    calibration_source: str = "reference"


@dataclass(frozen=True, slots=True)
class TunedPoint:
    """What a method does at one point of its sweep; intervals are 95 % bootstrap intervals over pairs."""

    values: tuple[tuple[str, float], ...]
    accuracy: tuple[float, float, float]
    gap: tuple[float, float, float]
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class TunedMethod:
    """One method's sweep."""

    policy: str
    points: tuple[TunedPoint, ...]
    error: str = ""
    planned: int = 0

    @property
    def best(self) -> TunedPoint | None:
        """The point to use; None where every point loses too much accuracy or gains nothing on the model alone."""
        return next((point for point in self.points if point.chosen), None)


@dataclass(frozen=True, slots=True)
class TuningView:
    """A tuning run."""

    id: int
    name: str
    model: str
    set_name: str
    prompts: int
    pairs: int
    vanilla: TunedPoint
    floor: float
    methods: tuple[TunedMethod, ...]
    calibrated_on: str | None
    created_at: datetime
    status: str
    calibration_source: str = "reference"
    settings: AuditSettings = field(default_factory=AuditSettings)

    @property
    def complete(self) -> bool:
        """Whether all methods were swept."""
        return self.status == "done"

    @property
    def measured(self) -> int:
        """Points that were measured, on all prompts each."""
        return sum(len(method.points) for method in self.methods)

    @property
    def planned(self) -> int:
        """Points that were to be measured."""
        return sum(max(method.planned, len(method.points)) for method in self.methods)


@dataclass(frozen=True, slots=True)
class TunedValues:
    """What a finished run found for one method; lambda where the policy fuses, alpha where it was swept."""

    run_id: int
    run_name: str
    set_name: str
    parameters: tuple[tuple[str, ParameterValue], ...] = ()
    lam: float | None = None
    alpha: float | None = None


def payload_of(request: TuningRequest, tuning_set: TuningSet) -> JsonObject:
    """What a job is asked, enough to start it again."""
    return {"request": asdict(request), "set": asdict(tuning_set)}


def request_from(payload: Mapping[str, Any]) -> TuningRequest:
    """The request of a job."""
    return TypeAdapter(TuningRequest).validate_python(payload["request"])


def set_from(payload: Mapping[str, Any]) -> TuningSet:
    """The set of a job."""
    return TypeAdapter(TuningSet).validate_python(payload["set"])


def point_of(measured: Measured, values: Mapping[str, float], chosen: bool = False) -> TunedPoint:
    """A point with its figures."""
    return TunedPoint(
        values=tuple((name, float(value)) for name, value in values.items()),
        accuracy=(measured.accuracy, *measured.accuracy_interval),
        gap=(measured.gap, *measured.gap_interval),
        chosen=chosen,
    )


def method_of(sweep: Sweep) -> TunedMethod:
    """A sweep as it is kept."""
    points = tuple(point_of(point.measured, point.values, point is sweep.best) for point in sweep.points)
    return TunedMethod(sweep.method, points, planned=len(points))


def view_of(job: JobRecord) -> TuningView:
    """A run that has ended; from one that ended early nothing is chosen."""
    request, tuning_set, result = request_from(job.payload), set_from(job.payload), job.result or {}
    return TuningView(
        id=job.id,
        name=request.name,
        model=request.settings.model,
        set_name=tuning_set.filename,
        prompts=tuning_set.graded,
        pairs=tuning_set.pairs,
        vanilla=TypeAdapter(TunedPoint).validate_python(result["vanilla"]),
        floor=float(result["floor"]),
        methods=tuple(_method(stored, job.status == "done") for stored in result["methods"]),
        calibrated_on=request.calibration_set,
        created_at=job.created_at,
        status=job.status,
        calibration_source=request.calibration_source,
        settings=request.settings,
    )


def _method(stored: Mapping[str, Any], complete: bool) -> TunedMethod:
    # Runs that were kept before they said what was planned were all complete.
    method = TypeAdapter(TunedMethod).validate_python({"planned": len(stored["points"]), **stored})
    return method if complete else replace(method, points=tuple(replace(p, chosen=False) for p in method.points))


TABLE_COLUMNS = (
    "policy", "values", "gap", "gap_low", "gap_high", "accuracy", "accuracy_low", "accuracy_high", "chosen", "error",
    "run", "points_measured", "points_planned",
)  # fmt: skip


def tuning_json(view: TuningView) -> dict[str, Any]:
    """A run as plain JSON; intervals are 95 %."""
    return {
        **asdict(view),
        "settings": settings_json(view.settings),
        "created_at": view.created_at.isoformat(),
        "complete": view.complete,
        "points_measured": view.measured,
        "points_planned": view.planned,
    }


def tuning_csv(view: TuningView) -> str:
    """Every point of a run, vanilla first; a method that could not be swept has a row with its error.

    Each row says how the run ended and how many points of its method were measured of how many.
    """
    rows = [_row("vanilla", view.vanilla) | {"run": view.status}]
    for method in view.methods:
        counted = {"run": view.status, "points_measured": len(method.points), "points_planned": method.planned}
        rows += [_row(method.policy, point) | counted for point in method.points]
        if method.error or not method.points:
            missing = {"policy": method.policy, "error": method.error or None}
            rows.append(dict.fromkeys(TABLE_COLUMNS) | missing | counted)
    return to_csv(TABLE_COLUMNS, rows)


def _row(policy: str, point: TunedPoint) -> dict[str, object]:
    values = "; ".join(f"{name}={value:g}" for name, value in point.values)
    figures = (policy, values, *point.gap, *point.accuracy, point.chosen, None)
    return {**dict.fromkeys(TABLE_COLUMNS), **dict(zip(TABLE_COLUMNS, figures, strict=False))}
