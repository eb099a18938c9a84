"""Tuning methods symmetrically, keeping what was found, and giving it to whoever decodes next."""

from __future__ import annotations

import builtins
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from app.jobs import JobContext, JobRunner
from app.services.csv_files import write_text
from app.services.detection import Detectors
from app.services.errors import ServiceError
from app.services.known_policies import FACTORIZED, policy_info
from app.services.model_host import ModelHost
from app.services.policy_choice import controls_of
from app.services.prompting import prompted
from app.services.prompts.files import parse_prompt_set
from app.services.prompts.samples import sample_of
from app.services.tuning.files import read_tuning_set
from app.services.tuning.plain import tuning_csv
from app.services.tuning.results import has_points, payload_of, request_from, set_from, view_of
from app.services.tuning.work import TuningWork, tuned
from app.services.views import AuditSettings, Example, SamplePromptSet
from app.services.views.audits import ParameterValue
from app.services.views.tuning import TunedPoint, TunedValues, TuningRequest, TuningSet, TuningView
from coft_core.assets import assets_path
from coft_core.calibrating.run import SOURCES
from coft_core.conformal.quantile import check_alpha
from coft_core.digests import same_digests
from coft_core.policies.registry import method
from db.errors import NotFoundError
from db.records import JobRecord, JobStatus, JsonObject
from db.repositories import JobsRepository

JOB_KIND = "tuning"

SAMPLES = ("prompts", "tuning.json")
"""List of the sets to tune on that come with the program, among the shipped data files."""


