"""Runs named experiments as evaluations, and shows their tables, made of what is kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from app.evaluate.experiments.figures import INSTEAD, Experiment, Figures
from app.evaluate.experiments.grid import Grid
from app.evaluate.experiments.named import EXPERIMENTS, experiment_named
from app.evaluate.experiments.speed import measured_by
from app.evaluate.experiments.tables import stand_in_sentence
from app.evaluate.exports import STYLES, json_text, layout_latex, table_fragment
from app.evaluate.items import sampled, split
from app.evaluate.prepared import MethodPreparer
from app.evaluate.runs import AskedExperiment, EvaluationMethod, EvaluationRequest, EvaluationView, KnownSuite
from app.evaluate.service import EvaluationService
from app.evaluate.sources import SuiteSources
from app.evaluate.table_service import suffix_of
from app.shared.errors import ServiceError
from app.shared.exported import page
from app.shared.files import to_csv, write_text
from app.shared.operations import Json
from app.shared.policies import parameter_values, policy_info
from app.shared.project_cache import ProjectCache
from coft_core.conformal.calibration import Calibration
from coft_core.errors import CoftError
from coft_core.step_numbers import finite
from coft_core.suites.base import Outside
from db.evaluations import EvaluationsRepository

CSV_COLUMNS = ("table", "row", "source", "column", "value", "deviation", "low", "high", "n", "what", "unscored")
"""One row a cell; those of the paper have a source."""

TABLES_KEPT = 16


@dataclass(frozen=True, slots=True)
class ExperimentRequest:
    """A request to run an experiment; ``given`` are parameters as policy.parameter with their values."""

    experiment: str
    model: str = "demo"
    limit: int | None = None
    seeds: tuple[int, ...] | None = None
    data: str = ""
    judges: tuple[tuple[str, str], ...] = ()
    given: tuple[tuple[str, str], ...] = ()
    name: str = ""
    calibration_share: float = 0.0
    """What is kept apart for thresholds at least, as a share of the items; the experiment's own share may be more."""


@dataclass(frozen=True, slots=True)
class ExperimentCard:
    """An experiment as it can be chosen, told without loading a model."""

    experiment: Experiment
    suites: tuple[KnownSuite, ...]
    lacking: tuple[str, ...]
    stand_ins: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExperimentRun:
    """An experiment's tables; ``suites`` are those that were read, by the key that the experiment names."""

    experiment: Experiment
    view: EvaluationView
    suites: Mapping[str, str]
    tables: tuple[Grid, ...]

    def json(self) -> Json:
        """It as plain JSON; what is not finite is null."""
        request = self.view.request
        return {
            **{name: getattr(self.experiment, name) for name in ("title", "source", "shows")},
            "differs": list(self.experiment.differs),
            "model": request.model,
            "evaluation_id": self.view.id,
            "suites": dict(self.suites),
            "methods": [method.label for method in request.methods],
            "left_out": list(request.experiment.left_out) if request.experiment else [],
            "tables": [finite(table.json()) for table in self.tables],
        }


