"""The work of a tuning run: every method swept on the same prompts, one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from app.jobs import JobContext
from app.services.job_waits import MemoryWait
from app.services.model_host import ModelHost
from app.services.policy_choice import controls_of
from app.services.tuning.results import method_of, point_of
from app.services.views import Example
from app.services.views.tuning import TunedMethod, TuningRequest, TuningSet
from coft_core.calibrating import calibrate
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.calibrator import calibrate_many
from coft_core.engine.model import LanguageModel
from coft_core.errors import CoftError
from coft_core.masking.spans import SpanDetector
from coft_core.policies.registry import method
from coft_core.tuning import Measured, Variant, measure_many, sweep, variants_of
from coft_core.tuning.sweep import LAMS, accuracy_floor
from db.records import JsonObject


@dataclass(frozen=True, slots=True)
class TuningWork:
    """What a run is made of.

    Attributes:
        model: The audited model.
        host: Loads what policies run beside it, and shares the processor out.
        detector: Finds spans where a prompt gives none.
        items: The set.
        request: What is asked.
        examples: Prompts to calibrate COFT on, with references unless rollouts are asked for; empty tunes it without
            certification.
    """

    model: LanguageModel
    host: ModelHost
    detector: SpanDetector
    items: TuningSet
    request: TuningRequest
    examples: tuple[Example, ...] = ()


def tuned(work: TuningWork, context: JobContext) -> JsonObject:
    """Sweep every method and choose its best point; a method that cannot be run says why.

    What is measured is kept with the job after every method, so that a run that ends early keeps it.

    Raises:
        JobCancelled: The job was cancelled.
        CoftError: Vanilla decoding itself cannot be measured.
    """
    calibrations = _calibrations(work, context)
    found = [_variants(work, name, calibrations) for name in work.request.policies if name != "vanilla"]
    base = variants_of(method("vanilla"), **controls_of(work.request.settings))
    clock = _Clock(context, len(work.items.items) * (1 + sum(not isinstance(own, TunedMethod) for own in found)))
    context.begin_phase(0.0, "vanilla")
    vanilla = _measured(work, base, clock)[0]
    methods = [own if isinstance(own, TunedMethod) else _unmeasured(own) for own in found]
    context.keep(_result(work, vanilla, methods))
    for place, own in enumerate(found):
        if not isinstance(own, TunedMethod):
            methods[place] = _swept(work, own, vanilla, clock)
            context.keep(_result(work, vanilla, methods))
    return _result(work, vanilla, methods)


def _result(work: TuningWork, vanilla: Measured, methods: Sequence[TunedMethod]) -> JsonObject:
    return {
        "vanilla": asdict(point_of(vanilla, {})),
        "floor": accuracy_floor(vanilla),
        "methods": [asdict(own) for own in methods],
        "weights": work.model.weights_digest,
    }


def _unmeasured(variants: Sequence[Variant]) -> TunedMethod:
    return TunedMethod(variants[0].method, (), planned=len(variants))


class _Clock:
    """How many prompts of the whole run have been measured."""

    def __init__(self, context: JobContext, whole: int) -> None:
        self._context, self._whole, self._done = context, whole, 0
        self.waiting = MemoryWait(context)

    def tick(self, label: str) -> None:
        """Note one more prompt; the run ends here if it was cancelled."""
        self._done += 1
        self._context.progress(min(self._done / self._whole, 1.0), label)
        self._context.check_cancelled()


def _calibrations(work: TuningWork, context: JobContext) -> dict[float, Calibration] | None:
    if not work.examples:
        return None
    settings = work.request.settings
    context.begin_phase(0.0, "calibrating every lambda")

    def told(done: int, whole: int) -> None:
        context.check_cancelled()
        work.host.give_way()

    room = work.host.memory.room(MemoryWait(context))
    seed, steps, controls = settings.seed, settings.max_new_tokens, controls_of(settings)
    if work.request.calibration_source == "reference":
        with work.host.turn():
            made = calibrate_many(
                work.model, work.examples, LAMS, settings.alpha, detector=work.detector, progress=told, room=room,
                seed=seed, **controls,
            )  # fmt: skip
        return dict(zip(LAMS, made, strict=True))
    # Chains are written under one lambda, so that rollouts are calibrated one after the other.
    found = {}
    for lam in LAMS:
        context.progress(0.0, f"writing rollouts at lambda {lam:g}")
        with work.host.turn():
            found[lam] = calibrate(
                work.model, work.examples, lam, settings.alpha, source="rollout", detector=work.detector,
                progress=told, room=room, seed=seed, max_new_tokens=steps, **controls,
            )  # fmt: skip
    return found


def _variants(
    work: TuningWork, name: str, calibrations: Mapping[float, Calibration] | None
) -> tuple[Variant, ...] | TunedMethod:
    """The variants of a method, or why there are none."""
    own = method(name)
    # Only joint calibrations are made here, and only one of both readings fits what COFT certifies.
    usable = calibrations if name == "coft" else None
    given = dict(work.request.settings.parameters) if name == work.request.settings.policy else {}
    try:
        return variants_of(
            own, calibrations=usable, alphas=work.request.alphas, parameters=given,
            **controls_of(work.request.settings),
        )  # fmt: skip
    except CoftError as error:
        return TunedMethod(name, (), str(error))


def _swept(work: TuningWork, variants: Sequence[Variant], vanilla: Measured, clock: _Clock) -> TunedMethod:
    try:
        return method_of(sweep(variants, vanilla, lambda tried: _measured(work, tried, clock)))
    except CoftError as error:
        return TunedMethod(variants[0].method, (), str(error), len(variants))


def _measured(work: TuningWork, variants: Sequence[Variant], clock: _Clock) -> list[Measured]:
    """Measure the variants of one method, which need the same further models."""
    first = variants[0].policy
    models, scorers = work.host.further(first, work.model), work.host.scorers(first, work.model)
    title = method(variants[0].method).title

    def told(_: int) -> None:
        clock.tick(title)
        work.host.give_way()

    policies, room = [own.policy for own in variants], work.host.memory.room(clock.waiting)
    with work.host.turn():
        return measure_many(work.model, work.items.items, policies, models, scorers, work.detector, told, room=room)
