"""Evaluations: methods read benchmarks; listed, shown, resumed, opened item by item, and their tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from app.evaluate import words
from app.evaluate.coefficients import (
    CoefficientRequest,
    Coefficients,
    CoefficientService,
)
from app.evaluate.experiments.figures import Experiment
from app.evaluate.experiments.service import ExperimentPlan, ExperimentRequest, ExperimentRun, ExperimentService
from app.evaluate.exports import finite, table_json
from app.evaluate.layout import Elsewhere
from app.evaluate.methods import METHOD_SETS, method_from, methods_from, suite_sets, suites_from
from app.evaluate.opening import OpenedItem
from app.evaluate.results import RESULTS, SAMPLES, ResultFiles
from app.evaluate.runs import (
    EvaluationEstimate,
    EvaluationMethod,
    EvaluationRequest,
    EvaluationSummary,
    EvaluationView,
    KnownSuite,
    SuiteOutcomes,
)
from app.evaluate.service import EvaluationService
from app.evaluate.table_service import EvaluationTable, TableRequest, TableService
from app.evaluate.terminal import (
    print_coefficients,
    print_estimate,
    print_evaluation,
    print_evaluations,
    print_layout,
    print_opened,
    print_sets,
    print_suites,
    print_table,
)
from app.shared.audits import AuditSettings
from app.shared.errors import ServiceError
from app.shared.files import write_text
from app.shared.json import job_json, settings_json
from app.shared.needs import EXPORT, LEAD, READ, WORK
from app.shared.operations import Json, OnTerminal, Progress, checked, command, operation, record
from app.shared.policies import parameter_values, policy_info
from app.shared.terminal import pairs, wait_for_all
from app.shared.wiring import Services
from coft_core.suites.base import Encoding, Outside

USUAL = EvaluationRequest("", (), ())

# As JSON.


def method_json(method: EvaluationMethod) -> Json:
    """A method, the policy's own parameters as an object."""
    return {**asdict(method), "settings": settings_json(method.settings)}


def evaluation_json(view: EvaluationView) -> Json:
    """An evaluation with how far it is and what is said of its thresholds."""
    request, experiment = view.request, view.request.experiment
    asked = {
        **asdict(request),
        "methods": [method_json(method) for method in request.methods],
        "experiment": "" if experiment is None else experiment.name,
    }
    return {
        "evaluation_id": view.id,
        "name": view.name,
        "created_at": view.created_at.isoformat(),
        "settings": {**asked, "judges": dict(request.judges)},
        "job": None if view.job is None else job_json(view.job),
        "resumable": view.resumable,
        "done": view.done,
        "planned": view.planned,
        "suites": [asdict(plan) for plan in view.plans],
        "progress": [asdict(part) for part in view.progress],
        "calibrations": [asdict(note) for note in view.calibrations],
        "left_out": [] if experiment is None else list(experiment.left_out),
        "notes": list(view.notes),
    }


def summary_json(summary: EvaluationSummary) -> Json:
    """An evaluation in a list."""
    return {
        **{
            name: getattr(summary, name)
            for name in ("name", "model", "suites", "methods", "done", "planned", "experiment")
        },
        "evaluation_id": summary.id,
        "created_at": summary.created_at.isoformat(),
        "job": None if summary.job is None else job_json(summary.job),
    }


def estimate_json(estimate: EvaluationEstimate) -> Json:
    """What an evaluation will take."""
    return {**asdict(estimate), "seconds": estimate.seconds}


# What is asked for.


def asked(wired: Services, given: Json) -> EvaluationRequest | ExperimentPlan:
    """What is asked for, from JSON in which suites and methods have the short names that a command has.

    Raises:
        ServiceError: There is no such setting, suite, set, method or experiment, or one cannot take its value.
        ModelLoadError: The model of an experiment cannot be loaded.
    """
    texts = {name: checked(f"The setting {name}", dict[str, str], given.get(name, {})) for name in ("judges", "given")}
    if given.get("experiment"):
        _refuse_beside_experiment([name for name in ("suites", "methods", "calibration_share") if name in given])
        named = {name: value for name, value in given.items() if name not in texts}
        judges, needs = (tuple(told.items()) for told in texts.values())
        request = record(ExperimentRequest, named, others=tuple(texts), model=wired.settings.model)
        return wired[ExperimentService].plan(replace(request, judges=judges, given=needs))
    named = {name: value for name, value in given.items() if name not in ("suites", "methods", "judges", "experiment")}
    suites = checked("The setting suites", list[str], given.get("suites", []))
    return record(
        EvaluationRequest,
        named,
        others=("judges",),
        name="",
        suites=suites_from(suites, wired[EvaluationService].known_suites()),
        methods=_methods(given.get("methods", [])),
        model=wired.settings.model,
        judges=tuple(texts["judges"].items()),
    )