class ExperimentService:
    """Plans experiments, and makes their tables."""

    def __init__(
        self,
        evaluations: EvaluationService,
        store: EvaluationsRepository,
        preparer: MethodPreparer,
        sources: SuiteSources,
    ) -> None:
        self._evaluations, self._store, self._preparer, self._sources = evaluations, store, preparer, sources
        self._tables: ProjectCache[tuple[object, ...], tuple[Grid, ...]] = ProjectCache(TABLES_KEPT)

    def card(self, name: str, data: str = "") -> ExperimentCard:
        """An experiment as it can be chosen; loads no model."""
        experiment = experiment_named(name)
        found, missing = self._suites(experiment, data)
        known = {suite.key: suite for suite in self._sources.known(data)}
        unready = (_lacking(experiment, method, {}) for method in experiment.evaluated())
        suites = tuple(known[key] for key in dict.fromkeys(found.values()))
        instead = [stand_in_sentence(known[read].title, key) for key, read in found.items() if read != key]
        stand_ins = (*instead, *experiment.stand_ins)
        return ExperimentCard(experiment, suites, (*filter(None, unready), *missing), stand_ins)

    def request(self, asked: ExperimentRequest) -> EvaluationRequest:
        """The evaluation of what can be run of an experiment; loads the model."""
        experiment = experiment_named(asked.experiment)
        methods, left_out = self._methods(experiment, asked)
        suites, missing = self._suites(experiment, asked.data)
        if experiment.suites and not suites:
            raise ServiceError(f"No suite of this experiment can be read. {missing[0]}")
        about = {
            "title": experiment.title,
            "source": experiment.source,
            "tables": [{"kind": table.kind, "title": table.title} for table in experiment.tables],
        }
        return EvaluationRequest(
            name=asked.name or f"{experiment.title}: {asked.model}",
            suites=tuple(dict.fromkeys(suites.values())),
            methods=methods,
            model=asked.model,
            seeds=asked.seeds or experiment.seeds,
            limit=asked.limit,
            calibration_share=max(experiment.calibration_share, asked.calibration_share),
            data=asked.data,
            judges=asked.judges,
            experiment=AskedExperiment(experiment.name, about, (*left_out, *missing)),
        )

    def experiment_of(self, view: EvaluationView) -> Experiment | None:
        """The experiment of an evaluation; None where it has no tables: experiments were once read from files too."""
        asked = view.request.experiment
        return None if asked is None else EXPERIMENTS.get(asked.name)

    def shown(self, evaluation_id: int, outside: Outside = "floor") -> ExperimentRun:
        """The tables of an evaluation's experiment, of what is kept so far; needs neither model nor data."""
        view = self._evaluations.view(evaluation_id)
        if (asked := view.request.experiment) is None:
            raise ServiceError(
                f"Evaluation {view.id} is of no experiment; look at its figures, or run one with evaluate --experiment."
            )
        if (experiment := self.experiment_of(view)) is None:
            raise ServiceError(
                f"Evaluation {view.id} is of the experiment {asked.name!r}, which this version does not know; look at "
                "its figures."
            )
        read = view.request.suites
        # The suite itself comes last, and so before what stands in for it.
        suites = {key: own for key in experiment.suites for own in (INSTEAD.get(key, key), key) if own in read}
        measured = None if view.job is None else (view.job.id, view.job.status)
        key = evaluation_id, view.created_at, outside, view.done, len(view.calibrations), measured
        tables = self._tables.once(key, lambda: self._grids(experiment, view, suites, outside))
        return ExperimentRun(experiment, view, suites, tables)

    def content(self, evaluation_id: int, form: str, outside: Outside = "floor") -> str:
        """The tables of an experiment as the text of a file."""
        suffix_of(form)
        run = self.shown(evaluation_id, outside)
        if form == "csv":
            return grids_csv(run.tables)
        if form == "json":
            return json_text(run.json())
        if form == "latex":
            return grids_latex(run.tables, run.view.request.model)
        tables = [(own.title, table_fragment(own.layout, own.title), own.notes) for own in run.tables]
        return page("experiment.html.j2", STYLES, experiment=run.experiment, view=run.view, tables=tables)

    def write(self, evaluation_id: int, form: str, folder: Path, outside: Outside = "floor") -> Path:
        """Write the tables into a folder, atomically, and return the path; errors as of :meth:`content`."""
        content = self.content(evaluation_id, form, outside)
        return write_text(folder / f"experiment-{evaluation_id}.{suffix_of(form)}", content)

    # What takes part.

    def _methods(
        self, experiment: Experiment, asked: ExperimentRequest
    ) -> tuple[tuple[EvaluationMethod, ...], list[str]]:
        """Methods that can run on the model, and why others cannot."""
        methods, left_out = experiment.evaluated(), []
        given, able = _given_parameters(dict(asked.given), methods), []
        for method in methods:
            own = given.get(method.settings.policy, {})
            if lacking := _lacking(experiment, method, own):
                left_out.append(lacking)
            else:
                able.append(_with(method, own))
        settled = self._preparer.settled(EvaluationRequest("experiment", (), tuple(able), asked.model)).methods
        problems = {method: self._preparer.problem(own) for method, own in zip(able, settled, strict=True)}
        running = tuple(method for method, problem in problems.items() if not problem)
        left_out += [f"{method.label} is left out: {problem}" for method, problem in problems.items() if problem]
        if not running:
            raise ServiceError(f"No method of this experiment can run. {' '.join(left_out)}")
        return running, left_out

    def _suites(self, experiment: Experiment, data: str) -> tuple[dict[str, str], list[str]]:
        """Suites whose files are there, by the experiment's key, and why others cannot be read."""
        known = {suite.key: suite for suite in self._sources.known(data)}
        found: dict[str, str] = {}
        left_out = []
        for key in experiment.suites:
            there = [own for own in (key, INSTEAD.get(key)) if own is not None and not known[own].missing]
            if there:
                found[key] = there[0]
            else:
                left_out.append(f"{known[key].title} is left out: {known[key].missing}")
        return found, left_out

    # What was kept.

    def _grids(
        self, experiment: Experiment, view: EvaluationView, suites: Mapping[str, str], outside: Outside
    ) -> tuple[Grid, ...]:
        figures = self.figures(experiment, view, suites, outside)
        return tuple(table.grid(figures) for table in experiment.tables)

    def figures(
        self, experiment: Experiment, view: EvaluationView, suites: Mapping[str, str], outside: Outside = "floor"
    ) -> Figures:
        """What the tables of an experiment are made of."""
        request = view.request
        return Figures(
            experiment,
            request.model,
            request.methods,
            {key: self._sources.suite(read) for key, read in suites.items()},
            {key: self._evaluations.suite_outcomes(view.id, key) for key in request.suites},
            view.calibrations,
            lambda suite, method, seed: self._thresholds(view.id, suite, method, seed),
            lambda suite, seed: self._prompts(request, suites.get(suite), seed),
            () if request.experiment is None else request.experiment.left_out,
            measured_by(view.job),
            outside,
        )

    def _thresholds(self, evaluation_id: int, suite: str, method: str, seed: int) -> Calibration | None:
        data = self._store.calibration(evaluation_id, suite, method, seed)
        return Calibration.from_bytes(data) if data else None

    def _prompts(self, request: EvaluationRequest, suite: str | None, seed: int) -> tuple[list[str], list[str]] | None:
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


