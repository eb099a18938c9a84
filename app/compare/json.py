"""Comparisons as plain JSON, shared by the endpoints and the command line; steps count from 1, null where none is."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from app.compare.service import FROM_VANILLA
from app.compare.types import ChainSummary, Comparison, PairComparison, SetCell, SetColumn, SetComparison, SetSummary
from app.shared.json import job_json, step_numbers
from coft_core.types import Step


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Chains, where each parts from the first, the aligned rows, and what is stored of each step."""
    return {
        "chains": [_chain(chain) for chain in comparison.chains],
        "pairs": [_pair(pair) for pair in comparison.pairs],
        "rows": [
            {
                "steps": [None if step is None else step + 1 for step in row.steps],
                "differs": list(row.differs),
                "same": row.same,
            }
            for row in comparison.rows
        ],
        "notes": list(comparison.notes),
    }


def _chain(chain: ChainSummary) -> dict[str, Any]:
    return {
        "session_id": chain.session_id,
        "branch_id": chain.branch_id,
        "name": chain.name,
        "branch": chain.branch,
        "policy": chain.policy,
        "model": chain.model,
        "lam": chain.settings.lam,
        "alpha": chain.settings.alpha,
        "mask_layout": chain.settings.mask_layout,
        "calibration_id": None if chain.calibration is None else chain.calibration.id,
        "certificate": chain.certificate,
        "finished": chain.finished,
        "text": chain.text,
        "tokens": len(chain.steps),
        "certified": chain.certified,
        "fallbacks": chain.fallbacks,
        "overruled": chain.overruled,
        "mean_log_ratio": chain.mean_log_ratio,
        "parameters": dict(chain.settings.parameters),
        "mean_kl_factual": chain.mean_kl_factual,
        "mean_tv_factual": chain.mean_tv_factual,
        "seconds_per_token": chain.seconds_per_token,
        "memory": _memory(chain),
        "steps": [_step(step, chain.own_model) for step in chain.steps],
    }


def _memory(chain: ChainSummary) -> dict[str, Any]:
    """Bytes: keys and values of all branches and weights as computed from the models' shapes, the peak as measured."""
    own = chain.footprint
    return {
        "key_value_bytes": chain.key_value_bytes,
        "branches": None if own is None else len(own.prompt_tokens),
        "model_bytes": None if own is None else own.model_bytes,
        "further_bytes": None if own is None else own.further_bytes,
        "peak_bytes": chain.peak_bytes,
    }


def _step(step: Step, own_model: bool) -> dict[str, Any]:
    numbers = step_numbers(step)
    return numbers | dict.fromkeys(FROM_VANILLA) if own_model else numbers


def _pair(pair: PairComparison) -> dict[str, Any]:
    return {
        "chain": pair.other + 1,
        "first_divergence": None if pair.first_divergence is None else pair.first_divergence + 1,
        "same": pair.same,
        "changed": pair.changed,
        "removed": pair.removed,
        "added": pair.added,
        "by_text": pair.by_text,
        "sentence": pair.sentence,
        "differences": [{"setting": name, "first": a, "other": b} for name, a, b in pair.differences],
    }


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