def evaluation_request(wired: Services, given: Json) -> EvaluationRequest:
    """The request of an evaluation, of an experiment's too; see :func:`asked`."""
    found = asked(wired, given)
    return found.request if isinstance(found, ExperimentPlan) else found


def _refuse_beside_experiment(told: Sequence[str]) -> None:
    if told:
        raise ServiceError(f"An experiment has its own suites, methods and settings; leave {' and '.join(told)} out.")


def _methods(given: Any) -> tuple[EvaluationMethod, ...]:
    if not isinstance(given, (list, tuple)):
        raise ServiceError('The setting methods must be a list, such as ["vanilla", "coft:calibrated"].')
    base = AuditSettings()
    listed: list[EvaluationMethod] = []
    for item in given:
        listed += methods_from((item,), base) if isinstance(item, str) else [_method(item)]
    return tuple(dict.fromkeys(listed))


def _method(given: Any) -> EvaluationMethod:
    """A method that is described by its settings."""
    if isinstance(given, EvaluationMethod):
        return given
    if not isinstance(given, dict):
        raise ServiceError(f"A method must be a short name or an object with label and settings, not {given!r:.80}.")
    settings = dict(given.get("settings") or {})
    parameters = settings.pop("parameters", {})
    read = record(AuditSettings, settings)
    values = parameter_values(policy_info(read.policy), checked("The setting parameters", dict[str, Any], parameters))
    rest = {name: value for name, value in given.items() if name != "settings"}
    return record(EvaluationMethod, rest, "method's field", settings=replace(read, parameters=values))


@dataclass(frozen=True, kw_only=True)
class EstimateOptions:
    """What a terminal asks for.

    Attributes:
        suite: suites by key, as 'evaluations suites' lists them, or sets of them; may be given several times
        method: a method as 'policies' lists it, with options, such as coft:calibrated,lam=0.4; LABEL=NAME labels it,
            and 'evaluations sets' lists names that stand for several; may be given several times (default: table1)
        model: 'demo', a hub id, or a folder (default: COFT_MODEL)
        seeds: seeds of the runs; each has its own calibration share (default: 0,1,2)
        limit: whole units of each suite are drawn until there are so many items
        data: folder with the suites' files (default: COFT_DATA)
        judges: what judges written texts, e.g. toxicity=embedded,sentiment=FOLDER
        experiment: a named experiment, as 'evaluations experiments' lists them; it has its
            own suites, methods and settings, and its tables are printed with the paper's figures beside ours
        given: what methods of an experiment need, such as cda.checkpoint=FOLDER
    """

    suite: Annotated[list[str] | None, typer.Option("--suite", "--suites", metavar="NAME[,NAME]")] = None
    method: Annotated[list[str] | None, typer.Option("--method", metavar="NAME[:OPTION,OPTION]")] = None
    model: str = ""
    seeds: Annotated[str, typer.Option("--seeds", "--seed", metavar="SEED[,SEED]")] = ""
    limit: int | None = None
    data: str = ""
    judges: Annotated[str | None, typer.Option("--judges", metavar="NAME=SOURCE,...")] = None
    experiment: Annotated[str, typer.Option("--experiment", metavar="NAME|FILE")] = ""
    given: Annotated[str | None, typer.Option("--set", metavar="POLICY.PARAMETER=VALUE,...")] = None

    def asked(self, wired: Services) -> EvaluationRequest | ExperimentPlan:
        """What is asked for."""
        told: Json = {
            "model": self.model,
            "seeds": [part.strip() for part in self.seeds.split(",") if part.strip()],
            "limit": self.limit,
            "data": self.data,
            "judges": pairs("--judges", self.judges),
        }
        if self.experiment:
            _refuse_beside_experiment(self._beside_experiment())
            told |= {"experiment": self.experiment, "given": pairs("--set", self.given)}
        elif self.given is not None:
            raise ServiceError("--set gives what an experiment's methods need; name it with --experiment.")
        else:
            told |= self._own()
        return asked(wired, {name: value for name, value in told.items() if value not in (None, "", [], ())})

    def _own(self) -> Json:
        """What an experiment says itself."""
        return {"suites": self.suite, "methods": methods_from(self.method or ["table1"], AuditSettings())}

    def _beside_experiment(self) -> list[str]:
        """Options that were given and that an experiment says itself."""
        shared, usual = ("model", "seeds", "limit", "data", "judges", "experiment", "given"), type(self)()
        own = [item.name for item in fields(self) if item.name not in shared]
        return [f"--{name.replace('_', '-')}" for name in own if getattr(self, name) != getattr(usual, name)]


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(EstimateOptions):
    """What a terminal asks to be run.

    Attributes:
        policies: methods without options, labelled by their names
        name: name of the evaluation (default: its suites)
        share: share of the items on which thresholds are fitted; those are not evaluated
        temperature: sampling temperature of all methods
        top_p: nucleus mass of all methods; 1 is off
        top_k: 0 is off
        encoding: whether given texts are tokenized together with their prompts, as in lm-evaluation-harness, or apart
            where a token would reach over the border
    """

    policies: Annotated[str, typer.Option("--policies", "--policy", metavar="NAME[,NAME]")] = ""
    name: str = ""
    share: float = USUAL.calibration_share
    temperature: float = AuditSettings().temperature
    top_p: float = AuditSettings().top_p
    top_k: int = AuditSettings().top_k
    encoding: Encoding = USUAL.encoding

    def _own(self) -> Json:
        base = replace(AuditSettings(), temperature=self.temperature, top_p=self.top_p, top_k=self.top_k)
        plain = [part.strip() for part in self.policies.split(",") if part.strip()]
        labelled = [replace(method_from(part, base), label=part) for part in plain]
        listed = self.method or ([] if plain else ["table1"])
        return {
            "name": self.name,
            "suites": self.suite,
            "methods": [*labelled, *methods_from(listed, base)],
            "calibration_share": self.share,
            "encoding": self.encoding,
        }


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


