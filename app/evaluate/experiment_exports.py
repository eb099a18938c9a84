"""An experiment's tables as files, and as plain JSON: the paper's rows beside ours, and the notes below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain

from app.evaluate.experiment_layout import ExperimentTable
from app.evaluate.experiments import ExperimentPlan
from app.evaluate.exports import finite, json_text, layout_latex, page_html, table_fragment
from app.evaluate.runs import EvaluationView
from app.shared.files import to_csv
from app.shared.operations import Json

CSV_COLUMNS = ("table", "row", "source", "column", "value", "deviation", "low", "high", "n", "what", "unscored")
"""One row a cell; those of the paper have a source."""


def experiment_content(plan: ExperimentPlan, view: EvaluationView, tables: Sequence[ExperimentTable], form: str) -> str:
    """Tables of an experiment as the text of a file."""
    if form == "csv":
        return to_csv(CSV_COLUMNS, chain.from_iterable(map(_cells, tables)))
    if form == "json":
        return json_text(experiment_json(plan, view, tables))
    if form == "latex":
        return "\n".join(layout_latex(own.layout, f"{own.title}: {plan.model}", own.notes) for own in tables)
    return page_html(
        "experiment.html.j2",
        experiment=plan.experiment,
        view=view,
        tables=[(own.title, table_fragment(own.layout, own.title), own.notes) for own in tables],
    )


def _cells(table: ExperimentTable) -> Iterator[dict[str, object]]:
    for (row, _), values in zip(table.layout.lines, table.layout.numbers, strict=True):
        for column, value in zip(table.layout.heads, values, strict=True):
            if value is not None:
                place = {"table": table.title, "row": row.title, "source": row.source, "column": column.title}
                yield {**place, **asdict(value)}


def experiment_json(plan: ExperimentPlan, view: EvaluationView, tables: Sequence[ExperimentTable]) -> Json:
    """An experiment with its tables; what is not finite is null."""
    experiment = plan.experiment
    return {
        "title": experiment.title,
        "source": experiment.source,
        "shows": experiment.shows.strip(),
        "differs": [sentence.strip() for sentence in experiment.differs],
        "model": plan.model,
        "evaluation_id": view.id,
        "suites": dict(plan.suites),
        "methods": [method.label for method in plan.methods],
        "left_out": list(plan.left_out),
        "tables": [finite(table_json(table)) for table in tables],
    }


def table_json(table: ExperimentTable) -> Json:
    """A table of an experiment; a row of the paper's has a source."""
    return {
        "title": table.title,
        "columns": [head.title for head in table.layout.heads],
        "rows": [
            {
                "head": head.title,
                "source": head.source,
                "cells": [None if cell is None else asdict(cell) for cell in cells],
                "numbers": [None if value is None else asdict(value) for value in numbers],
            }
            for (head, cells), numbers in zip(table.layout.lines, table.layout.numbers, strict=True)
        ],
        "notes": list(table.notes),
    }
