"""Evaluations: methods read benchmarks; listed, shown, resumed, opened item by item, and their tables."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from app.evaluate import words
from app.evaluate.asked import EstimateOptions, EvaluateOptions, evaluation_request, refuse_beside_experiment
from app.evaluate.coefficients import Coefficients, CoefficientService
from app.evaluate.experiments.figures import Experiment
from app.evaluate.experiments.named import EXPERIMENTS
from app.evaluate.experiments.service import ExperimentRun, ExperimentService
from app.evaluate.exports import table_json
from app.evaluate.layout import Elsewhere
from app.evaluate.methods import METHOD_SETS, suite_sets
from app.evaluate.opening import OpenedItem
from app.evaluate.results import RESULTS, SAMPLES, ResultFiles
from app.evaluate.runs import EvaluationEstimate, EvaluationSummary, EvaluationView, KnownSuite
from app.evaluate.service import EvaluationService
from app.evaluate.table_service import EvaluationTable, TableRequest, TableService
from app.evaluate.terminal import (
    print_coefficients,
    print_estimate,
    print_evaluation,
    print_evaluations,
    print_experiment,
    print_opened,
    print_sets,
    print_suites,
    print_table,
)
from app.report.service import ReportService
from app.shared.errors import ServiceError
from app.shared.files import write_text
from app.shared.json import job_json, settings_json
from app.shared.needs import EXPORT, LEAD, READ, WORK
from app.shared.operations import Json, OnTerminal, Progress, command, operation
from app.shared.results.formats import SHARED, WITH_SAMPLES, SharedFormat, deliver
from app.shared.results.publication import Publication
from app.shared.terminal import wait_for_all
from app.shared.wiring import Services
from coft_core.step_numbers import finite
from coft_core.suites.base import Outcome, Outside

# As JSON.


def evaluation_json(view: EvaluationView) -> Json:
    """An evaluation with how far it is and what is said of its thresholds."""
    request, experiment = view.request, view.request.experiment
    asked = {
        **asdict(request),
        "methods": [{**asdict(own), "settings": settings_json(own.settings)} for own in request.methods],
        "experiment": "" if experiment is None else experiment.name,
    }
    return {
        "evaluation_id": view.id,
        "name": view.name,
        "created_at": view.created_at.isoformat(),
        "settings": {**asked, "judges": dict(request.judges)},
        "job": None if view.job is None else job_json(view.job),
        **{name: getattr(view, name) for name in ("resumable", "done", "planned")},
        "suites": [asdict(plan) for plan in view.plans],
        "progress": [asdict(part) for part in view.progress],
        "calibrations": [asdict(note) for note in view.calibrations],
        "left_out": [] if experiment is None else list(experiment.left_out),
        "notes": list(view.notes),
    }


def summary_json(summary: EvaluationSummary) -> Json:
    """An evaluation in a list."""
    request = summary.request
    return {
        "name": summary.name,
        "model": request.model,
        "suites": request.suites,
        "methods": tuple(method.label for method in request.methods),
        "done": summary.done,
        "planned": summary.planned,
        "experiment": "" if request.experiment is None else request.experiment.title,
        "evaluation_id": summary.id,
        "created_at": summary.created_at.isoformat(),
        "job": None if summary.job is None else job_json(summary.job),
    }


def estimate_json(estimate: EvaluationEstimate) -> Json:
    """What an evaluation will take."""
    return {**asdict(estimate), "seconds": estimate.seconds, "missing": list(estimate.said)}


# What is offered.


@operation(
    need=READ, json=lambda suites: [asdict(suite) for suite in suites], command="evaluations suites", text=print_suites
)
def evaluation_suites(wired: Services, *, data: str = "", read: bool = False) -> tuple[KnownSuite, ...]:
    """List the benchmarks that can be evaluated on, with whether their files are there.

    Args:
        data: folder with the suites' files (default: COFT_DATA)
        read: read all files, so that items are counted and damage is found, which takes some seconds

    Returns:
        A list of suites: key, title, kind, citation, licence, main (the key of its main figure), judges, card (what it
        measures, what it leaves_out, its criticism and sizes), source, items, release, and missing, which says why one
        cannot be read.
    """
    return wired[EvaluationService].suites(data, read)


@operation(need=READ, json=dict, command="evaluations sets", text=print_sets)
def evaluation_sets(wired: Services) -> dict[str, dict[str, list[str]]]:
    """List the names that stand for several suites or methods.

    Returns:
        Two objects, suites and methods, each with a list of short names by the name of the set.
    """
    suites = suite_sets(wired[EvaluationService].known_suites())
    return {
        "suites": {name: list(keys) for name, keys in suites.items()},
        "methods": {name: list(texts) for name, texts in METHOD_SETS.items()},
    }


@operation(need=READ, json=estimate_json)
def estimate_evaluation(wired: Services, settings: Json) -> EvaluationEstimate:
    """Say what an evaluation will take, by a trial of each suite; nothing is kept of it.

    Args:
        settings: As for run_evaluation.

    Returns:
        An object: suites (a list with items, asks, tokens read and written by each method, seconds of all, and
        too_small, which names the suite where thresholds will say nothing), seconds in all, and missing, a list of
        sentences on what prevents it or will say nothing.
    """
    return wired[EvaluationService].estimate(evaluation_request(wired, settings))


@command("evaluations estimate", json=estimate_json, text=print_estimate)
def estimate(wired: Services, *, options: EstimateOptions) -> EvaluationEstimate:
    """Say what an evaluation will take, by a trial of each suite."""
    return wired[EvaluationService].estimate(options.asked(wired))


@operation(need=LEAD, json=evaluation_json)
def run_evaluation(wired: Services, settings: Json) -> EvaluationView:
    """Start an evaluation, which reads benchmarks with methods and keeps what came of every item, without waiting.

    Args:
        settings: name, suites (a list of keys, or of sets that evaluation_sets lists) and methods (a list of short
            names such as "vanilla", "coft:calibrated,lam=0.4" or "table1", or of objects with label, settings as in
            start_audit, calibrated and dropped); and optionally model, seeds, limit (items of a suite), data (folder
            with the suites' files), calibration_share, judges (what judges written texts, by the judgement) and
            encoding ("together": given texts are tokenized with their prompts, or "apart"). In place of suites and
            methods, experiment names a table of the paper that list_experiments gives, and given says what its methods
            need, such as {"cda.checkpoint": "FOLDER"}; it keeps at least calibration_share of the items apart.

    Returns:
        The evaluation: evaluation_id, name, settings, job, resumable, done, planned, suites, progress and calibrations;
        ask show_evaluation how far it is.
    """
    service = wired[EvaluationService]
    return service.view(service.submit(evaluation_request(wired, settings)))


def _follow(wired: Services, view: EvaluationView, quiet: bool) -> EvaluationView:
    """Wait for an evaluation; an interruption keeps what is done."""
    if view.job is None:
        raise ServiceError(f"Nothing is known of the run of evaluation {view.id}; resume it.")
    cancel = lambda: wired[EvaluationService].cancel(view.id)  # noqa: E731
    wait_for_all(wired, [view.job.id], cancel, f"evaluations resume {view.id}", "The evaluation", quiet)
    return wired[EvaluationService].view(view.id)


@dataclass(frozen=True, slots=True)
class EvaluateRun:
    """An evaluation that a command began, and where its figures are written once they are there.

    Of an experiment that was asked for by name there are tables in place of figures.
    """

    view: EvaluationView
    out: Path | None = None
    named: bool = False
    results: Json = field(default_factory=dict)
    tables: ExperimentRun | None = None


def _run_json(found: EvaluateRun) -> Json:
    if found.tables is not None:
        return found.tables.json()
    return {"results": finite(found.results), **evaluation_json(found.view)}


def _follow_any(wired: Services, found: EvaluateRun, quiet: bool) -> EvaluateRun:
    # Of one that is resumed when everything is done, only the files are written again.
    done = found.view.done == found.view.planned and not found.named
    view = found.view if done else _follow(wired, found.view, quiet)
    if found.named:
        return replace(found, view=view, tables=wired[ExperimentService].shown(view.id))
    files = wired[ResultFiles]
    results = files.results(view)
    if found.out is not None:
        files.write(view, results, evaluation_json(view)["settings"], found.out)
    return replace(found, view=view, results=results)


def _print_run(found: EvaluateRun) -> None:
    if found.tables is not None:
        print_experiment(found.tables)
        return
    print_evaluation(found.view)
    if found.out is not None:
        print(f"Written: {found.out / RESULTS} and {SAMPLES}")


def _resumed(wired: Services, named: Path) -> EvaluateRun:
    """Go on with the evaluation of a folder, or with that of a number."""
    service = wired[EvaluationService]
    folder = None if str(named).isdigit() and not named.exists() else named
    number = int(str(named)) if folder is None else wired[ResultFiles].begun(folder)
    view = service.view(number)
    if view.resumable or view.running:
        service.resume(number)
        view = service.view(number)
    return EvaluateRun(view, folder)


@command("evaluate", json=_run_json, wait=_follow_any, text=_print_run)
def evaluate(
    wired: Services,
    *,
    options: EvaluateOptions,
    out: Annotated[Path | None, typer.Option("--out", metavar="FOLDER")] = None,
    resume: Annotated[Path | None, typer.Option("--resume", metavar="FOLDER|NUMBER")] = None,
) -> EvaluateRun:
    """Read benchmarks with methods, and keep what came of every item; or make a table of the paper.

    Args:
        out: also write results.json and samples.jsonl, a line an item, into this folder
        resume: go on with the evaluation that wrote into this folder, or with the one that has this number; all other
            options are its own
    """
    if resume is not None:
        return _resumed(wired, resume)
    service = wired[EvaluationService]
    if options.experiment and out is not None:
        refuse_beside_experiment(["--out"])
    asked = options.asked(wired)
    number = service.submit(replace(asked, name=asked.name or ", ".join(asked.suites)))
    if out is not None:
        wired[ResultFiles].begin(number, out)
    return EvaluateRun(service.view(number), out, named=bool(options.experiment))


def _listed_json(experiments: tuple[Experiment, ...]) -> list[Json]:
    return [
        {
            **{part: getattr(own, part) for part in ("name", "title", "source", "shows")},
            "suites": list(own.suites),
            "methods": [method.label for method in own.evaluated()],
        }
        for own in experiments
    ]


def _print_listed(experiments: tuple[Experiment, ...]) -> None:
    for own in experiments:
        print(f"{own.name:<22} {own.title} ({own.source})")


@operation(need=READ, json=_listed_json, command="evaluations experiments", text=_print_listed)
def list_experiments(wired: Services) -> tuple[Experiment, ...]:
    """List the named experiments, each with the table of the paper that it makes.

    Returns:
        A list of experiments: name, title, source (what of the paper it is), shows, suites and methods.
    """
    return tuple(EXPERIMENTS.values())


@operation(
    need=READ,
    json=lambda listed: [summary_json(item) for item in listed],
    command="evaluations list",
    text=print_evaluations,
)
def list_evaluations(wired: Services) -> tuple[EvaluationSummary, ...]:
    """List evaluations, newest first.

    Returns:
        A list of evaluations: evaluation_id, name, model, suites, methods, created_at, done, planned, experiment (the
        title of the one that it is of) and job.
    """
    return wired[EvaluationService].list()


@operation(need=READ, json=evaluation_json, command="evaluations show", text=print_evaluation)
def show_evaluation(wired: Services, evaluation_id: int) -> EvaluationView:
    """Say how far an evaluation is, what was read of each suite, and what its thresholds rest on.

    Args:
        evaluation_id: number of an evaluation

    Returns:
        The evaluation: evaluation_id, name, settings, job, resumable, done, planned, suites (release and digests of
        what was read), progress (items done by suite, method and seed), calibrations (contexts, measured coverage
        with its 95 % interval, and bins that say nothing), and left_out (what of its experiment takes no part).
    """
    return wired[EvaluationService].view(evaluation_id)


def _outcomes_json(found: tuple[str, str, tuple[Outcome, ...]]) -> Json:
    suite, method, outcomes = found
    # JSON has no infinities; a text of probability 0 has no likelihood there.
    return {"suite": suite, "method": method, "outcomes": [finite(asdict(own)) for own in outcomes]}


@operation(need=READ, json=_outcomes_json)
def evaluation_outcomes(
    wired: Services, evaluation_id: int, suite: str, method: str
) -> tuple[str, str, tuple[Outcome, ...]]:
    """Give what became of every item of a suite under a method, of which figures are made.

    Args:
        evaluation_id: The evaluation.
        suite: Key of the suite.
        method: Label of the method.

    Returns:
        An object with suite, method and outcomes: item, unit, facts, answers, marks and seed.
    """
    return suite, method, wired[EvaluationService].outcomes(evaluation_id, suite, method)


@operation(need=WORK, json=asdict, command="evaluations open", text=print_opened)
def open_evaluation_item(
    wired: Services, evaluation_id: int, suite: str, method: str, item: str, *, seed: int = 0, text: int = 0
) -> OpenedItem:
    """Start an audit of what an item asked: its prompt and spans, the method's settings and thresholds, its own seed.

    Args:
        evaluation_id: number of an evaluation
        suite: key of the suite
        method: label of the method
        item: id of the item
        seed: seed of the run
        text: which of the texts of a choice the audit writes, counted from 0

    Returns:
        An object: session_id, branch_id (the branch that writes the text), and note.
    """
    return wired[EvaluationService].open_item(evaluation_id, suite, method, item, seed, text)


@operation(need=LEAD, json=evaluation_json, command="evaluations resume", wait=_follow, text=print_evaluation)
def resume_evaluation(wired: Services, evaluation_id: int) -> EvaluationView:
    """Go on with what is not done of an evaluation.

    Args:
        evaluation_id: number of an evaluation

    Returns:
        The evaluation, as show_evaluation gives it.
    """
    wired[EvaluationService].resume(evaluation_id)
    return wired[EvaluationService].view(evaluation_id)


@operation(need=LEAD, json=evaluation_json)
def cancel_evaluation(wired: Services, evaluation_id: int) -> EvaluationView:
    """Ask a running evaluation to stop; what is done is kept, and it can be resumed.

    Args:
        evaluation_id: The evaluation.

    Returns:
        The evaluation, as show_evaluation gives it; its job may still be at work for a moment.
    """
    wired[EvaluationService].cancel(evaluation_id)
    return wired[EvaluationService].view(evaluation_id)


@operation(need=LEAD, json=str, command="evaluations delete")
def delete_evaluation(wired: Services, evaluation_id: int) -> str:
    """Delete an evaluation, with the outcomes that no other one has; audits that were opened from it stay.

    Args:
        evaluation_id: number of an evaluation

    Returns:
        A sentence.
    """
    wired[EvaluationService].delete(evaluation_id)
    return f"Evaluation {evaluation_id} deleted; audits that were opened from it stay."


# Tables.


def _elsewhere(wired: Services, beside: Path | None) -> tuple[Elsewhere, ...]:
    return () if beside is None else (wired[TableService].read_elsewhere(beside),)


def _table_json(shown: EvaluationTable | ExperimentRun) -> Json:
    if isinstance(shown, ExperimentRun):
        return shown.json()
    return {
        "evaluation_id": shown.view.id,
        "name": shown.view.name,
        "model": shown.view.request.model,
        **table_json(shown.table),
        "notes": words.notes(shown.table, shown.view.plans, bool(shown.elsewhere)),
        "elsewhere": [asdict(other) for other in shown.elsewhere],
    }


def _print_table(shown: EvaluationTable | ExperimentRun) -> None:
    if isinstance(shown, ExperimentRun):
        print_experiment(shown)
        return
    print_table(shown)
    if shown.view.request.experiment is not None:
        print(f"The paper's tables: python -m app evaluations table {shown.view.id} --experiment")


Reference = Annotated[str | None, typer.Option("--reference", metavar="METHOD")]


@operation(need=EXPORT, json=_table_json, command="evaluations table", text=_print_table)
def evaluation_table(
    wired: Services,
    evaluation_id: int,
    *,
    suite: str = "",
    reference: Reference = None,
    outside: Outside = "floor",
    beside: Path | None = None,
    experiment: Annotated[bool, OnTerminal()] = False,
) -> EvaluationTable | ExperimentRun:
    """Show the figures of an evaluation, made of what is kept: the main figure of every suite, or all of one suite.

    Args:
        evaluation_id: number of an evaluation
        suite: key of the suite whose figures are shown, those of its parts included
        reference: label of the method that others are compared with (default: the model alone); empty compares none
        outside: what a token counts as that a certified set refuses: floor (the threshold that it misses) or zero
        beside: results file of another run (JSON), whose figures are shown too
        experiment: in their place the tables of the experiment that it is of, with the paper's rows

    Returns:
        An object: columns (name, suite, figure, part, title, what is counted, and which values are better), and rows,
        one a method: cells by the column's name (value, the mean over seeds, with deviation; low and high, its 95 %
        interval; n, unscored, seeds, rank, best, and contrast to the reference), readings by suite (items, unread with
        reasons, compared, and the shares unmasked, refused and empty) and average_ranks by kind of suite; and notes,
        the sentences that belong to it.
    """
    if experiment:
        _refuse_beside_tables(suite, reference, beside)
        return wired[ExperimentService].shown(evaluation_id, outside)
    request = TableRequest(evaluation_id, suite, reference, outside, _elsewhere(wired, beside))
    return wired[TableService].table(request)


@operation(need=READ, json=ExperimentRun.json)
def experiment_tables(wired: Services, evaluation_id: int, outside: Outside = "floor") -> ExperimentRun:
    """Show the tables of the experiment that an evaluation is of, the paper's rows beside ours, made of what is kept.

    Args:
        evaluation_id: The evaluation.
        outside: As for evaluation_table.

    Returns:
        An object: title, source, shows, differs (how it differs from the paper's), model, suites (the one that was
        read, by the one that the experiment names), methods, left_out, and tables: title, columns, rows (head, source,
        which is empty for ours, cells as texts, and numbers: value, deviation over seeds, low and high of the 95 %
        interval, n and unscored) and notes.
    """
    return wired[ExperimentService].shown(evaluation_id, outside)


def _refuse_beside_tables(suite: str, reference: str | None, beside: Path | None, samples: bool = False) -> None:
    """The tables of an experiment have their own rows and columns."""
    given = {"suite": bool(suite), "reference": reference is not None, "beside": beside is not None, "samples": samples}
    if told := [name for name, there in given.items() if there]:
        raise ServiceError(
            f"The tables of an experiment have their own rows and columns; leave {' and '.join(told)} out, or "
            "experiment."
        )


def _refuse_beside_results(reference: str | None, beside: Path | None, samples: bool) -> None:
    """Formats of other programs hold the figures of one evaluation."""
    given = {"reference": reference is not None, "beside": beside is not None, "samples": samples}
    if told := [name for name, there in given.items() if there]:
        raise ServiceError(f"This format holds only what its own layout knows; leave {' and '.join(told)} out.")


@operation(need=EXPORT, answer="export", command="evaluations export")
def export_evaluation(
    wired: Services,
    evaluation_id: int,
    *,
    format: Literal["csv", "latex", "html", "json", SharedFormat] = "csv",
    suite: str = "",
    reference: Reference = None,
    outside: Outside = "floor",
    beside: Path | None = None,
    samples: bool = False,
    experiment: bool = False,
    publication: Publication | None = None,
    out: Annotated[Path | None, OnTerminal()] = None,
    folder: Path | None = None,
) -> Path | None:
    """Export a table of an evaluation as a file.

    Args:
        evaluation_id: number of an evaluation
        format: csv: one row a method and figure; latex, html: the table; json: a results file like that of
            lm-evaluation-harness, with all figures of every suite; lm-eval: only what that knows; every-eval-ever:
            schema 0.2.0; hub: a file of .eval_results; card: a section of a model card; inspect: a log of Inspect;
            signed: the results with every item, signed, by whose digest hub and card name their source
        suite: key of the suite whose figures are exported, those of its parts included
        reference: label of the method that others are compared with (default: the model alone); empty compares none
        outside: what a token counts as that a certified set refuses: floor (the threshold that it misses) or zero
        beside: results file of another run (JSON), whose figures are shown too; not with json
        samples: also every item, with what was asked and what came of it (json)
        experiment: the tables of the experiment that it is of, with the paper's rows (csv: one row a cell); without
            suite, reference, beside and samples
        publication: what only you know of a publication: organization, relationship, dataset, task, result, source_url
        out: file to write (default: standard output)

    Returns:
        The file.
    """
    if format in SHARED and not experiment:
        _refuse_beside_results(reference, beside, samples)
        view = wired[EvaluationService].view(evaluation_id)
        results = wired[ResultFiles].shared(view, suite, outside, samples=format in WITH_SAMPLES)
        content = wired[ReportService].shared(results, format, publication or Publication())
        return deliver(content, f"evaluation-{evaluation_id}", format, out, folder)
    if experiment:
        _refuse_beside_tables(suite, reference, beside, samples)
        if folder is not None:
            return wired[ExperimentService].write(evaluation_id, format, folder, outside)
        content = wired[ExperimentService].content(evaluation_id, format, outside)
    else:
        request = TableRequest(evaluation_id, suite, reference, outside, _elsewhere(wired, beside), samples)
        if folder is not None:
            return wired[TableService].write(request, format, folder)
        content = wired[TableService].content(request, format)
    if out is None:
        sys.stdout.write(content)
        return None
    return write_text(out, content)


# Coefficients.


@operation(need=READ, json=Coefficients.json, command="evaluations coefficients", text=print_coefficients, at_once=1)
def evaluation_coefficients(
    wired: Services,
    evaluation_id: int,
    *,
    suite: str = "",
    outside: Outside = "floor",
    progress: Progress | None = None,
) -> Coefficients:
    """Fit the mixed-effects model of DiscrimEval to the answers of every method.

    Args:
        evaluation_id: number of an evaluation
        suite: key of the suite; it need not be named where the evaluation has only one of DiscrimEval
        outside: as for evaluation_table

    Returns:
        evaluation_id, suite, title, outside, notes, and methods: a list of method, fitted and coefficients, by race,
        gender and age, each with value, low and high (95 %), n and unscored.
    """
    return wired[CoefficientService].coefficients(evaluation_id, suite, outside, progress)
