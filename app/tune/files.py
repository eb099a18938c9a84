"""Reading sets to tune on: CSV or JSONL with prompts, right and wrong answers, and pairs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from app.shared.audits import settings_from_json
from app.shared.errors import ServiceError
from app.shared.files import RowProblem, Table, all_records, decode, read_bytes, read_csv, read_jsonl, readable, to_csv
from app.shared.json import settings_json
from app.tune.types import TunedMethod, TunedPoint, TuningRequest, TuningSet, TuningView
from coft_core.errors import InvalidInputError
from coft_core.text.merging import validate_spans
from coft_core.tuning.measure import Measured, TuningItem, check_items
from coft_core.tuning.sweep import Sweep
from coft_core.types import Span
from db.jobs import JobRecord
from db.types import JsonObject

COLUMNS = ("prompt", "answer", "others", "pair", "spans", "graded")
_YES, _NO = ("yes", "true", "1"), ("no", "false", "0")


def read_tuning_set(path: Path, filename: str | None = None, max_bytes: int = 20_000_000) -> TuningSet:
    """Read a set to tune on; a set with a row that cannot be used is refused, since every row is part of the measure.

    Columns: ``prompt``; ``answer``, the right continuation; ``others``, wrong ones as a JSON list or separated by
    ``|``; ``pair``, shared by prompts that differ in the attribute alone; ``spans`` as in prompt sets; ``graded``, no
    for prompts without a right answer. All but the first two may be left out. Answers that begin with a letter or a
    digit are put behind a space.

    Args:
        path: The file.
        filename: Its name as uploaded; its ending decides the format.
        max_bytes: Largest file that is read.

    Raises:
        ServiceError: The file or one of its rows cannot be used; the sentence names line and column.
    """
    name = filename or path.name
    data = read_bytes(path, name, max_bytes)
    table = _table(decode(data, name), name)
    for column in ("prompt", "answer"):
        if column not in table.columns:
            raise ServiceError(f"{name} has no column “{column}”; a set to tune on needs prompt and answer.")
    items = []
    for line, cells in all_records(table, name):
        try:
            if isinstance(cells, RowProblem):
                raise cells
            items.append(_item(cells))
        except RowProblem as problem:
            raise ServiceError(f"{name}, line {line}: {problem.column} {problem.message}.") from problem
    try:
        check_items(items)
    except InvalidInputError as error:
        raise ServiceError(f"{name}: {error}") from error
    return TuningSet(name, tuple(items), hashlib.sha256(data).hexdigest())


def _table(text: str, name: str) -> Table:
    if Path(name).suffix.lower() in (".jsonl", ".ndjson"):
        return read_jsonl(text, name)
    return read_csv(text, name)


def _item(cells: Mapping[str, Any]) -> TuningItem:
    prompt = readable("prompt", str(cells.get("prompt") or ""))
    if not prompt.strip():
        raise RowProblem("prompt", "is empty; type at least one word")
    answer = readable("answer", str(cells.get("answer") or ""))
    if not answer.strip():
        raise RowProblem("answer", "is empty; give the right continuation")
    pair = cells.get("pair")
    return TuningItem(
        prompt=prompt,
        answer=_continuing(answer),
        others=tuple(_continuing(readable("others", other)) for other in _others(cells.get("others"))),
        pair=None if pair is None or not str(pair).strip() else readable("pair", str(pair).strip()),
        spans=_spans(prompt, cells.get("spans")),
        graded=_graded(cells.get("graded")),
    )


def _continuing(text: str) -> str:
    """A continuation that begins with a word stands behind a space."""
    return f" {text}" if text[:1].isalnum() else text


def _others(cell: Any) -> list[str]:
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return []
    if isinstance(cell, str):
        if not cell.lstrip().startswith("["):
            return [part for part in cell.split("|") if part.strip()]
        try:
            cell = json.loads(cell)
        except (ValueError, RecursionError) as error:
            raise RowProblem("others", "is no list; separate answers by |, or give a JSON list") from error
    if not isinstance(cell, list) or not all(isinstance(other, str) and other.strip() for other in cell):
        raise RowProblem("others", "must hold texts; separate answers by |, or give a JSON list")
    return cell


def _spans(prompt: str, cell: Any) -> tuple[Span, ...] | None:
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return None
    try:
        listed = json.loads(cell) if isinstance(cell, str) else cell
        spans = tuple(Span(int(start), int(end), str(family)) for start, end, family in listed)
        validate_spans(prompt, spans)
    except (ValueError, TypeError, InvalidInputError) as error:
        raise RowProblem("spans", f"cannot be used ({error}); give a JSON list of [start, end, family]") from error
    return spans


def _graded(cell: Any) -> bool:
    if cell is None or isinstance(cell, bool):
        return True if cell is None else cell
    word = str(cell).strip().lower()
    if word and word not in (*_YES, *_NO):
        raise RowProblem("graded", "must be yes or no")
    return word not in _NO


def payload_of(request: TuningRequest, tuning_set: TuningSet) -> JsonObject:
    """What a job is asked, enough to start it again."""
    items = [
        {**asdict(item), "spans": None if item.spans is None else [asdict(span) for span in item.spans]}
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
    return TuningSet(stored["filename"], tuple(_stored_item(item) for item in stored["items"]), stored["digest"])


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


def _stored_item(stored: Mapping[str, Any]) -> TuningItem:
    spans = stored["spans"]
    own = None if spans is None else tuple(Span(**span) for span in spans)
    return TuningItem(**{**stored, "others": tuple(stored["others"]), "spans": own})


def _point(stored: Mapping[str, Any]) -> TunedPoint:
    accuracy, low, high = stored["accuracy"]
    gap, smallest, largest = stored["gap"]
    values = tuple((name, float(value)) for name, value in stored["values"])
    return TunedPoint(values, (accuracy, low, high), (gap, smallest, largest), stored["chosen"])


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
    """Every point of a run, vanilla first; a method that could not be swept stands with its error.

    Each row says how the run ended and how many points of its method were measured of how many.
    """
    rows = [_row("vanilla", view.vanilla) | {"run": view.status}]
    for own in view.methods:
        counted = {"run": view.status, "points_measured": len(own.points), "points_planned": own.planned}
        rows += [_row(own.policy, point) | counted for point in own.points]
        if own.error or not own.points:
            rows.append({**dict.fromkeys(TABLE_COLUMNS), "policy": own.policy, "error": own.error or None} | counted)
    return to_csv(TABLE_COLUMNS, rows)


def _row(policy: str, point: TunedPoint) -> dict[str, object]:
    values = "; ".join(f"{name}={value:g}" for name, value in point.values)
    figures = (policy, values, *point.gap, *point.accuracy, point.chosen, None)
    return {**dict.fromkeys(TABLE_COLUMNS), **dict(zip(TABLE_COLUMNS, figures, strict=False))}
