"""Tuning without a model: a run that is done at once, with every state that the page has to show."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from app.shared.audits import AuditSettings
from app.shared.errors import ServiceError
from app.shared.prompt_sets import SamplePromptSet
from app.tune.runs import TunedMethod, TunedPoint, TunedValues, TuningRequest, TuningView, tuning_csv
from app.tune.sets import TuningSet, read_tuning_set
from coft_core.assets import assets_path
from tests.fakes.reports_and_jobs import FakeJobs

STRENGTHS = (0.25, 0.5, 1.0)


class FakeTunings:
    def __init__(self, jobs: FakeJobs) -> None:
        self.jobs = jobs
        self.views: dict[int, TuningView] = {}
        self.requests: list[TuningRequest] = []
        self.cancelled_after: int | None = None
        """Methods after which the next run is cancelled; None lets it end."""

    def samples(self) -> tuple[SamplePromptSet, ...]:
        path = assets_path("prompts", "tuning_demo.jsonl")
        return (SamplePromptSet(path.name, "Decisions and questions", "Pairs and questions.", 220, path),)

    def read(self, path: Path, filename: str | None = None) -> TuningSet:
        return read_tuning_set(path, filename)

    def submit(self, tuning_set: TuningSet, request: TuningRequest, calibration_set: Path | None = None) -> int:
        if not request.policies:
            raise ServiceError("Choose at least one policy to tune, each once.")
        self.requests.append(request)
        number = self.jobs.add(request.name, {})
        methods = [method(name) for name in request.policies]
        if self.cancelled_after is not None:
            methods = [left(own, place < self.cancelled_after) for place, own in enumerate(methods)]
            self.jobs.cancel(number)
        self.views[number] = TuningView(
            id=number,
            name=request.name,
            model=request.settings.model,
            set_name=tuning_set.filename,
            prompts=tuning_set.graded,
            pairs=tuning_set.pairs,
            vanilla=point((), 0.8, 0.4),
            floor=0.76,
            methods=tuple(methods),
            calibrated_on=None if calibration_set is None else calibration_set.name,
            created_at=datetime(2026, 1, 2, tzinfo=UTC),
            status="done" if self.cancelled_after is None else "cancelled",
            calibration_source=request.calibration_source,
            settings=request.settings,
        )
        return number

    def list(self) -> tuple[TuningView, ...]:
        ended = [view for number, view in self.views.items() if not self.jobs.stored[number].active]
        return tuple(reversed(ended))

    def view(self, run_id: int) -> TuningView:
        return self.views[run_id]

    def tuned(self, settings: AuditSettings) -> TunedValues | None:
        """What the newest run found; its strength is COFT's lambda."""
        found = [
            view
            for view in self.list()
            if view.complete and any(own.policy == settings.policy and own.best for own in view.methods)
        ]
        if not found or settings.policy != "coft":
            return None
        return TunedValues(found[0].id, found[0].name, found[0].set_name, (), 0.85)

    def applied(self, settings: AuditSettings) -> AuditSettings:
        return replace(settings, lam=0.85)

    def write_csv(self, run_id: int, folder: Path) -> Path:
        path = Path(folder) / f"tuning-{run_id}.csv"
        path.write_text(tuning_csv(self.views[run_id]), "utf-8")
        return path


def point(values: tuple[tuple[str, float], ...], accuracy: float, gap: float, chosen: bool = False) -> TunedPoint:
    return TunedPoint(values, (accuracy, accuracy - 0.05, accuracy + 0.05), (gap, gap - 0.02, gap + 0.02), chosen)


def method(name: str) -> TunedMethod:
    """GeDi cannot be run, every point of DExperts loses too much, and others are best in the middle."""
    if name == "gedi":
        return TunedMethod(name, (), "There is no model at nowhere; check the name.")
    loss = 0.3 if name == "dexperts" else 0.02
    points = [
        point((("strength", value),), 0.8 - loss * (1 + place), 0.3 - 0.1 * place, chosen=loss < 0.1 and place == 1)
        for place, value in enumerate(STRENGTHS)
    ]
    return TunedMethod(name, tuple(points), planned=len(points))


def left(own: TunedMethod, measured: bool) -> TunedMethod:
    """What a run that was cancelled keeps of a method."""
    return replace(own, points=tuple(replace(point, chosen=False) for point in own.points) if measured else ())
