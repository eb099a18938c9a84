"""Experiments on a terminal: started, waited for, and printed as tables with the paper's figures beside ours."""

from __future__ import annotations

from dataclasses import dataclass, replace

from app.evaluate.experiment_exports import experiment_json
from app.evaluate.experiment_layout import ExperimentTable
from app.evaluate.experiment_service import ExperimentRequest, ExperimentService
from app.evaluate.experiments import Experiment, ExperimentPlan
from app.evaluate.runs import EvaluationView
from app.evaluate.service import EvaluationService
from app.evaluate.terminal import print_layout
from app.shared.operations import Json
from app.shared.terminal import wait_for_all
from app.shared.wiring import Services
from coft_core.suites.base import Outside


@dataclass(frozen=True, slots=True)
class ExperimentRun:
    """An experiment that is run."""

    plan: ExperimentPlan
    view: EvaluationView
    tables: tuple[ExperimentTable, ...] = ()


def begin(wired: Services, request: ExperimentRequest) -> ExperimentRun:
    """Start an experiment."""
    plan = wired[ExperimentService].plan(request)
    service = wired[EvaluationService]
    return ExperimentRun(plan, service.view(service.submit(plan.request)))


def finish(wired: Services, run: ExperimentRun, quiet: bool) -> ExperimentRun:
    """Wait for an experiment's evaluation, and make its tables."""
    evaluation = run.view.id
    if run.view.job is not None:
        wait_for_all(
            wired,
            [run.view.job.id],
            lambda: wired[EvaluationService].cancel(evaluation),
            f"evaluations resume {evaluation}",
            "The evaluation",
            quiet,
        )
    return replace(made(wired, evaluation), plan=run.plan)


def made(wired: Services, evaluation_id: int, outside: Outside = "floor") -> ExperimentRun:
    """The tables of an experiment, of what its evaluation has kept so far."""
    service, view = wired[ExperimentService], wired[EvaluationService].view(evaluation_id)
    return ExperimentRun(service.plan_of(view), view, tuple(service.tables(evaluation_id, outside)))


# As JSON, and in words.


def run_json(run: ExperimentRun) -> Json:
    """An experiment with its tables."""
    return experiment_json(run.plan, run.view, run.tables)


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
    if run.view.plans:
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
