"""Calibrations: what can be asked for, runs in the background that are resumed after a crash, and finished ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import get_args

import numpy as np
from pydantic import TypeAdapter, ValidationError

from app.calibrate.readings import CalibrationReadings
from app.calibrate.run import (
    NO_WEIGHTS,
    OPTIONS,
    CalibrationWork,
    KeptLedger,
    calibrated,
    estimated_weights,
    with_chains,
)
from app.calibrate.trial import (
    NOTHING_MASKED,
    CalibrationEstimate,
    Trial,
    nothing_masked,
    preview_rows,
    require_maskable,
    usable_rows,
)
from app.hosting.model_host import ModelHost
from app.jobs.long_run import LongRun
from app.jobs.service import CALIBRATION_JOB, RESUMABLE, JobContext, require_own
from app.prompts.sets import (
    ParsedPromptSet,
    PromptPreview,
    PromptSetReader,
    RowError,
    SamplePromptSet,
    first_refused,
    refused_rows,
    sample_of,
)
from app.shared.audits import CalibrationRequest, CalibrationSummary
from app.shared.calibrations import CalibrationStore
from app.shared.errors import ServiceError
from app.shared.planning import Detectors, pinned, prompted
from app.shared.thresholds import Thresholds, summary_of
from app.shared.wiring import Services
from coft_core.calibrate.settings import CalibrationOptions
from coft_core.calibrate.task import SOURCES
from coft_core.conformal.bins import check_spacing
from coft_core.conformal.calibration import Calibration, split_alpha
from coft_core.conformal.part import Part
from coft_core.conformal.quantile import check_alpha, check_estimator
from coft_core.conformal.shift import LEAST_PROMPTS, Shift
from coft_core.conformal.split import context_numbers
from coft_core.model.forced import Room
from coft_core.model.language_model import LanguageModel
from coft_core.policies.fusion import check_lambda
from coft_core.text.detection import SpanDetector
from coft_core.text.masking import MaskLayout, MaskMode, check_families
from coft_core.text.sentinel import require_sentinel, resolve_sentinel
from db.jobs import RESUMED_AS, JobRecord, JobsRepository, LedgersRepository
from db.prompt_sets import PromptRow, PromptSetsRepository
from db.types import JsonObject, NotFoundError

WEIGHTINGS = ("none", "column", "estimated")
READINGS = ("both", "factual")
BEFORE: JsonObject = {"bin_spacing": "even"}
"""What requests asked for before they could say it, where that is no longer the default."""


def check_request(request: CalibrationRequest) -> None:
    """Refuse settings that cannot be used, whatever the prompts."""
    if not request.name.strip():
        raise ServiceError("The calibration has no name; give it one.")
    _one_of("context source", request.source, SOURCES)
    _one_of("mask layout", request.mask_layout, get_args(MaskLayout))
    _one_of("mask mode", request.mask_mode, get_args(MaskMode))
    _one_of("weighting", request.weighting, WEIGHTINGS)
    _one_of("choice of readings", request.certified_in, READINGS)
    check_lambda(request.lam)
    check_alpha(request.alpha)
    check_estimator(request.estimator)
    Shift.bounded(request.rho)
    # Made for its checks alone.
    numbers = {name: getattr(request, name) for name in (*OPTIONS, "temperature", "top_p", "top_k")}
    CalibrationOptions(bin_spacing=check_spacing(request.bin_spacing), **numbers)
    _check_shares(request)
    factual, weighted = request.certified_in == "factual", request.weighting != "none"
    given = len([prompt for prompt in request.deployment if prompt.strip()])
    for refused, why in (
        (
            factual and request.mask_layout != "joint",
            "Thresholds of only the factual reading have no masks; choose the joint mask for them.",
        ),
        (
            factual and request.source != "reference",
            "Thresholds of only the factual reading are calibrated on references; choose these, or both readings.",
        ),
        (
            factual and request.record_chains,
            "Drift is measured for both readings together; leave texts out, or calibrate both.",
        ),
        (weighted and request.rho != 1, "A bound rho and weights exclude each other; choose one of them."),
        (
            weighted and request.record_chains,
            "Chains cannot be recorded under weights, since drift is measured without them; leave one of them out.",
        ),
        (
            request.weighting == "estimated" and given < LEAST_PROMPTS,
            f"There are {given} prompts of the deployment and estimating weights needs at least {LEAST_PROMPTS}; "
            "give more.",
        ),
    ):
        if refused:
            raise ServiceError(why)


def request_from_json(data: JsonObject) -> CalibrationRequest:
    """A request as a job kept it; settings that an older version did not know have their defaults."""
    known = {field.name for field in fields(CalibrationRequest)}
    if unknown := sorted(data.keys() - known):
        raise ServiceError(
            f"The job was made by another version of the program (it has the setting “{unknown[0]}”), so it cannot be "
            "resumed here; start the calibration again."
        )
    try:
        return TypeAdapter(CalibrationRequest).validate_python(BEFORE | data)
    except ValidationError as error:
        raise ServiceError("The job lacks its settings and cannot be resumed; start the calibration again.") from error


def _one_of(what: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ServiceError(f"There is no {what} {value!r}; choose one of {', '.join(choices)}.")


def _check_shares(request: CalibrationRequest) -> None:
    if request.alpha_by_family is None:
        return
    if request.mask_layout == "joint":
        raise ServiceError("Shares of alpha by family need factorized masks; choose these, or give one alpha.")
    named = [name for name, _ in request.alpha_by_family]
    if doubled := next((name for name in named if named.count(name) > 1), None):
        raise ServiceError(f"The family “{doubled}” has two shares of alpha; give one.")
    check_families(named)
    split_alpha(request.alpha, named, dict(request.alpha_by_family))


DEMO_SAMPLE = {
    "file": "calibration_demo.jsonl",
    "title": "Demo prompts",
    "description": "What the embedded calibration was made with; a prompt and a reference in each row.",
}


class CalibrationService(LongRun, PromptSetReader):
    """Calibrations: run in the background, from the start or from where they ended, and read afterwards."""

    kind, uses = CALIBRATION_JOB, ("calibration",)

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        PromptSetReader.__init__(self, services.largest_upload)
        self._store = services[CalibrationStore]
        self._prompt_sets = services[PromptSetsRepository]
        self._jobs, self._ledgers = services[JobsRepository], services[LedgersRepository]
        self._detectors = services[Detectors]
        self.view, self.load, self.delete = CalibrationReadings(self._store).view, self._store.load, self._store.delete
        self.drift = services[Thresholds].drift

    def samples(self) -> tuple[SamplePromptSet, ...]:
        """Prompt sets that come with the program, to calibrate on."""
        return (*super().samples(), sample_of(DEMO_SAMPLE))

    def row_errors(self, prompts: ParsedPromptSet, request: CalibrationRequest) -> tuple[RowError, ...]:
        """All that is wrong with a prompt set for a request, in the order of lines; loads the model."""
        rows, errors = usable_rows(prompts, request, prompted(self.host.get(request.model), request))
        if rows and nothing_masked(rows, request, self._detectors.choose(request)):
            errors = tuple(sorted((*errors, RowError(rows[0].line, "spans", NOTHING_MASKED)), key=lambda e: e.line))
        return errors

    def preview(
        self, prompts: ParsedPromptSet, request: CalibrationRequest, limit: int = 12
    ) -> tuple[PromptPreview, ...]:
        """The first rows with the spans that will be masked; needs no model."""
        return preview_rows(prompts, request, self._detectors.choose(request), limit)

    def estimate(self, prompts: ParsedPromptSet, request: CalibrationRequest) -> CalibrationEstimate:
        """How long the calibration will take, from a trial of about two seconds; loads the model."""
        # Tokenizing the upload and looking for spans need no turn of the model; only the trial's forwards do.
        trial = Trial(replace(self._work(prompts, request)[0], room=self.host.memory.room()))
        with self.host.turn():
            return trial.estimate()

    def submit(self, prompts: ParsedPromptSet, request: CalibrationRequest) -> int:
        """Store the prompt set, start the calibration as a job, and return the job's id."""
        work, errors = self._work(prompts, request)
        if errors and not request.accept_errors:
            raise ServiceError(_refusal(prompts, errors))
        with self._prompt_sets.together():
            stored = self._prompt_sets.add(request.name, prompts.filename, prompts.digest, work.rows)
            return self._start(work, stored.id)

    def made(self, job: JobRecord) -> int:
        """The calibration that a job made."""
        return int((job.result or {})["calibration_id"])

    def resume(self, number: int) -> int:
        """Start a cancelled, failed or interrupted calibration again, from what it had done; the new job's id."""
        record = self.jobs.get(number)
        require_own(record)
        _require_resumable(record)
        prompt_set_id, request = _submitted(record)
        try:
            rows = tuple(self._prompt_sets.rows(prompt_set_id))
        except NotFoundError as error:
            raise ServiceError(
                f"The prompt set of job {number} has been deleted, so it cannot be resumed; calibrate again."
            ) from error
        check_request(request)
        model = prompted(self.host.get(request.model), request)
        work = CalibrationWork(model, self._detectors.choose(request), rows, request)
        return self._start(work, prompt_set_id, resumes=number)

    def list(self, model: str | None = None) -> tuple[CalibrationSummary, ...]:
        """Finished calibrations, newest first."""
        return tuple(summary_of(record) for record in self._store.list(model))

    def reweight(self, calibration_id: int, deployment: tuple[str, ...], name: str) -> int:
        """Store a copy of a calibration, weighted for other prompts, without the model; returns its id."""
        record, stored = self._store.get(calibration_id), self._store.load(calibration_id)
        if record.prompt_set_id is None:
            raise ServiceError(
                f"The prompts of the calibration “{record.name}” are not stored, so its weights cannot be estimated; "
                "calibrate on a prompt set and ask for weights."
            )
        examples = [row.example for row in self._prompt_sets.rows(record.prompt_set_id)]
        numbers = context_numbers(examples, by_group=bool(stored.context_groups.names))
        if any(_counted_otherwise(part, numbers) for _, part in stored.parts):
            raise ServiceError(
                f"The calibration “{record.name}” was made by an earlier version, which counted rows of one group as "
                "one context; calibrate again to estimate weights."
            )
        shift = estimated_weights([example.prompt for example in examples], numbers, deployment)
        name = name.strip() or f"{record.name}, weighted"
        reweighted = replace(stored.under(shift), name=name)
        return self._store.add(reweighted, record.prompt_set_id).id

    def prompts_in_use(self, path: Path) -> tuple[str, ...]:
        """Prompts like those in use, from a CSV or JSONL file."""
        parsed = self.parse(path)
        if not parsed.rows:
            raise ServiceError(f"{path.name} holds no prompts; name its column of prompts “prompt”.")
        return tuple(example.prompt for _, example in parsed.rows)

    def export(self, calibration_id: int, folder: Path) -> Path:
        """Write a calibration as a file that the library and the command line load, and return its path."""
        path = folder / f"calibration-{calibration_id}.zip"
        self._store.load(calibration_id).save(path)
        return path

    def _work(
        self, prompts: ParsedPromptSet, request: CalibrationRequest
    ) -> tuple[CalibrationWork, tuple[RowError, ...]]:
        """The work that a request would be on the rows that can be used, and what is wrong with the others."""
        check_request(request)
        detector = self._detectors.choose(request)
        loaded = self.host.get(request.model)
        # A run that is resumed on another day must read its prompts as it did.
        request = pinned(loaded, request)
        model = prompted(loaded, request)
        # Thresholds of the factual reading alone mask nothing.
        find = require_sentinel if request.certified_in == "both" else resolve_sentinel
        find(model.tokenizer, request.sentinel or None)
        rows, errors = usable_rows(prompts, request, model)
        if not rows:
            raise ServiceError(_refusal(prompts, errors))
        _check_weights(rows, request)
        require_maskable(rows, request, detector)
        return CalibrationWork(model, detector, rows, request), errors

    def _start(self, work: CalibrationWork, prompt_set_id: int, resumes: int | None = None) -> int:
        payload: JsonObject = {"prompt_set_id": prompt_set_id, "request": asdict(work.request)}

        def take_up(job_id: int) -> None:
            if resumes is not None:
                self._jobs.take_up(resumes, job_id)
                self._ledgers.move(resumes, job_id)

        def run(context: JobContext) -> JsonObject:
            with KeptLedger(self._ledgers, context.job_id, prompt_set_id) as ledger:
                calibration = self._calibrate(context, work, ledger)
                # Ended in between, a job that is resumed would calibrate a second time.
                with self._prompt_sets.together():
                    made = {"calibration_id": self._store.add(calibration, prompt_set_id, context.job_id).id}
                    context.complete(made)
            return made

        return self.jobs.submit(self.kind, work.request.name, run, payload, take_up)

    def _calibrate(self, context: JobContext, work: CalibrationWork, ledger: KeptLedger) -> Calibration:
        end = work.share_of_calibrating
        with self.workers.hired(context) as workers:
            work = replace(work, room=workers.room(self.host.memory.room(context.waiting)))
            context.begin_phase(0.0, _message(work.request.source, 0, len(work.rows)))
            with self.host.turn():
                report = _Report(context, ledger, self.host, 0.0, end)
                calibration = calibrated(work, report, ledger.stage("calibration"))
                if not work.records_chains:
                    return calibration
                context.begin_phase(end, _message("chains", 0, work.prompts_to_record))
                report = _Report(context, ledger, self.host, end, 1.0)
                return with_chains(work, calibration, report, ledger.stage("chains"))


