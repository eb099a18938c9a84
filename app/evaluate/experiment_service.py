"""Runs named experiments as evaluations, and makes their tables of what is kept."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from app.evaluate.experiment_figures import Kept
from app.evaluate.experiment_files import experiment_names, given_parameters, load_experiment
from app.evaluate.experiment_layout import ExperimentTable
from app.evaluate.experiment_speed import Progress, SpeedMeter, Timed
from app.evaluate.experiment_tables import experiment_tables
from app.evaluate.experiments import (
    Experiment,
    MethodEntry,
    SpeedTable,
)
from app.evaluate.items import sampled, split
from app.evaluate.prepared import MethodPreparer
from app.evaluate.runs import EvaluationMethod, EvaluationRequest
from app.evaluate.service import EvaluationService
from app.evaluate.sources import SuiteSources
from app.shared.errors import ServiceError
from app.shared.model_host import ModelHost
from app.shared.policies import parameter_values, policy_info
from app.shared.wiring import Services
from coft_core.conformal.families import AnyCalibration, load_calibration
from coft_core.errors import CoftError
from coft_core.suites.base import Outside
from db.evaluations import EvaluationsRepository


@dataclass(frozen=True, slots=True)
class ExperimentRequest:
    """A request to run an experiment.

    Attributes:
        experiment: A shipped experiment's name, or the path of a YAML file.
        model: The model.
        limit: See :class:`app.evaluate.runs.EvaluationRequest`.
        seeds: Seeds of the runs; None takes the experiment's.
        data: See there.
        judges: See there.
        given: What methods need, by ``policy.parameter``.
    """

    experiment: str
    model: str = "demo"
    limit: int | None = None
    seeds: tuple[int, ...] | None = None
    data: str = ""
    judges: tuple[tuple[str, str], ...] = ()
    given: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ExperimentPlan:
    """What of an experiment can be run here.

    Attributes:
        experiment: The experiment.
        request: The evaluation that it needs; None where it reads no suite.
        methods: The methods that take part.
        suites: Key of the suite that is read, by the key that the experiment has for it.
        model: The model.
        left_out: What takes no part, and why, a sentence each.
    """

    experiment: Experiment
    request: EvaluationRequest | None
    methods: tuple[EvaluationMethod, ...]
    suites: Mapping[str, str]
    model: str
    left_out: tuple[str, ...]


class ExperimentService:
    """Plans experiments, and makes their tables."""

    def __init__(
        self,
        evaluations: EvaluationService,
        store: EvaluationsRepository,
        preparer: MethodPreparer,
        host: ModelHost,
        sources: SuiteSources,
    ) -> None:
        self._evaluations = evaluations
        self._store = store
        self._preparer = preparer
        self._host = host
        self._sources = sources

    @classmethod
    def wired(cls, services: Services) -> ExperimentService:
        """Built from the program's services."""
        return cls(
            services[EvaluationService], services[EvaluationsRepository], services[MethodPreparer],
            services[ModelHost], services[SuiteSources],
        )  # fmt: skip

    def list(self) -> tuple[tuple[str, Experiment], ...]:
        """The shipped experiments by name."""
        return tuple((name, load_experiment(name)) for name in experiment_names())

    def plan(self, request: ExperimentRequest) -> ExperimentPlan:
        """What of an experiment can be run; loads the model.

        Raises:
            ServiceError: There is no such experiment or it is wrong, something is given that no method needs, or no
                method or suite is left.
            ModelLoadError: The model cannot be loaded.
        """
        experiment = load_experiment(request.experiment)
        methods, left_out = self._methods(experiment, request)
        suites, missing = self._suites(experiment, request.data)
        evaluation = None
        if suites:
            evaluation = EvaluationRequest(
                name=f"{experiment.title}: {request.model}",
                suites=tuple(dict.fromkeys(suites.values())),
                methods=methods,
                model=request.model,
                seeds=request.seeds or experiment.run.seeds,
                limit=request.limit,
                calibration_share=experiment.run.calibration_share,
                data=request.data,
                judges=request.judges,
            )
        return ExperimentPlan(experiment, evaluation, methods, suites, request.model, (*left_out, *missing))

    def tables(
        self, plan: ExperimentPlan, evaluation_id: int | None, outside: Outside = "floor"
    ) -> builtins.list[ExperimentTable]:
        """The tables of what an evaluation kept; without those of speed.

        Args:
            plan: The plan that it was run by.
            evaluation_id: The evaluation; None for an experiment that reads no suite.
            outside: What a token that a certified set refuses counts as.

        Raises:
            NotFoundError: There is no such evaluation.
        """
        if evaluation_id is None or plan.request is None:
            return []
        view = self._evaluations.view(evaluation_id)
        suites = {key: self._sources.suite(read) for key, read in plan.suites.items()}
        kept = Kept(
            plan.experiment, plan.methods, suites, self._evaluations.all_outcomes(evaluation_id), view.calibrations,
            lambda suite, method, seed: self._thresholds(evaluation_id, suite, method, seed),
            lambda suite, seed: self._prompts(view.request, plan.suites.get(suite), seed), plan.left_out,
        )  # fmt: skip
        return experiment_tables(kept, plan.model, outside)

    def measure(self, plan: ExperimentPlan, progress: Progress) -> builtins.list[ExperimentTable]:
        """Measure the tables of speed; empty where the experiment has none.

        Raises:
            CoftError: A method cannot decode, or something that it runs cannot be loaded.
        """
        tables = [table for table in plan.experiment.tables if isinstance(table, SpeedTable)]
        if not tables:
            return []
        settled = self._preparer.settled(EvaluationRequest("speed", (), plan.methods, plan.model))
        loaded = [self._preparer.load(group) for group in self._preparer.groups(settled)]
        by_label = {ready.label: Timed(ready, own) for own in loaded for ready in own.group.methods}
        meter = SpeedMeter(self._host, [by_label[method.label] for method in plan.methods], progress)
        return [meter.table(table, plan.model) for table in tables]

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
            lacking = {name: text for name, text in (entry.needs if entry else {}).items() if name not in own}
            if lacking:
                told = "; ".join(
                    f"--set {method.settings.policy}.{name}=… ({text.rstrip('.')})" for name, text in lacking.items()
                )
                left_out.append(f"{method.label} is left out, since it needs {told}.")
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
        if not experiment.reads:
            return {}, ()
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
        if not found:
            raise ServiceError(f"No suite of this experiment can be read. {left_out[0]}")
        return found, tuple(left_out)

    # What was kept.

    def _thresholds(self, evaluation_id: int, suite: str, method: str, seed: int) -> AnyCalibration | None:
        data = self._store.calibration(evaluation_id, suite, method, seed)
        return load_calibration(data) if data else None

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


def _with(method: EvaluationMethod, given: Mapping[str, str]) -> EvaluationMethod:
    """A method with further parameters."""
    if not given:
        return method
    settings = method.settings
    values = {**dict(settings.parameters), **given}
    return replace(
        method, settings=replace(settings, parameters=parameter_values(policy_info(settings.policy), values))
    )