def _estimated(wired: Services, found: EvaluationRequest | ExperimentPlan) -> EvaluationEstimate:
    if isinstance(found, ExperimentPlan):
        return wired[ExperimentService].estimate(found)
    return wired[EvaluationService].estimate(found)


@operation(need=READ, json=estimate_json)
def estimate_evaluation(wired: Services, settings: Json) -> EvaluationEstimate:
    """Say what an evaluation will take, by a trial of each suite; nothing is kept of it.

    Args:
        settings: As for run_evaluation.

    Returns:
        An object: suites (a list with items, asks, tokens read and written by each method, and seconds of all), seconds
        in all, and missing, a list of sentences on what stands in the way.
    """
    return _estimated(wired, asked(wired, settings))


@command("evaluations estimate", json=estimate_json, text=print_estimate)
def estimate(wired: Services, *, options: EstimateOptions) -> EvaluationEstimate:
    """Say what an evaluation will take, by a trial of each suite."""
    return _estimated(wired, options.asked(wired))


@operation(need=LEAD, json=evaluation_json)
def run_evaluation(wired: Services, settings: Json) -> EvaluationView:
    """Start an evaluation, which reads benchmarks with methods and keeps what came of every item, without waiting.

    Args:
        settings: name, suites (a list of keys, or of sets that evaluation_sets lists) and methods (a list of short
            names such as "vanilla", "coft:calibrated,lam=0.4" or "table1", or of objects with label, settings as in
            start_audit, calibrated and dropped); and optionally model, seeds, limit (items of a suite), data (folder
            with the suites' files), calibration_share, judges (what judges written texts, by the judgement) and
            encoding ("together": given texts are tokenized with their prompts, or "apart"). In place of suites,
            methods and calibration_share, experiment names a table of the paper that list_experiments gives, and given
            says what its methods need, such as {"cda.checkpoint": "FOLDER"}.

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
    """An evaluation that a command began, with its figures once they are there, and where they are written."""

    view: EvaluationView
    out: Path | None = None
    results: Json = field(default_factory=dict)
    tables: ExperimentRun | None = None
    """The tables of an experiment that was asked for by name, in place of results."""


def print_experiment(run: ExperimentRun) -> None:
    """The tables of an experiment with their notes, and how it differs from the paper's."""
    experiment = run.plan.experiment
    print(f"{experiment.title} ({experiment.source}), {run.plan.request.model}")
    print(experiment.shows)
    for table in run.tables:
        print(f"\n{table.title}")
        print_layout(table.layout)
        print(*(f"- {note}" for note in table.notes), sep="\n")
    print("\nNot as in the paper:", *(f"- {sentence}" for sentence in experiment.differs), sep="\n")
    if run.view.plans:
        print(f"\nAll figures, and what was read: python -m app evaluations table {run.view.id}")


def _run_json(found: EvaluateRun) -> Json:
    if found.tables is not None:
        return found.tables.json()
    return {"results": finite(found.results), **evaluation_json(found.view)}


def _follow_any(wired: Services, found: EvaluateRun, quiet: bool) -> EvaluateRun:
    # Of one that is resumed when everything is done, only the files are written again.
    done = found.view.done == found.view.planned and found.tables is None
    view = found.view if done else _follow(wired, found.view, quiet)
    if found.tables is not None:
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
        _refuse_beside_experiment(["--out"])
    found = options.asked(wired)
    if isinstance(found, ExperimentPlan):
        view = service.view(service.submit(found.request))
        return EvaluateRun(view, tables=ExperimentRun(found, view))
    number = service.submit(replace(found, name=found.name or ", ".join(found.suites)))
    if out is not None:
        wired[ResultFiles].begin(number, out)
    return EvaluateRun(service.view(number), out)


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
    return wired[ExperimentService].list()


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


