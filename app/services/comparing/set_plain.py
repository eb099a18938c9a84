"""Comparisons over prompt sets as plain JSON; steps count from 1, null is unknown, infinite or not yet there."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from app.services.plain import job_json
from app.services.views.compared_sets import SetCell, SetColumn, SetComparison, SetSummary


def set_json(view: SetComparison) -> dict[str, Any]:
    """A comparison with its columns' means, its rows, and what must be said with them."""
    return {
        "comparison_id": view.id,
        "name": view.name,
        "filename": view.filename,
        "created_at": view.created_at.isoformat(),
        "running": view.running,
        "resumable": view.resumable,
        "columns": [_column(own) for own in view.columns],
        "rows": [
            {
                "line": row.line,
                "prompt": row.prompt,
                "group": row.group,
                "context": row.context,
                "cells": [_cell(cell) for cell in row.cells],
            }
            for row in view.rows
        ],
        "notes": list(view.notes),
    }


def set_summary_json(item: SetSummary) -> dict[str, Any]:
    """A comparison in a list."""
    return {
        "comparison_id": item.id,
        "name": item.name,
        "created_at": item.created_at.isoformat(),
        "prompts": item.rows,
        "policies": list(item.policies),
        "running": item.running,
    }


def _column(own: SetColumn) -> dict[str, Any]:
    memory = own.footprint
    return {
        "batch_id": own.batch_id,
        "settings": {**asdict(own.settings), "parameters": dict(own.settings.parameters)},
        "job": None if own.job is None else job_json(own.job),
        "finished": own.finished,
        "failed": own.failed,
        "means": {
            item.measure: {name: value for name, value in asdict(item).items() if name != "measure"}
            for item in own.means
        },
        "memory": {
            "branches": None if memory is None else len(memory.prompt_tokens),
            "model_bytes": None if memory is None else memory.model_bytes,
            "further_bytes": None if memory is None else memory.further_bytes,
            "peak_bytes": own.peak_bytes,
        },
        "own_model": own.own_model,
    }


def _cell(cell: SetCell) -> dict[str, Any]:
    values = {name: _finite(value) for name, value in asdict(cell).items()}
    return {**values, "parted_at": None if cell.parted_at is None else cell.parted_at + 1}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
