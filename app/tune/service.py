"""Tuning methods symmetrically, keeping what was found, and offering it to audits."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from app.hosting.model_host import ModelHost
from app.jobs.long_run import RunOfJobs
from app.jobs.service import JobContext
from app.jobs.workers import Workers
from app.prompts.sets import SamplePromptSet, parse_prompt_set, sample_of
from app.shared.audits import AuditSettings
from app.shared.decoding import FRAMED
from app.shared.errors import ServiceError
from app.shared.files import write_text
from app.shared.planning import Detectors, controls_of, prompted
from app.shared.policies import FACTORIZED, policy_info
from app.shared.wiring import Services
from app.tune.runs import (
    TunedMethod,
    TunedValues,
    TuningRequest,
    TuningView,
    method_of,
    payload_of,
    point_of,
    request_from,
    set_from,
    tuning_csv,
    view_of,
)
from app.tune.sets import TuningSet, read_tuning_set
from coft_core.assets import assets_path
from coft_core.calibrate.run import calibrate, calibrate_many
from coft_core.calibrate.task import SOURCES
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.quantile import check_alpha
from coft_core.errors import CoftError
from coft_core.fingerprint import same_digests
from coft_core.model.language_model import LanguageModel
from coft_core.policies.registry import method
from coft_core.suites.reading import Reader
from coft_core.text.detection import SpanDetector
from coft_core.tuning.measure import Measured, TuningItem, ask_of, measure_many
from coft_core.tuning.sweep import LAMS, Variant, accuracy_floor, sweep, variants_of
from coft_core.types import Example
from db.jobs import JobRecord
from db.types import JsonObject


@dataclass(frozen=True, slots=True)
class TuningWork:
    """What a run is made of; without ``examples`` to calibrate on, COFT is tuned without certification."""

    model: LanguageModel
    host: ModelHost
    detector: SpanDetector
    items: TuningSet
    request: TuningRequest
    examples: tuple[Example, ...] = ()


def tuned(work: TuningWork, context: JobContext, workers: Workers) -> JsonObject:
    """Sweep every method and choose its best point; a method that cannot be run says why.

    What is measured is kept with the job after every method, so that a run that ends early keeps it.
    """
    calibrations = _calibrations(work, context, workers)
    sweeps = [_variants(work, name, calibrations) for name in work.request.policies if name != "vanilla"]
    base = variants_of(method("vanilla"), **controls_of(work.request.settings))
    clock = _Clock(
        context, workers, len(work.items.items) * (1 + sum(not isinstance(tried, TunedMethod) for tried in sweeps))
    )
    context.begin_phase(0.0, "vanilla")
    vanilla = _measured(work, base, clock)[0]
    methods = [
        tried if isinstance(tried, TunedMethod) else TunedMethod(tried[0].method, (), planned=len(tried))
        for tried in sweeps
    ]
    context.keep(_result(work, vanilla, methods))
    for place, tried in enumerate(sweeps):
        if not isinstance(tried, TunedMethod):
            methods[place] = _swept(work, tried, vanilla, clock)
            context.keep(_result(work, vanilla, methods))
    return _result(work, vanilla, methods)


def _result(work: TuningWork, vanilla: Measured, methods: Sequence[TunedMethod]) -> JsonObject:
    return {
        "vanilla": asdict(point_of(vanilla, {})),
        "floor": accuracy_floor(vanilla),
        "methods": [asdict(tuned) for tuned in methods],
        "weights": work.model.weights_digest,
    }


class _Clock:
    """How many prompts of the whole run have been measured."""

    def __init__(self, context: JobContext, workers: Workers, whole: int) -> None:
        self._context, self._whole, self._done = context, whole, 0
        self.workers = workers
        self.waiting = context.waiting

    def tick(self, label: str) -> None:
        """Note one more prompt; the run ends here if it was cancelled."""
        self._done += 1
        self._context.progress(min(self._done / self._whole, 1.0), label)
        self._context.check_cancelled()


def _calibrations(work: TuningWork, context: JobContext, workers: Workers) -> dict[float, Calibration] | None:
    if not work.examples:
        return None
    settings = work.request.settings
    context.begin_phase(0.0, "calibrating every lambda")

    def told(done: int, whole: int) -> None:
        context.check_cancelled()
        work.host.give_way()

    room = workers.room(work.host.memory.room(context.waiting))
    seed, steps, controls = settings.seed, settings.max_new_tokens, controls_of(settings)
    if work.request.calibration_source == "reference":
        with work.host.turn():
            calibrations = calibrate_many(
                work.model, work.examples, LAMS, settings.alpha, detector=work.detector, progress=told, room=room,
                seed=seed, **controls,
            )  # fmt: skip
        return dict(zip(LAMS, calibrations, strict=True))
    # Chains are written under one lambda, so that rollouts are calibrated one after the other.
    by_lam = {}
    for lam in LAMS:
        context.progress(0.0, f"writing rollouts at lambda {lam:g}")
        with work.host.turn():
            by_lam[lam] = calibrate(
                work.model, work.examples, lam, settings.alpha, source="rollout", detector=work.detector,
                progress=told, room=room, seed=seed, max_new_tokens=steps, **controls,
            )  # fmt: skip
    return by_lam


def _variants(
    work: TuningWork, name: str, calibrations: Mapping[float, Calibration] | None
) -> tuple[Variant, ...] | TunedMethod:
    """The variants of a method, or why there are none."""
    settings = work.request.settings
    # Only joint calibrations are made here, and only one of both readings fits what COFT certifies.
    usable = calibrations if name == "coft" else None
    parameters = dict(settings.parameters) if name == settings.policy else {}
    try:
        return variants_of(
            method(name), calibrations=usable, alphas=work.request.alphas, parameters=parameters,
            **controls_of(settings),
        )  # fmt: skip
    except CoftError as error:
        return TunedMethod(name, (), str(error))


def _swept(work: TuningWork, variants: Sequence[Variant], vanilla: Measured, clock: _Clock) -> TunedMethod:
    try:
        return method_of(sweep(variants, vanilla, lambda tried: _measured(work, tried, clock)))
    except CoftError as error:
        return TunedMethod(variants[0].method, (), str(error), len(variants))


def _seconds(work: TuningWork, variants: Sequence[Variant], clock: Callable[[], float]) -> float:
    """Seconds that one prompt takes under all variants of a method, on average; 0 where what they need is missing."""
    first = variants[0].policy
    try:
        models, scorers = work.host.further(first, work.model), work.host.scorers(first, work.model)
    except CoftError:
        return 0.0
    model = work.model.dated()
    reader = Reader(model, models, scorers, work.detector, work.host.memory.room(), encoding="apart")
    policies = [variant.policy for variant in variants]

    def read(item: TuningItem) -> None:
        reader.read([ask_of(model, item)], policies, [0])

    ordered = sorted(work.items.items, key=lambda item: len(item.prompt))
    tried = [ordered[int(share * len(ordered))] for share in TRIED]
    with work.host.turn():
        # The first reading of a model is slow for reasons that do not come again.
        read(tried[0])
        began = clock()
        for item in tried:
            read(item)
        return (clock() - began) / len(tried)


def _measured(work: TuningWork, variants: Sequence[Variant], clock: _Clock) -> list[Measured]:
    """Measure the variants of one method, which need the same further models."""
    first = variants[0].policy
    models, scorers = work.host.further(first, work.model), work.host.scorers(first, work.model)
    title = method(variants[0].method).title

    def told(_: int) -> None:
        clock.tick(title)
        work.host.give_way()

    policies = [variant.policy for variant in variants]
    room = clock.workers.room(work.host.memory.room(clock.waiting))
    with work.host.turn():
        return measure_many(work.model, work.items.items, policies, models, scorers, work.detector, told, room=room)


SAMPLES = ("prompts", "tuning.json")
"""List of the sets to tune on that come with the program, among the shipped data files."""

TRIED = (0.25, 0.5, 0.75)
"""Which prompts a forecast tries, by their place when all are sorted by length."""


class TuningService(RunOfJobs[TuningView]):
    """Sweeps the strength of methods; one unit of work is a prompt under one point of a sweep."""

    kind = "tuning"
    kept = "A run that is cancelled keeps the points that are measured, and chooses none."

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._detectors, self._max_upload_bytes = services[Detectors], services.largest_upload

    def samples(self) -> tuple[SamplePromptSet, ...]:
        """The sets to tune on that come with the program."""
        listed = json.loads(assets_path(*SAMPLES).read_text("utf-8"))
        return tuple(sample_of(entry) for entry in listed)

    def read(self, path: Path, filename: str | None = None) -> TuningSet:
        """Read a set to tune on."""
        return read_tuning_set(path, filename, self._max_upload_bytes)

    def submit(self, tuning_set: TuningSet, request: TuningRequest, calibration_set: Path | None = None) -> int:
        """Start a run as a job and return the job's id, which is that of the run."""
        if not request.name.strip():
            raise ServiceError("The tuning has no name; give it one.")
        if not request.policies or len(set(request.policies)) < len(request.policies):
            raise ServiceError("Choose at least one policy to tune, each once.")
        for name in request.policies:
            if name != FACTORIZED:
                policy_info(name)
        # Made only for its checks.
        method("vanilla").build(**controls_of(request.settings))
        for alpha in (request.settings.alpha, *request.alphas):
            check_alpha(alpha)
        if request.calibration_source not in SOURCES:
            raise ServiceError(
                f"There is no context source {request.calibration_source!r}; choose one of {', '.join(SOURCES)}."
            )
        examples: tuple[Example, ...] = ()
        if calibration_set is not None:
            examples = self._examples(calibration_set, request.calibration_source)
            request = replace(request, calibration_set=calibration_set.name)
        prompted(self.host.get(request.settings.model), request.settings)
        return self.begin(request.name, payload_of(request, tuning_set), partial(self.work, examples=examples))

    def at_hand(self, model: str) -> bool:
        """Whether a model is loaded already, or comes with the program and is loaded in a moment."""
        return model == AuditSettings().model or self.host.loaded(model) is not None

    def forecast(
        self, tuning_set: TuningSet, request: TuningRequest, clock: Callable[[], float] = time.perf_counter
    ) -> float:
        """Seconds that a run takes on this computer, from a trial of a few prompts; loads the model.

        What COFT is calibrated on is left out, and so are methods that cannot be swept: they take no time.
        """
        settings = request.settings
        model = prompted(self.host.get(settings.model), settings)
        work = TuningWork(model, self.host, self._detectors.choose(settings), tuning_set, request)
        tried = [_variants(work, name, None) for name in ("vanilla", *request.policies)]
        swept = [variants for variants in tried if not isinstance(variants, TunedMethod)]
        return len(tuning_set.items) * sum(_seconds(work, variants, clock) for variants in swept)

    def has_found(self, result: JsonObject) -> bool:
        """Whether anything was measured: vanilla decoding at least."""
        return "vanilla" in result

    def found(self, job: JobRecord) -> TuningView:
        """What was measured."""
        return view_of(job)

    def write_csv(self, run_id: int, folder: Path) -> Path:
        """Write a run's points into a folder, atomically, and return the path."""
        return write_text(folder / f"tuning-{run_id}.csv", tuning_csv(self.view(run_id)))

    def tuned(self, settings: AuditSettings) -> TunedValues | None:
        """What the newest run found for the settings' policy, model, sampling and masks; None if none fits.

        A model that is loaded must have the weights that were tuned.
        """
        loaded = self.host.loaded(settings.model)
        key = FACTORIZED if settings.mask_layout == "factorized" else settings.policy
        # Only runs whose methods were all swept have a point to use.
        for job in self.ended(("done",)):
            tuned = request_from(job.payload).settings
            if _prompting(tuned) != _prompting(settings) or controls_of(tuned) != controls_of(settings):
                continue
            weights = None if job.result is None else str(job.result.get("weights"))
            if loaded is not None and weights is not None and not same_digests(weights, loaded.weights_digest):
                continue
            view = view_of(job)
            best = next((method.best for method in view.methods if method.policy == key), None)
            if best is not None:
                values = dict(best.values)
                lam, alpha = values.pop("lam", None), values.pop("alpha", None)
                return TunedValues(view.id, view.name, view.set_name, tuple(values.items()), lam, alpha)
        return None

    def applied(self, settings: AuditSettings) -> AuditSettings:
        """The settings at the tuned strength of their policy."""
        best = self.tuned(settings)
        if best is None:
            raise ServiceError(
                f"No finished tuning fits {policy_info(settings.policy).name} with this model, sampling and mask; tune "
                "it first."
            )
        return replace(
            settings,
            parameters=tuple((dict(settings.parameters) | dict(best.parameters)).items()),
            lam=settings.lam if best.lam is None else best.lam,
            alpha=settings.alpha if best.alpha is None else best.alpha,
        )

    def _examples(self, path: Path, source: str) -> tuple[Example, ...]:
        parsed = parse_prompt_set(path, path.name, self._max_upload_bytes)
        examples = tuple(example for _, example in parsed.rows)
        lacking = source == "reference" and not all(example.reference for example in examples)
        if parsed.errors or lacking:
            raise ServiceError(
                f"{path.name} has rows {'without a reference or ' if lacking else ''}with errors, so that COFT cannot "
                "be calibrated on it; correct them, or tune without certification"
                f"{', or calibrate on rollouts, which need no references' if lacking else ''}."
            )
        return examples

    def work(self, context: JobContext, examples: tuple[Example, ...] = ()) -> JsonObject:
        """Sweep every method, calibrating COFT on the examples where there are any."""
        request, tuning_set = request_from(context.payload), set_from(context.payload)
        settings = request.settings
        model = prompted(self.host.get(settings.model), settings)
        work = TuningWork(model, self.host, self._detectors.choose(settings), tuning_set, request, examples)
        with self.workers.hired(context) as workers:
            return tuned(work, context, workers)


def _prompting(settings: AuditSettings) -> tuple[str | None, ...]:
    """Which model reads prompts, and how they are put before it."""
    # A strength that was best on one day is so on the next.
    return settings.model, *(getattr(settings, name) for name in FRAMED if name != "chat_date")