def calibrated_again(
    model: LanguageModel, detector: SpanDetector, rows: tuple[PromptRow, ...], request: CalibrationRequest, room: Room
) -> Calibration:
    """A calibration from what it was once made of, as the service makes it."""
    work = CalibrationWork(model, detector, rows, request, room)
    calibration = calibrated(work)
    return with_chains(work, calibration) if work.records_chains else calibration


@dataclass(frozen=True, slots=True)
class _Report:
    """Called by the core after each batch: reports, saves, gives way, and ends the job where it was cancelled."""

    context: JobContext
    ledger: KeptLedger
    host: ModelHost
    begin: float
    end: float

    def __call__(self, done: int, total: int) -> None:
        self.context.check_cancelled()
        self.ledger.save_if_due()
        fraction = self.begin + (self.end - self.begin) * done / max(total, 1)
        self.context.progress(min(fraction, 1.0), _message(self.ledger.phase, done, total))
        # A reviewer who steps an audit waits for one batch, not for the whole calibration.
        self.host.give_way()


def _require_resumable(record: JobRecord) -> None:
    if record.kind != CALIBRATION_JOB:
        raise ServiceError(f"Job {record.id} is no calibration, so it cannot be resumed.")
    if record.status == "done":
        raise ServiceError(f"Job {record.id} is done; there is nothing left to resume.")
    if record.status not in RESUMABLE:
        raise ServiceError(f"Job {record.id} is still at work; wait until it has ended, or cancel it first.")
    if heir := (record.result or {}).get(RESUMED_AS):
        raise ServiceError(f"Job {record.id} was resumed as job {heir} already; look at that one.")


