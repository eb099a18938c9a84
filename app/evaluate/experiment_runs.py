"""Experiments on a terminal: started, waited for, and printed as tables with the paper's figures beside ours."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from app.evaluate.experiment_layout import ExperimentTable
from app.evaluate.experiment_service import ExperimentPlan, ExperimentRequest, ExperimentService
from app.evaluate.experiments import Experiment
from app.evaluate.runs import EvaluationView
from app.evaluate.service import EvaluationService
from app.evaluate.terminal import print_layout
from app.shared.commands import progress_bar
from app.shared.operations import Json
from app.shared.terminal import wait_for_all
from app.shared.wiring import Services


@dataclass(frozen=True, slots=True)
class ExperimentRun:
    """An experiment that is run.

    Attributes:
        plan: What of it takes part.
        view: Its evaluation; None where it reads no suite.
        tables: Its tables, once they are made.
    """

    plan: ExperimentPlan
    view: EvaluationView | None
    tables: tuple[ExperimentTable, ...] = ()


def begin(wired: Services, request: ExperimentRequest) -> ExperimentRun:
    """Start an experiment.

    Raises:
        ServiceError: It cannot be run; the sentence says what is wrong.
        CoftError: The model or the data cannot be read.
    """
    plan = wired[ExperimentService].plan(request)
    if plan.request is None:
        return ExperimentRun(plan, None)
    service = wired[EvaluationService]
    return ExperimentRun(plan, service.view(service.submit(plan.request)))


def finish(wired: Services, run: ExperimentRun, quiet: bool) -> ExperimentRun:
    """Wait for an experiment's evaluation, measure what is measured, and make its tables.

    Raises:
        Stopped: It was interrupted; what is done is kept.
        ServiceError: The evaluation ended otherwise.
        CoftError: A method cannot be timed.
    """
    service, view = wired[ExperimentService], run.view
    if view is not None and view.job is not None:
        evaluation = view.id
        wait_for_all(
            wired,
            [view.job.id],
            lambda: wired[EvaluationService].cancel(evaluation),
            f"evaluations resume {evaluation}",
            "The evaluation",
            quiet,
        )
        view = wired[EvaluationService].view(evaluation)
    kept = service.tables(run.plan, None if view is None else view.id)
    with progress_bar(quiet) as moved:
        measured = service.measure(run.plan, moved or (lambda share, label: None))
    return replace(run, view=view, tables=(*kept, *measured))


# As JSON, and in words.


def experiment_json(run: ExperimentRun) -> Json:
    """An experiment with its tables."""
    experiment = run.plan.experiment
    return {
        "title": experiment.title,
        "source": experiment.source,
        "shows": experiment.shows.strip(),
        "differs": [sentence.strip() for sentence in experiment.differs],
        "model": run.plan.model,
        "evaluation_id": None if run.view is None else run.view.id,
        "suites": dict(run.plan.suites),
        "methods": [method.label for method in run.plan.methods],
        "left_out": list(run.plan.left_out),
        "tables": [table_json(table) for table in run.tables],
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
            }
            for head, cells in table.layout.lines
        ],
        "notes": list(table.notes),
    }


def print_experiment(run: ExperimentRun) -> None:
    """Its tables with their notes, and how it differs from the paper's."""
    experiment = run.plan.experiment
    print(f"{experiment.title} ({experiment.source}), {run.plan.model}")
    print(experiment.shows.strip())
    for table in run.tables:
        print(f"\n{table.title}")
        print_layout(table.layout)
        for note in table.notes:
            print(f"- {note}")
    if experiment.differs:
        print("\nNot as in the paper:")
        for sentence in experiment.differs:
            print(f"- {sentence.strip()}")
    if run.view is not None:
        print(f"\nAll figures, and what was read: python -m app evaluations table {run.view.id}")


def listed_json(experiments: tuple[tuple[str, Experiment], ...]) -> list[Json]:
    """The shipped experiments."""
    return [
        {
            "name": name,
            "title": experiment.title,
            "source": experiment.source,
            "shows": experiment.shows.strip(),
            "suites": list(experiment.suites),
            "methods": [method.label for method in experiment.evaluated()],
        }
        for name, experiment in experiments
    ]


def print_experiments(experiments: tuple[tuple[str, Experiment], ...]) -> None:
    """One line an experiment."""
    for name, experiment in experiments:
        print(f"{name:<22} {experiment.title} ({experiment.source})")
