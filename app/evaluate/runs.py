"""What an evaluation is asked, what is known of it, and what tables are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from app.jobs.service import JobView
from app.shared.audits import AuditSettings
from coft_core.suites.base import Encoding
from db.types import JsonObject

SPEED = "speed"
"""Key in a job's result: the tables of speed that it measured."""


@dataclass(frozen=True, slots=True)
class EvaluationMethod:
    """A method as it takes part in an evaluation."""

    label: str
    settings: AuditSettings = field(default_factory=AuditSettings)
    calibrated: bool = False
    dropped: float = 0.0


@dataclass(frozen=True, slots=True)
class AskedExperiment:
    """The named experiment that an evaluation is of."""

    name: str
    content: JsonObject
    left_out: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Its title, with what of the paper it is."""
        return f"{self.content['title']} ({self.content['source']})"

    @property
    def measures(self) -> bool:
        """Whether it has tables of speed, which are measured while it runs."""
        return any(table["kind"] == "speed" for table in self.content["tables"])


@dataclass(frozen=True, slots=True)
class EvaluationRequest:
    """A request to read suites with methods, as often as there are seeds.

    ``weights_digest`` is that of the model when it was asked for.
    """

    name: str
    suites: tuple[str, ...]
    methods: tuple[EvaluationMethod, ...]
    model: str = "demo"
    seeds: tuple[int, ...] = (0, 1, 2)
    limit: int | None = None
    calibration_share: float = 0.15
    data: str = ""
    judges: tuple[tuple[str, str], ...] = ()
    experiment: AskedExperiment | None = None
    encoding: Encoding = "together"
    weights_digest: str = ""

    @property
    def measures(self) -> bool:
        """Whether speed is measured too."""
        return self.experiment is not None and self.experiment.measures

    @property
    def calibrates(self) -> bool:
        """Whether a share of the items is kept apart."""
        return any(method.calibrated for method in self.methods)


@dataclass(frozen=True, slots=True)
class SuitePlan:
    """What was read of a suite when the evaluation was asked for."""

    suite: str
    title: str
    source: str
    release: str
    files: dict[str, str]
    digest: str
    items: int
    units: int
    calibrated_on: dict[int, int]
    evaluated: dict[int, int]


@dataclass(frozen=True, slots=True)
class Done:
    """How far a method is on a suite under a seed."""

    suite: str
    method: str
    seed: int
    done: int
    planned: int


@dataclass(frozen=True, slots=True)
class CalibrationNote:
    """What is said of the thresholds of one method for one suite and seed."""

    suite: str
    method: str
    seed: int
    alpha: float
    source: str
    contexts: int
    needed: int
    coverage: float | None
    low: float | None
    high: float | None
    checked: int
    bins: int
    uninformative: int
    silent: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EvaluationSummary:
    """An evaluation in a list, with how far it is."""

    id: int
    name: str
    request: EvaluationRequest
    created_at: datetime
    job: JobView | None
    progress: tuple[Done, ...]

    @property
    def running(self) -> bool:
        """Whether a job is at work on it."""
        return self.job is not None and self.job.active

    @property
    def done(self) -> int:
        """Items that are done, over all suites, methods and seeds."""
        return sum(part.done for part in self.progress)

    @property
    def planned(self) -> int:
        """Items that are to be done in all."""
        return sum(part.planned for part in self.progress)

    @property
    def left(self) -> bool:
        """Whether something is not done: items, or speed that the last job did not measure."""
        result = (None if self.job is None else self.job.result) or {}
        return self.done < self.planned or (self.request.measures and SPEED not in result)


@dataclass(frozen=True, slots=True)
class EvaluationView(EvaluationSummary):
    """An evaluation with what was read, and what is said of its thresholds."""

    plans: tuple[SuitePlan, ...] = ()
    calibrations: tuple[CalibrationNote, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def resumable(self) -> bool:
        """Whether it can go on."""
        return self.left and not self.running


@dataclass(frozen=True, slots=True)
class SuiteEstimate:
    """What one suite will take."""

    suite: str
    items: int
    asks: int
    read: int
    written: int
    seconds: float
    too_small: str = ""
    """The suite with the units that are kept apart and those that are needed, where thresholds will say nothing."""


@dataclass(frozen=True, slots=True)
class EvaluationEstimate:
    """What an evaluation will take, judged by reading items of medium length of each suite."""

    suites: tuple[SuiteEstimate, ...]
    missing: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Time that the model takes for all suites and methods, without calibrating."""
        return sum(suite.seconds for suite in self.suites)

    @property
    def said(self) -> tuple[str, ...]:
        """What is missing, and where thresholds will say nothing."""
        return (*self.missing, *too_small(self.suites))


def too_small(suites: Iterable[SuiteEstimate]) -> tuple[str, ...]:
    """A sentence on suites whose calibration share has too few units, if there are any."""
    if not (named := [suite.too_small for suite in suites if suite.too_small]):
        return ()
    why = "has fewer units than the smallest alpha needs, so that its thresholds will say nothing"
    return (f"The calibration share {why}: {', '.join(named)}. Take more items, or a larger share.",)


@dataclass(frozen=True, slots=True)
class KnownSuite:
    """A suite that can be evaluated on."""

    key: str
    title: str
    kind: str
    citation: str
    licence: str
    main: str
    judges: tuple[str, ...]
    card: dict[str, str]
    source: str
    items: int | None = None
    release: str = ""
    missing: str = ""


_REQUEST, _PLAN = TypeAdapter(EvaluationRequest), TypeAdapter(SuitePlan)


def request_from(stored: Mapping[str, Any]) -> EvaluationRequest:
    """A request as it was stored."""
    return _REQUEST.validate_python({"encoding": "apart", **stored})


def plans_json(plans: tuple[SuitePlan, ...]) -> JsonObject:
    """What was read, as it is stored."""
    return {plan.suite: _PLAN.dump_python(plan, mode="json") for plan in plans}


def plans_from(stored: Mapping[str, Any], suites: tuple[str, ...]) -> tuple[SuitePlan, ...]:
    """What was read, as it was stored, in the order of the request's suites."""
    return tuple(_PLAN.validate_python(stored[suite]) for suite in suites)
