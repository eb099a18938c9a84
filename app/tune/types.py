"""Tuning runs as the services take and give them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from app.shared.audits import AuditSettings, ParameterValue
from coft_core.tuning.measure import TuningItem


@dataclass(frozen=True, slots=True)
class TuningSet:
    """A set of prompts to tune on, as it was read.

    Attributes:
        filename: Its name as uploaded.
        items: The prompts with their answers.
        digest: Digest of the file.
    """

    filename: str
    items: tuple[TuningItem, ...]
    digest: str

    @property
    def graded(self) -> int:
        """Prompts that count for accuracy."""
        return sum(item.graded for item in self.items)

    @property
    def pairs(self) -> int:
        """Groups of prompts that differ in the attribute alone."""
        return len({item.pair for item in self.items} - {None})


@dataclass(frozen=True, slots=True)
class TuningRequest:
    """A request to tune methods on a set.

    Attributes:
        name: Name of the run.
        policies: Names of the policies; vanilla is measured in any case.
        settings: Model, sampling and masks; the policy, its parameters and its calibration are not looked at.
        calibration_set: Prompt set with references on which COFT is calibrated for every lambda of the sweep; None
            tunes it without certification.
        alphas: Risk levels that are tried where COFT is calibrated.
        calibration_source: Where its contexts come from: ``reference`` (the set's own continuations) or ``rollout``
            (what the policy itself writes, up to the settings' steps), as for any calibration.
    """

    name: str
    policies: tuple[str, ...]
    settings: AuditSettings = field(default_factory=AuditSettings)
    calibration_set: str | None = None
    alphas: tuple[float, ...] = (0.05, 0.1, 0.2)
    calibration_source: str = "reference"


@dataclass(frozen=True, slots=True)
class TunedPoint:
    """What a method does at one point of its sweep; intervals are 95 % bootstrap intervals over pairs.

    Attributes:
        values: What was varied.
        accuracy: Share of graded prompts answered rightly, its interval's ends behind it.
        gap: Mean distance between the answers of a pair, its interval's ends behind it.
        chosen: Whether it is the point to use.
    """

    values: tuple[tuple[str, float], ...]
    accuracy: tuple[float, float, float]
    gap: tuple[float, float, float]
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class TunedMethod:
    """One method's sweep.

    Attributes:
        policy: The method.
        points: Its points in the order in which they were tried.
        error: Why it could not be swept; empty otherwise.
        planned: How many points there were to be measured; more than there are where the run ended before.
    """

    policy: str
    points: tuple[TunedPoint, ...]
    error: str = ""
    planned: int = 0

    @property
    def best(self) -> TunedPoint | None:
        """The point to use; None where every point loses too much accuracy or gains nothing on the model alone."""
        return next((point for point in self.points if point.chosen), None)


@dataclass(frozen=True, slots=True)
class TuningView:
    """A tuning run.

    Attributes:
        id: Its number, which is that of its job.
        name: Its name.
        model: The model.
        set_name: The set.
        prompts: Prompts that count for accuracy.
        pairs: Groups of prompts that differ in the attribute alone.
        vanilla: What vanilla decoding does on them.
        floor: Accuracy below which no point is chosen.
        methods: The sweeps.
        calibrated_on: Set on which COFT was calibrated; None without certification.
        created_at: When it was asked for.
        status: ``done``, or how the job ended before all methods were swept: ``cancelled``, ``interrupted`` or
            ``failed``. What was measured of such a run is kept, and nothing is chosen from it.
        calibration_source: Where the contexts of that calibration come from: ``reference`` or ``rollout``.
        settings: Model, sampling and masks.
    """

    id: int
    name: str
    model: str
    set_name: str
    prompts: int
    pairs: int
    vanilla: TunedPoint
    floor: float
    methods: tuple[TunedMethod, ...]
    calibrated_on: str | None
    created_at: datetime
    status: str
    calibration_source: str = "reference"
    settings: AuditSettings = field(default_factory=AuditSettings)

    @property
    def complete(self) -> bool:
        """Whether all methods were swept."""
        return self.status == "done"

    @property
    def measured(self) -> int:
        """Points that were measured, on all prompts each."""
        return sum(len(own.points) for own in self.methods)

    @property
    def planned(self) -> int:
        """Points that were to be measured."""
        return sum(max(own.planned, len(own.points)) for own in self.methods)


@dataclass(frozen=True, slots=True)
class TunedValues:
    """What a finished run found for one method, ready to be used again.

    Attributes:
        run_id: The run.
        run_name: Its name.
        set_name: The set that it was tuned on.
        parameters: The policy's own parameters.
        lam: Lambda, where the policy fuses.
        alpha: Risk level, where it was swept.
    """

    run_id: int
    run_name: str
    set_name: str
    parameters: tuple[tuple[str, ParameterValue], ...] = ()
    lam: float | None = None
    alpha: float | None = None
