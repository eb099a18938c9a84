"""Runs named experiments as evaluations, and makes their tables of what is kept."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

from pydantic import ValidationError

from app.evaluate.experiment_exports import experiment_content
from app.evaluate.experiment_figures import Kept
from app.evaluate.experiment_files import experiment_names, given_parameters, load_experiment
from app.evaluate.experiment_layout import ExperimentTable, stand_in_sentence
from app.evaluate.experiment_speed import measured_by, planned_words, speed_table, speed_tables
from app.evaluate.experiment_tables import experiment_tables
from app.evaluate.experiments import Experiment, ExperimentPlan, MethodEntry
from app.evaluate.items import sampled, split
from app.evaluate.prepared import MethodPreparer
from app.evaluate.runs import (
    AskedExperiment,
    EvaluationEstimate,
    EvaluationMethod,
    EvaluationRequest,
    EvaluationView,
    KnownSuite,
)
from app.evaluate.service import EvaluationService
from app.evaluate.sources import SuiteSources
from app.evaluate.table_service import SUFFIXES
from app.shared.errors import ServiceError
from app.shared.files import write_text
from app.shared.policies import parameter_values, policy_info
from app.shared.project_cache import ProjectCache
from app.shared.wiring import Services
from coft_core.conformal.calibration import Calibration
from coft_core.errors import CoftError
from coft_core.suites.base import Outside
from db.evaluations import EvaluationsRepository


@dataclass(frozen=True, slots=True)
class ExperimentRequest:
    """A request to run an experiment."""

    experiment: str
    model: str = "demo"
    limit: int | None = None
    seeds: tuple[int, ...] | None = None
    data: str = ""
    judges: tuple[tuple[str, str], ...] = ()
    given: tuple[tuple[str, str], ...] = ()
    name: str = ""


@dataclass(frozen=True, slots=True)
class ExperimentCard:
    """An experiment as it can be chosen, told without loading a model."""

    name: str
    experiment: Experiment
    suites: tuple[KnownSuite, ...]
    lacking: tuple[str, ...]
    stand_ins: tuple[str, ...]


TABLES_KEPT = 16


class ExperimentService:
    """Plans experiments, and makes their tables."""

    def __init__(
        self,
        evaluations: EvaluationService,
        store: EvaluationsRepository,
        preparer: MethodPreparer,
        sources: SuiteSources,
    ) -> None:
        self._evaluations = evaluations
        self._store = store
        self._preparer = preparer
        self._sources = sources
        self._tables: ProjectCache[tuple[object, ...], builtins.list[ExperimentTable]] = ProjectCache(TABLES_KEPT)
        self._lock = Lock()

    @classmethod
    def wired(cls, services: Services) -> ExperimentService:
        """Built from the program's services."""
        return cls(
            services[EvaluationService], services[EvaluationsRepository], services[MethodPreparer],
            services[SuiteSources],
        )  # fmt: skip

    def list(self) -> tuple[tuple[str, Experiment], ...]:
        """The shipped experiments by name."""
        return tuple((name, load_experiment(name)) for name in experiment_names())

    def card(self, name: str, data: str = "") -> ExperimentCard:
        """An experiment as it can be chosen; loads no model."""
        experiment = load_experiment(name)
        found, missing = self._there(experiment, data)
        known = {suite.key: suite for suite in self._sources.known(data)}
        given = zip(experiment.evaluated(), experiment.methods, strict=False)
        unready = [_lacking(method, entry, {}) for method, entry in given]
        suites = tuple(known[key] for key in dict.fromkeys(found.values()))
        instead = [stand_in_sentence(known[read].title, key) for key, read in found.items() if read != key]
        stand_ins = (*instead, *(entry.stands_in for entry in experiment.methods if entry.stands_in))
        return ExperimentCard(name, experiment, suites, (*filter(None, unready), *missing), stand_ins)

    def plan(self, request: ExperimentRequest) -> ExperimentPlan:
        """What of an experiment can be run; loads the model."""
        experiment = load_experiment(request.experiment)
        methods, left_out = self._methods(experiment, request)
        suites, missing = self._suites(experiment, request.data)
        # A file's folder is of no use to whoever reads this later; what stood in it is kept.
        asked = AskedExperiment(
            Path(request.experiment).name, experiment.model_dump(mode="json"), (*left_out, *missing)
        )
        evaluation = EvaluationRequest(
            name=request.name or f"{experiment.title}: {request.model}",
            suites=tuple(dict.fromkeys(suites.values())),
            methods=methods,
            model=request.model,
            seeds=request.seeds or experiment.run.seeds,
            limit=request.limit,
            calibration_share=experiment.run.calibration_share,
            data=request.data,
            judges=request.judges,
            experiment=asked,
        )
        return ExperimentPlan(experiment, evaluation, suites)

    def estimate(self, plan: ExperimentPlan) -> EvaluationEstimate:
        """What an experiment will take, with what cannot take part; errors as of the estimate of an evaluation."""
        found = self._evaluations.estimate(plan.request)
        timed = planned_words(plan.experiment, [method.label for method in plan.methods])
        return replace(found, missing=(*plan.left_out, *found.missing, *timed))

    def plan_of(self, evaluation: EvaluationView) -> ExperimentPlan:
        """The plan that an evaluation was run by, of what is kept of it; needs neither model nor data."""
        asked = evaluation.request.experiment
        if asked is None:
            raise ServiceError(
                f"Evaluation {evaluation.id} is of no experiment; look at its figures, or run one with evaluate "
                "--experiment."
            )
        try:
            experiment = Experiment.model_validate(asked.content)
        except ValidationError as error:
            raise ServiceError(
                f"The experiment of evaluation {evaluation.id} cannot be read by this version; run it anew."
            ) from error
        read = {key: (key, experiment.instead.get(key)) for key in experiment.suites}
        present = {
            key: next((own for own in both if own in evaluation.request.suites), None) for key, both in read.items()
        }
        suites = {key: own for key, own in present.items() if own is not None}
        return ExperimentPlan(experiment, evaluation.request, suites)

    def tables(self, evaluation_id: int, outside: Outside = "floor") -> builtins.list[ExperimentTable]:
        """The tables of an experiment, of what its evaluation has kept so far."""
        view = self._evaluations.view(evaluation_id)
        measured = None if view.job is None else (view.job.id, view.job.status)
        key = evaluation_id, view.created_at, outside, view.done, len(view.calibrations), measured
        # Two that make the same at once would only wait for each other.
        with self._lock:
            if key not in self._tables:
                self._tables[key] = self._made(view, outside)
            return self._tables[key]

    def content(self, evaluation_id: int, form: str, outside: Outside = "floor") -> str:
        """The tables of an experiment as the text of a file."""
        if form not in SUFFIXES:
            raise ServiceError(f"There is no format {form!r}; choose one of {', '.join(SUFFIXES)}.")
        view = self._evaluations.view(evaluation_id)
        return experiment_content(self.plan_of(view), view, self.tables(evaluation_id, outside), form)

    def write(self, evaluation_id: int, form: str, folder: Path, outside: Outside = "floor") -> Path:
        """Write the tables into a folder, atomically, and return the path; errors as of :meth:`content`."""
        content = self.content(evaluation_id, form, outside)
        return write_text(folder / f"experiment-{evaluation_id}.{SUFFIXES[form]}", content)

    def _made(self, view: EvaluationView, outside: Outside) -> builtins.list[ExperimentTable]:
        plan = self.plan_of(view)
        suites = {key: self._sources.suite(read) for key, read in plan.suites.items()}
        kept = Kept(
            plan.experiment, plan.methods, suites, self._evaluations.all_outcomes(view.id), view.calibrations,
            lambda suite, method, seed: self._thresholds(view.id, suite, method, seed),
            lambda suite, seed: self._prompts(view.request, plan.suites.get(suite), seed), plan.left_out,
        )  # fmt: skip
        timed = speed_tables(plan.experiment)
        of_figures = iter(experiment_tables(kept, plan.model, outside))
        measured = {own.place: own for own in measured_by(view.job) or ()}
        further = (*(entry.stands_in for entry in plan.experiment.methods if entry.stands_in), *plan.left_out)
        return [
            speed_table(timed[place], measured.get(place), plan.model, further) if place in timed else next(of_figures)
            for place in range(len(plan.experiment.tables))
        ]

    # What takes part.

    def _methods(
        self, experiment: Experiment, request: ExperimentRequest
    ) -> tuple[tuple[EvaluationMethod, ...], tuple[str, ...]]:
        """Methods that can run on the model, and why others cannot."""
        methods = experiment.evaluated()
        given = given_parameters(dict(request.given), methods)
        left_out: builtins.list[str] = []
        able = []
        swept = len(methods) - len(experiment.methods)
        entries: Sequence[MethodEntry | None] = [*experiment.methods, *[None] * swept]
        for method, entry in zip(methods, entries, strict=True):
            own = given.get(method.settings.policy, {})
            if lacking := _lacking(method, entry, own):
                left_out.append(lacking)
                continue
            able.append(_with(method, own))
        settled = self._preparer.settled(EvaluationRequest("experiment", (), tuple(able), request.model)).methods
        running = []
        for method, whole in zip(able, settled, strict=True):
            if problem := self._preparer.problem(whole):
                left_out.append(f"{method.label} is left out: {problem}")
            else:
                running.append(method)
        if not running:
            raise ServiceError(f"No method of this experiment can run. {' '.join(left_out)}")
        return tuple(running), tuple(left_out)

    def _suites(self, experiment: Experiment, data: str) -> tuple[dict[str, str], tuple[str, ...]]:
        """Suites that can be read, by the experiment's key, and why others cannot."""
        found, left_out = self._there(experiment, data)
        if experiment.reads and not found:
            raise ServiceError(f"No suite of this experiment can be read. {left_out[0]}")
        return found, left_out

    def _there(self, experiment: Experiment, data: str) -> tuple[dict[str, str], tuple[str, ...]]:
        """Suites whose files are there, by the experiment's key, and why others cannot be read."""
        known = {suite.key: suite for suite in self._sources.known(data)}
        found: dict[str, str] = {}
        left_out = []
        for key in experiment.suites:
            other = experiment.instead.get(key)
            if not known[key].missing:
                found[key] = key
            elif other is not None and not known[other].missing:
                found[key] = other
            else:
                left_out.append(f"{known[key].title} is left out: {known[key].missing}")
        return found, tuple(left_out)

    # What was kept.

    def _thresholds(self, evaluation_id: int, suite: str, method: str, seed: int) -> Calibration | None:
        data = self._store.calibration(evaluation_id, suite, method, seed)
        return Calibration.from_bytes(data) if data else None

    def _prompts(
        self, request: EvaluationRequest, suite: str | None, seed: int
    ) -> tuple[builtins.list[str], builtins.list[str]] | None:
        """Prompts of the calibration share, and of what was evaluated; None where they cannot be read any more."""
        if suite is None:
            return None
        try:
            items = sampled(suite, self._sources.read(suite, request.data).items, request.limit)
        except (CoftError, ServiceError):
            return None
        parts = split(suite, items, seed, request.calibration_share)
        texts = [item.asks[0].prompt for item in items]
        return [texts[place] for place in sorted(parts.apart)], [texts[place] for place in sorted(parts.evaluated)]


def _lacking(method: EvaluationMethod, entry: MethodEntry | None, given: Mapping[str, str]) -> str:
    """What a method needs that is not given, as a sentence; empty if there is nothing."""
    lacking = {name: text for name, text in (entry.needs if entry else {}).items() if name not in given}
    if not lacking:
        return ""
    told = "; ".join(f"--set {method.settings.policy}.{name}=… ({text.rstrip('.')})" for name, text in lacking.items())
    return f"{method.label} is left out, since it needs {told}."


def _with(method: EvaluationMethod, given: Mapping[str, str]) -> EvaluationMethod:
    """A method with further parameters."""
    if not given:
        return method
    settings = method.settings
    values = {**dict(settings.parameters), **given}
    return replace(
        method, settings=replace(settings, parameters=parameter_values(policy_info(settings.policy), values))
    )
