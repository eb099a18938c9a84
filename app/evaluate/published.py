"""An evaluation as the record that formats of other programs are written from."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from app.evaluate.runs import EvaluationView, SuitePlan
from app.evaluate.tables import Cell, Column, Table
from app.shared.json import settings_json
from app.shared.operations import Json
from app.shared.results.record import Dataset, Result, Results, Sample, metric_name
from coft_core.suites.base import Figure
from coft_core.suites.statistics import PERCENT


def results_of(view: EvaluationView, tables: Sequence[Table], samples: Iterable[Json] = ()) -> Results:
    """The record; ``tables`` are of one suite each, and ``samples`` as their file has them."""
    plans = {plan.suite: plan for plan in view.plans}
    return Results(
        kind="evaluation",
        name=view.name,
        model=view.request.model,
        weights_digest=view.request.weights_digest,
        created=view.created_at,
        datasets=tuple(_dataset(table, plans.get(table.suite)) for table in tables),
        results=tuple(result for table in tables for result in _results(table)),
        methods={
            method.label: {
                **settings_json(method.settings), "calibrated": method.calibrated, "dropped": method.dropped,
            }
            for method in view.request.methods
        },
        samples=tuple(map(_sample, samples)),
    )  # fmt: skip


def metric(column: Column) -> str:
    """A figure's name as programs write it."""
    return metric_name(column.figure, column.part)


def scale(column: Column | Figure) -> float:
    """What a number is divided by for programs, for which shares are from 0 to 1."""
    return PERCENT if column.percent else 1.0


def _dataset(table: Table, plan: SuitePlan | None) -> Dataset:
    """What a suite was read from, and how many items every method read, over all seeds."""
    title = next((column.suite_title for column in table.columns), table.suite)
    compared = min((reading.compared for row in table.rows for reading in row.readings), default=0)
    if plan is None:
        return Dataset(table.suite, title, effective=compared)
    return Dataset(table.suite, title, plan.release, plan.digest, plan.items, compared)


def _results(table: Table) -> list[Result]:
    """Means over seeds with intervals and standard errors; figures without a value are left out."""
    return [
        _result(row.method, column, cell, cell.value)
        for row in table.rows
        for column, cell in zip(table.columns, row.cells, strict=True)
        if cell is not None and cell.value is not None and math.isfinite(cell.value)
    ]


def _result(method: str, column: Column, cell: Cell, value: float) -> Result:
    divided_by = scale(column)
    low, high = (None if end is None else end / divided_by for end in (cell.low, cell.high))
    value /= divided_by
    error = math.nan if cell.draws is None else float(np.std(cell.draws, ddof=1)) / divided_by
    least = -1.0 if column.better == "near zero" else 0.0
    return Result(
        suite=column.suite,
        metric=metric(column),
        value=value,
        n=cell.n,
        what=column.what,
        method=method,
        low=low,
        high=high,
        error=error if math.isfinite(error) else None,
        better=column.better,
        bounds=(least, 1.0) if column.percent and least <= value <= 1.0 else None,
    )


def _sample(told: Json) -> Sample:
    """An item from its line of the samples' file."""
    score, named = told["score"], ("suite", "policy", "seed", "id", "prompt", "answer", "score")
    return Sample(
        suite=told["suite"],
        item=told["id"],
        prompt=_text(told["prompt"]),
        answer=_text(told["answer"]),
        method=told["policy"],
        seed=told["seed"],
        scores={} if score is None else {"score": score},
        facts={name: value for name, value in told.items() if name not in named},
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