def _submitted(record: JobRecord) -> tuple[int, CalibrationRequest]:
    """Prompt set and request of a job."""
    number, request = record.payload.get("prompt_set_id"), record.payload.get("request")
    if not isinstance(number, int) or not isinstance(request, dict):
        raise ServiceError(
            f"Job {record.id} does not say what it was asked, so it cannot be resumed; start a new calibration."
        )
    return number, request_from_json(request)


def _refusal(prompts: ParsedPromptSet, errors: tuple[RowError, ...]) -> str:
    """Why a prompt set with these errors is refused."""
    if not errors:
        return f"{prompts.filename} has no row to calibrate on; add prompts."
    if len({error.line for error in errors}) == prompts.total:
        return f"None of the {prompts.total} rows can be used, {first_refused(errors)}; correct them."
    return refused_rows(prompts, errors)


def _check_weights(rows: tuple[PromptRow, ...], request: CalibrationRequest) -> None:
    if request.weighting == "column" and any(row.weight is None for row in rows):
        raise ServiceError(NO_WEIGHTS)
    if request.weighting == "estimated" and len(rows) < LEAST_PROMPTS:
        raise ServiceError(
            f"{len(rows)} prompts can be used and estimating weights needs at least {LEAST_PROMPTS}; give more."
        )


def _message(phase: str, done: int, total: int) -> str:
    """What a job is doing, e.g. ``"round 2 of rollouts, 120 of 400 prompts"``."""
    name, _, number = phase.partition("/")
    words = {
        "reference": "references",
        "rollout": f"round {number} of rollouts" if number else "rollouts",
        "verification": "prompts kept apart",
        "chains": "texts of the calibrated policy",
    }.get(name, name)
    return f"{words}, {done} of {total} prompts"


def _counted_otherwise(part: Part, numbers: Sequence[int]) -> bool:
    """Whether the contexts of a calibration's rows, which are counted from 1, are others than these numbers say."""
    return any(
        number != context
        for values in (part.values, part.verification)
        # Files of the first version name no rows; the values of a context then stand for a row of its number.
        if not np.array_equal(values.rows, values.contexts)
        for number, context in zip(np.array(numbers)[values.rows - 1], values.contexts, strict=True)
    )