def _outcomes_json(found: SuiteOutcomes) -> Json:
    # JSON has no infinities; a text of probability 0 has no likelihood there.
    return {"suite": found.suite, "method": found.method, "outcomes": [finite(asdict(o)) for o in found.outcomes]}


@operation(need=READ, json=_outcomes_json)
def evaluation_outcomes(wired: Services, evaluation_id: int, suite: str, method: str) -> SuiteOutcomes:
    """Give what became of every item of a suite under a method, of which figures are made.

    Args:
        evaluation_id: The evaluation.
        suite: Key of the suite.
        method: Label of the method.

    Returns:
        An object with suite, method and outcomes: item, unit, facts, answers, marks and seed.
    """
    return SuiteOutcomes(suite, method, wired[EvaluationService].outcomes(evaluation_id, suite, method))


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
        beside: results file of another run (JSON), whose figures stand beside
        experiment: in their place the tables of the experiment that it is of, with the paper's rows

    Returns:
        An object: columns (name, suite, figure, part, title, what is counted, and which values are better), and rows,
        one a method: cells by the column's name (value, the mean over seeds, with deviation; low and high, its 95 %
        interval; n, unscored, seeds, rank, best, and contrast to the reference), readings by suite (items, unread with
        reasons, compared, and the shares unmasked, refused and empty) and average_ranks by kind of suite; and notes,
        the sentences that have to stand with it.
    """
    if experiment:
        _refuse_beside_tables(suite, reference, beside)
        return wired[ExperimentService].shown(evaluation_id, outside)
    request = TableRequest(evaluation_id, suite, reference, outside)
    return wired[TableService].table(request, _elsewhere(wired, beside))


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


@operation(need=EXPORT, answer="export", command="evaluations export")
def export_evaluation(
    wired: Services,
    evaluation_id: int,
    *,
    format: Literal["csv", "latex", "html", "json"] = "csv",
    suite: str = "",
    reference: Reference = None,
    outside: Outside = "floor",
    beside: Path | None = None,
    samples: bool = False,
    experiment: bool = False,
    out: Annotated[Path | None, OnTerminal()] = None,
    folder: Path | None = None,
) -> Path | None:
    """Export a table of an evaluation as a file.

    Args:
        evaluation_id: number of an evaluation
        format: csv: one row a method and figure; latex, html: the table; json: a results file like that of
            lm-evaluation-harness, with all figures of every suite
        suite: key of the suite whose figures are exported, those of its parts included
        reference: label of the method that others are compared with (default: the model alone); empty compares none
        outside: what a token counts as that a certified set refuses: floor (the threshold that it misses) or zero
        beside: results file of another run (JSON), whose figures stand beside; not with json
        samples: also every item, with what was asked and what came of it (json)
        experiment: the tables of the experiment that it is of, with the paper's rows (csv: one row a cell); without
            suite, reference, beside and samples
        out: file to write (default: standard output)

    Returns:
        The file.
    """
    if experiment:
        _refuse_beside_tables(suite, reference, beside, samples)
        if folder is not None:
            return wired[ExperimentService].write(evaluation_id, format, folder, outside)
        content = wired[ExperimentService].content(evaluation_id, format, outside)
    else:
        request, elsewhere = TableRequest(evaluation_id, suite, reference, outside), _elsewhere(wired, beside)
        if folder is not None:
            return wired[TableService].write(request, format, folder, elsewhere, samples)
        content = wired[TableService].content(request, format, elsewhere, samples)
    if out is None:
        sys.stdout.write(content)
        return None
    return write_text(out, content)


# Coefficients.


def _coefficients_json(found: Coefficients) -> Json:
    names = ("value", "low", "high", "n", "unscored")
    methods = [
        {
            "method": own.method,
            "fitted": own.fitted,
            "coefficients": {figure.part: {name: getattr(figure, name) for name in names} for figure in own.figures},
        }
        for own in found.methods
    ]
    told = {name: getattr(found, name) for name in ("evaluation_id", "suite", "title", "outside", "notes")}
    return told | {"methods": methods}


@operation(need=READ, json=_coefficients_json, command="evaluations coefficients", text=print_coefficients, at_once=1)
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
        suite: key of the suite; where the evaluation has one of DiscrimEval alone, it need not be named
        outside: as for evaluation_table

    Returns:
        evaluation_id, suite, title, outside, notes, and methods: a list of method, fitted and coefficients, by race,
        gender and age, each with value, low and high (95 %), n and unscored.
    """
    return wired[CoefficientService].coefficients(CoefficientRequest(evaluation_id, suite, outside), progress)
