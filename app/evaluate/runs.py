"""What an evaluation is asked, what is known of it, and what tables are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from app.shared.audits import AuditSettings
from app.shared.jobs import JobView
from coft_core.suites.base import Encoding, Outcome
from db.types import JsonObject


@dataclass(frozen=True, slots=True)
class EvaluationMethod:
    """A method as it takes part in an evaluation.

    Attributes:
        label: Its name in tables, unique in an evaluation.
        settings: Policy with parameters, lambda, alpha, mask and sampling; its model is that of the evaluation, its
            calibration the evaluation's own, and its seed that of the run.
        calibrated: Whether its thresholds are fitted on each suite's own calibration share; without, it certifies
            nothing.
        dropped: Share of the detected spans that are left out at random, the same ones for every seed, and of a smaller
            share no others than of a larger one.
    """

    label: str
    settings: AuditSettings = field(default_factory=AuditSettings)
    calibrated: bool = False
    dropped: float = 0.0


@dataclass(frozen=True, slots=True)
class AskedExperiment:
    """The named experiment that an evaluation is of.

    Attributes:
        name: As it was asked for: the name of a shipped one, or the path of a YAML file.
        content: It as it was read then, so that its tables stay the same whatever becomes of the file.
        left_out: What of it takes no part, and why, a sentence each.
    """

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

    Attributes:
        name: Name of the evaluation.
        suites: Keys of the suites.
        methods: The methods; all of them read the same items.
        model: The model that is evaluated.
        seeds: Seeds of the runs; each has its own calibration share, and its own draws where a suite asks for texts.
        limit: Whole units of each suite are drawn until there are at least so many items, the same ones for every seed;
            None takes all.
        calibration_share: Share of the items, in whole units, on which a seed's thresholds are fitted. They are not
            evaluated under that seed, by any method. Nothing is kept apart where no method is calibrated.
        data: Folder with the files of the suites; empty takes the program's, and where that names none a hub.
        judges: What makes a judgement of written texts, by the judgement's name; those that are left out are made as
            usual.
        experiment: The experiment that it is of; None where suites and methods were chosen freely.
        encoding: How given texts are tokenized behind their prompts: together with them, as in lm-evaluation-harness,
            or apart, as in every evaluation of earlier versions.
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

    @property
    def measures(self) -> bool:
        """Whether speed is measured too."""
        return self.experiment is not None and self.experiment.measures

    @property
    def calibrates(self) -> bool:
        """Whether a share of the items is kept apart."""
        return any(method.calibrated for method in self.methods)


@dataclass(frozen=True, slots=True)
class SuiteOutcomes:
    """What became of the items of a suite under a method: all that a table is made of.

    Attributes:
        suite: Key of the suite.
        method: Label of the method.
        outcomes: Those that are done, of all seeds: by seed, then in the suite's order.
    """

    suite: str
    method: str
    outcomes: tuple[Outcome, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds with at least one outcome, in their order."""
        return tuple(dict.fromkeys(outcome.seed for outcome in self.outcomes))

    def of_seed(self, seed: int) -> tuple[Outcome, ...]:
        """The outcomes of one seed."""
        return tuple(outcome for outcome in self.outcomes if outcome.seed == seed)


