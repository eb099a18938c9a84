"""Plain JSON forms of batches and impact ratios; what has no value is null, and so is an infinite margin."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from app.services.batch.impact import ImpactTable
from app.services.plain import job_json, settings_json
from app.services.views.batches import BatchRowView, BatchSummary, BatchView, GroupTotals, OutcomeRule, Outcomes


def batch_json(view: BatchView) -> dict[str, Any]:
    """A batch with its rows and totals."""
    return {
        "batch_id": view.id,
        "name": view.name,
        "filename": view.filename,
        "created_at": view.created_at.isoformat(),
        "settings": settings_json(view.request.settings),
        "same_seed": view.request.same_seed,
        "group_thresholds": view.request.group_thresholds,
        "job": None if view.job is None else job_json(view.job),
        "resumable": view.resumable,
        "counts": dict(view.counts),
        "rows": [row_json(row) for row in view.rows],
        "groups": [totals_json(group) for group in view.groups],
        "notes": list(view.notes),
    }


def row_json(row: BatchRowView) -> dict[str, Any]:
    """One prompt of a batch."""
    return {name: _finite(value) for name, value in asdict(row).items()}


def totals_json(group: GroupTotals) -> dict[str, Any]:
    """Means of a group's finished rows by measure."""
    means = {item.measure: {name: value for name, value in asdict(item).items() if name != "measure"}
             for item in group.means}  # fmt: skip
    return {"group": group.group, "rows": group.rows, "contexts": group.contexts, "means": means}


def batch_summary_json(item: BatchSummary) -> dict[str, Any]:
    """A batch in a list."""
    return {
        "batch_id": item.id,
        "name": item.name,
        "created_at": item.created_at.isoformat(),
        "prompts": item.rows,
        "job": None if item.job is None else job_json(item.job),
    }


def impact_json(table: ImpactTable, found: Outcomes, rule: OutcomeRule) -> dict[str, Any]:
    """Selection rates and impact ratios, with the rule and the rows that they rest on."""
    return {
        "rule": asdict(rule),
        "groups": [{**asdict(row), "below_four_fifths": row.below_four_fifths} for row in table.rows],
        "unknown": table.unknown,
        "excluded": table.excluded,
        "undecided": list(found.undecided),
        "unfinished": list(found.unfinished),
        "notes": [*table.notes, *found.notes],
    }


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
