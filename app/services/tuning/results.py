"""Tuning runs as their jobs keep them, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from app.services.mapping import settings_from_json, span_from, span_record
from app.services.views.tuning import TunedMethod, TunedPoint, TuningRequest, TuningSet, TuningView
from coft_core.tuning import Measured, Sweep, TuningItem
from db.records import JobRecord, JsonObject, SpanRecord


def payload_of(request: TuningRequest, tuning_set: TuningSet) -> JsonObject:
    """What a job is asked, enough to start it again."""
    items = [
        {**asdict(item), "spans": None if item.spans is None else [asdict(span_record(span)) for span in item.spans]}
        for item in tuning_set.items
    ]
    return {"request": asdict(request), "set": {**asdict(tuning_set), "items": items}}


def request_from(payload: Mapping[str, Any]) -> TuningRequest:
    """The request of a job."""
    stored = payload["request"]
    return TuningRequest(
        name=stored["name"],
        policies=tuple(stored["policies"]),
        settings=settings_from_json(stored["settings"]),
        calibration_set=stored["calibration_set"],
        alphas=tuple(stored["alphas"]),
        calibration_source=stored.get("calibration_source", "reference"),
    )


def set_from(payload: Mapping[str, Any]) -> TuningSet:
    """The set of a job."""
    stored = payload["set"]
    return TuningSet(stored["filename"], tuple(_item(item) for item in stored["items"]), stored["digest"])


def point_of(measured: Measured, values: Mapping[str, float], chosen: bool = False) -> TunedPoint:
    """A point with its figures."""
    return TunedPoint(
        values=tuple((name, float(value)) for name, value in values.items()),
        accuracy=(measured.accuracy, *measured.accuracy_interval),
        gap=(measured.gap, *measured.gap_interval),
        chosen=chosen,
    )


def method_of(found: Sweep) -> TunedMethod:
    """A sweep as it is kept."""
    points = tuple(point_of(own.measured, own.values, own is found.best) for own in found.points)
    return TunedMethod(found.method, points, planned=len(points))


def has_points(job: JobRecord) -> bool:
    """Whether a job that has ended measured anything: vanilla decoding at least."""
    return job.result is not None and "vanilla" in job.result


def view_of(job: JobRecord) -> TuningView:
    """A run that has ended; from one that ended early nothing is chosen."""
    request, tuning_set, result = request_from(job.payload), set_from(job.payload), job.result or {}
    complete = job.status == "done"
    return TuningView(
        id=job.id,
        name=request.name,
        model=request.settings.model,
        set_name=tuning_set.filename,
        prompts=tuning_set.graded,
        pairs=tuning_set.pairs,
        vanilla=_point(result["vanilla"]),
        floor=float(result["floor"]),
        methods=tuple(_method(own, complete) for own in result["methods"]),
        calibrated_on=request.calibration_set,
        created_at=job.created_at,
        status=job.status,
        calibration_source=request.calibration_source,
        settings=request.settings,
    )


def _method(stored: Mapping[str, Any], complete: bool) -> TunedMethod:
    points = tuple(_point(point) for point in stored["points"])
    if not complete:
        points = tuple(replace(point, chosen=False) for point in points)
    # Runs that were kept before they said what was planned were all complete.
    return TunedMethod(stored["policy"], points, stored["error"], stored.get("planned", len(points)))


def _item(stored: Mapping[str, Any]) -> TuningItem:
    spans = stored["spans"]
    own = None if spans is None else tuple(span_from(SpanRecord(**span)) for span in spans)
    return TuningItem(**{**stored, "others": tuple(stored["others"]), "spans": own})


def _point(stored: Mapping[str, Any]) -> TunedPoint:
    accuracy, low, high = stored["accuracy"]
    gap, smallest, largest = stored["gap"]
    values = tuple((name, float(value)) for name, value in stored["values"])
    return TunedPoint(values, (accuracy, low, high), (gap, smallest, largest), stored["chosen"])
