"""Tuning runs as plain JSON and as a table."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from app.services.csv_files import to_csv
from app.services.views.tuning import TunedPoint, TuningView

COLUMNS = (
    "policy", "values", "gap", "gap_low", "gap_high", "accuracy", "accuracy_low", "accuracy_high", "chosen", "error",
)  # fmt: skip


def tuning_json(view: TuningView) -> dict[str, Any]:
    """A run as plain JSON; intervals are 95 %."""
    plain = asdict(view)
    return {**plain, "created_at": view.created_at.isoformat()}


def tuning_csv(view: TuningView) -> str:
    """Every point of a run, vanilla first; a method that could not be swept stands with its error."""
    rows = [_row("vanilla", view.vanilla)]
    for own in view.methods:
        rows += [_row(own.policy, point) for point in own.points]
        if own.error:
            rows.append({**dict.fromkeys(COLUMNS), "policy": own.policy, "error": own.error})
    return to_csv(COLUMNS, rows)


def _row(policy: str, point: TunedPoint) -> dict[str, object]:
    values = "; ".join(f"{name}={value:g}" for name, value in point.values)
    figures = (policy, values, *point.gap, *point.accuracy, point.chosen, None)
    return dict(zip(COLUMNS, figures, strict=True))