class TuningService:
    """Runs tunings as jobs; a finished job is the record of its run."""

    def __init__(
        self,
        jobs: JobsRepository,
        runner: JobRunner,
        host: ModelHost,
        detectors: Detectors,
        max_upload_bytes: int = 20_000_000,
    ) -> None:
        """Wire to the store of jobs, what runs them, the models and the detectors."""
        self._jobs = jobs
        self._runner = runner
        self._host = host
        self._detectors = detectors
        self._max_upload_bytes = max_upload_bytes

    def samples(self) -> tuple[SamplePromptSet, ...]:
        """The sets to tune on that come with the program."""
        listed = json.loads(assets_path(*SAMPLES).read_text("utf-8"))
        return tuple(sample_of(entry) for entry in listed)

    def read(self, path: Path, filename: str | None = None) -> TuningSet:
        """Read a set to tune on.

        Raises:
            ServiceError: It cannot be used; the sentence names line and column.
        """
        return read_tuning_set(path, filename, self._max_upload_bytes)

    def submit(self, tuning_set: TuningSet, request: TuningRequest, calibration_set: Path | None = None) -> int:
        """Start a run as a job and return the job's id, which is that of the run.

        Args:
            tuning_set: What is tuned on.
            request: What is asked.
            calibration_set: Prompt set on which COFT is calibrated for every lambda, with references unless the request
                asks for rollouts; None tunes it without certification.

        Raises:
            ServiceError: It has no name or no policy, a policy is unknown, or the prompt set cannot be calibrated on.
            InvalidInputError: A sampling control or a risk level is outside its range.
            ModelLoadError: The model cannot be loaded.
        """
        if not request.name.strip():
            raise ServiceError("The tuning has no name; give it one.")
        if not request.policies or len(set(request.policies)) < len(request.policies):
            raise ServiceError("Choose at least one policy to tune, each once.")
        for name in request.policies:
            if name != FACTORIZED:
                policy_info(name)
        # Made for its checks alone.
        method("vanilla").build(**controls_of(request.settings))
        for alpha in (request.settings.alpha, *request.alphas):
            check_alpha(alpha)
        if request.calibration_source not in SOURCES:
            raise ServiceError(
                f"There is no context source {request.calibration_source!r}; choose one of {', '.join(SOURCES)}."
            )
        source = request.calibration_source
        examples = () if calibration_set is None else self._examples(calibration_set, source)
        named = None if calibration_set is None else calibration_set.name
        own = replace(request, calibration_set=named)
        prompted(self._host.get(request.settings.model), request.settings)
        return self._runner.submit(
            JOB_KIND,
            request.name,
            lambda context: self._work(context, examples),
            payload_of(own, tuning_set),
        )

    def list(self) -> tuple[TuningView, ...]:
        """Runs that have ended with something measured, newest first; those that ended early say so."""
        return tuple(view_of(job) for job in self._ended())

    def view(self, run_id: int) -> TuningView:
        """A run that has ended with something measured.

        Raises:
            NotFoundError: There is no such run, it is still at work, or nothing was measured.
        """
        found = next((job for job in self._ended() if job.id == run_id), None)
        if found is None:
            raise NotFoundError(f"There is no tuning {run_id} with points; choose one from the list.")
        return view_of(found)

    def write_csv(self, run_id: int, folder: Path) -> Path:
        """Write a run's points into a folder, atomically, and return the path."""
        return write_text(Path(folder) / f"tuning-{run_id}.csv", tuning_csv(self.view(run_id)))

    def tuned(self, settings: AuditSettings) -> TunedValues | None:
        """What the newest run found for the settings' policy, model, sampling and masks; None if none fits.

        A model that is loaded must have the weights that were tuned.
        """
        loaded = self._host.loaded(settings.model)
        key = FACTORIZED if settings.mask_layout == "factorized" else settings.policy
        for job in self._finished():
            request = request_from(job.payload)
            own = request.settings
            alike = (own.model, own.prompt_format) == (settings.model, settings.prompt_format)
            if not alike or controls_of(own) != controls_of(settings):
                continue
            tuned = None if job.result is None else str(job.result.get("weights"))
            if loaded is not None and tuned is not None and not same_digests(tuned, loaded.weights_digest):
                continue
            view = view_of(job)
            best = next((own.best for own in view.methods if own.policy == key), None)
            if best is not None:
                return _values(view, best)
        return None

    def applied(self, settings: AuditSettings) -> AuditSettings:
        """The settings at the tuned strength of their policy.

        Raises:
            ServiceError: No finished run fits them.
        """
        found = self.tuned(settings)
        if found is None:
            raise ServiceError(
                f"No finished tuning fits {policy_info(settings.policy).name} with this model, sampling and mask; tune "
                "it first."
            )
        own = dict(settings.parameters) | dict(found.parameters)
        return replace(
            settings,
            parameters=tuple(own.items()),
            lam=settings.lam if found.lam is None else found.lam,
            alpha=settings.alpha if found.alpha is None else found.alpha,
        )

    def _finished(self) -> builtins.list[JobRecord]:
        """Runs whose methods were all swept: only these have a point to use."""
        statuses: tuple[JobStatus, ...] = ("done",)
        return self._jobs.list(JOB_KIND, statuses, limit=1000)

    def _ended(self) -> builtins.list[JobRecord]:
        statuses: tuple[JobStatus, ...] = ("done", "cancelled", "interrupted", "failed")
        return [job for job in self._jobs.list(JOB_KIND, statuses, limit=1000) if has_points(job)]

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

    def _work(self, context: JobContext, examples: tuple[Example, ...]) -> JsonObject:
        request, tuning_set = request_from(context.payload), set_from(context.payload)
        settings = request.settings
        model = prompted(self._host.get(settings.model), settings)
        work = TuningWork(model, self._host, self._detectors.choose(settings), tuning_set, request, examples)
        return tuned(work, context)


def _values(view: TuningView, best: TunedPoint) -> TunedValues:
    found: Mapping[str, float] = dict(best.values)
    own: tuple[tuple[str, ParameterValue], ...] = tuple(
        (name, value) for name, value in found.items() if name not in ("lam", "alpha")
    )
    return TunedValues(view.id, view.name, view.set_name, own, found.get("lam"), found.get("alpha"))
