"""Tuning runs as plain JSON and as a table."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from app.services.csv_files import to_csv
from app.services.plain import settings_json
from app.services.views.tuning import TunedPoint, TuningView

COLUMNS = (
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
            rows.append({**dict.fromkeys(COLUMNS), "policy": own.policy, "error": own.error or None} | counted)
    return to_csv(COLUMNS, rows)


def _row(policy: str, point: TunedPoint) -> dict[str, object]:
    values = "; ".join(f"{name}={value:g}" for name, value in point.values)
    figures = (policy, values, *point.gap, *point.accuracy, point.chosen, None)
    return {**dict.fromkeys(COLUMNS), **dict(zip(COLUMNS, figures, strict=False))}