def grids_csv(grids: Iterable[Grid]) -> str:
    """Tables as RFC 4180 text, one row a cell."""
    return to_csv(CSV_COLUMNS, chain.from_iterable(grid.cells() for grid in grids))


def grids_latex(grids: Iterable[Grid], model: str) -> str:
    """Tables for a paper."""
    return "\n".join(layout_latex(own.layout, f"{own.title}: {model}", own.notes) for own in grids)


def _given_parameters(given: Mapping[str, str], methods: tuple[EvaluationMethod, ...]) -> dict[str, dict[str, str]]:
    """Parameters that somebody gives for methods of an experiment, by policy."""
    policies = dict.fromkeys(method.settings.policy for method in methods)
    known = {policy: {own.name for own in policy_info(policy).parameters} for policy in policies}
    by_policy: dict[str, dict[str, str]] = {}
    for name, value in given.items():
        policy, _, parameter = name.partition(".")
        if parameter not in known.get(policy, ()):
            raise ServiceError(
                f"No method of this experiment has {name!r}; write policy.parameter, such as cda.checkpoint=FOLDER; "
                f"its policies are {', '.join(known)}."
            )
        by_policy.setdefault(policy, {})[parameter] = value
    return by_policy


def _lacking(experiment: Experiment, method: EvaluationMethod, given: Mapping[str, str]) -> str:
    """What a method needs that is not given, as a sentence; empty if there is nothing."""
    parameter, text = experiment.needs.get(method.label, ("", ""))
    if not parameter or parameter in given:
        return ""
    return (
        f"{method.label} is left out, since it needs --set {method.settings.policy}.{parameter}=… ({text.rstrip('.')})."
    )


def _with(method: EvaluationMethod, given: Mapping[str, str]) -> EvaluationMethod:
    """A method with further parameters."""
    settings = method.settings
    values = parameter_values(policy_info(settings.policy), {**dict(settings.parameters), **given})
    return replace(method, settings=replace(settings, parameters=values)) if given else method