@dataclass(frozen=True, slots=True)
class SuitePlan:
    """What was read of a suite when the evaluation was asked for.

    Attributes:
        suite: Its key.
        title: Its title.
        source: Where its items came from: a folder, or ``"hub"``.
        release: What was read, in words: a known release, or that it is none.
        files: Digest of each file that was read.
        digest: Digest of all items; a resumed run must find the same.
        items: Items that take part, those of the calibration shares included.
        units: Units among them.
        calibrated_on: Items of the calibration share, by seed.
        evaluated: Items that are evaluated, by seed.
    """

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
    """What is said of the thresholds of one method for one suite and seed.

    Attributes:
        alpha: Risk level.
        source: Where its contexts come from: ``reference`` or ``rollout``.
        contexts: Contexts that its thresholds rest on.
        needed: Contexts that a threshold needs at that level.
        coverage: Share of the true tokens of the contexts kept apart that are certified; None where none was kept
            apart.
        low: Lower end of its 95 % interval.
        high: Upper end.
        checked: Contexts kept apart.
        bins: Position bins with data.
        uninformative: Those whose threshold says nothing.
        silent: Why none of its thresholds says anything, as half a sentence; empty if one does.
        notes: Further sentences that must be shown with it.
    """

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
class EvaluationView:
    """An evaluation as a page shows it.

    Attributes:
        job: The job that ran it last; None if it is not known any more.
        resumable: Whether it stands still with items left, or with speed that is not measured yet.
        plans: What was read of each suite, in the order of the request.
        progress: How many items are done, by suite, method and seed, in the order of the request.
        calibrations: What is said of each calibration that was made, in the same order.
        notes: Sentences that must be shown with it.
    """

    id: int
    name: str
    request: EvaluationRequest
    created_at: datetime
    job: JobView | None
    resumable: bool
    plans: tuple[SuitePlan, ...]
    progress: tuple[Done, ...]
    calibrations: tuple[CalibrationNote, ...]
    notes: tuple[str, ...] = ()

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


@dataclass(frozen=True, slots=True)
class EvaluationSummary:
    """An evaluation in a list."""

    id: int
    name: str
    model: str
    suites: tuple[str, ...]
    methods: tuple[str, ...]
    created_at: datetime
    done: int
    planned: int
    job: JobView | None
    experiment: str = ""
    """Title of the experiment that it is of; empty for others."""


@dataclass(frozen=True, slots=True)
class SuiteEstimate:
    """What one suite will take.

    Attributes:
        items: Items that are evaluated, over all seeds, by each method.
        asks: What they ask.
        read: Tokens of prompts and given texts, for one method.
        written: Tokens that are written at most, for one method.
        seconds: Time that the model takes for all methods, without calibrating.
    """

    suite: str
    items: int
    asks: int
    read: int
    written: int
    seconds: float


@dataclass(frozen=True, slots=True)
class EvaluationEstimate:
    """What an evaluation will take, judged by reading an item of medium length of each suite.

    Attributes:
        suites: Those that can be read.
        missing: What stands in the way, and what has to be known before: one sentence each.
    """

    suites: tuple[SuiteEstimate, ...]
    missing: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Time that the model takes for all suites and methods, without calibrating."""
        return sum(suite.seconds for suite in self.suites)


@dataclass(frozen=True, slots=True)
class KnownSuite:
    """A suite that can be evaluated on.

    Attributes:
        source: Where its items come from: the folder, ``"program"``, ``"hub"``, or empty where they are not there.
        items: How many it has; None where they were not read.
        release: What is there, in words; empty where it was not read.
        missing: Why it cannot be read; empty where it can.
    """

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


def request_json(request: EvaluationRequest) -> JsonObject:
    """A request as it is stored."""
    return asdict(request)


def request_from(stored: Mapping[str, Any]) -> EvaluationRequest:
    """A request as it was stored."""
    return _REQUEST.validate_python({"encoding": "apart", **stored})


def plans_json(plans: tuple[SuitePlan, ...]) -> JsonObject:
    """What was read, as it is stored."""
    # JSON has no numbers as names.
    return {
        plan.suite: {
            **asdict(plan),
            "calibrated_on": {str(seed): count for seed, count in plan.calibrated_on.items()},
            "evaluated": {str(seed): count for seed, count in plan.evaluated.items()},
        }
        for plan in plans
    }


def plans_from(stored: Mapping[str, Any], suites: tuple[str, ...]) -> tuple[SuitePlan, ...]:
    """What was read, as it was stored, in the order of the request's suites."""
    return tuple(_PLAN.validate_python(stored[suite]) for suite in suites)
