"""Calibrations as background jobs: submitted, resumed, and told how far they are."""

from __future__ import annotations

from dataclasses import replace
from threading import Lock

from app.jobs import JobContext, JobRunner
from app.services.calibration.ledgers import KeptLedger
from app.services.calibration.requests import check_request, request_from_json, request_to_json
from app.services.calibration.run import CalibrationWork, calibrated, with_chains
from app.services.calibration.store import AnyCalibration, CalibrationStore
from app.services.detection import Detectors
from app.services.errors import ServiceError
from app.services.job_views import CALIBRATION_JOB, RESUMABLE, RESUMED_AS
from app.services.job_waits import MemoryWait
from app.services.model_host import ModelHost
from app.services.prompting import pinned, prompted
from app.services.prompts.checks import require_maskable, usable_rows
from app.services.prompts.files import PromptRow, row_from, row_record
from app.services.prompts.reading import first_refused, refused_rows
from app.services.views import CalibrationRequest, ParsedPromptSet, RowError
from coft_core.conformal.density_ratio import LEAST_PROMPTS
from coft_core.masking.sentinel import require_sentinel, resolve_sentinel
from db.errors import NotFoundError
from db.records import JobRecord, JsonObject
from db.repositories import JobsRepository, LedgersRepository, PromptSetsRepository


class CalibrationJobs:
    """Starts calibrations in the background, anew or from where an earlier one ended."""

    def __init__(
        self,
        store: CalibrationStore,
        prompt_sets: PromptSetsRepository,
        jobs: JobsRepository,
        ledgers: LedgersRepository,
        runner: JobRunner,
        host: ModelHost,
        detectors: Detectors,
    ) -> None:
        """Wire the jobs.

        Args:
            store: Where finished calibrations go.
            prompt_sets: The store of prompt sets.
            jobs: The rows of jobs.
            ledgers: Keeps what unfinished jobs have worked out.
            runner: Runs them.
            host: Owner of the models.
            detectors: Find spans where a row names none.
        """
        self._store = store
        self._prompt_sets = prompt_sets
        self._jobs = jobs
        self._ledgers = ledgers
        self._runner = runner
        self._host = host
        self._detectors = detectors
        self._resuming = Lock()

    def work(self, prompts: ParsedPromptSet, request: CalibrationRequest) -> CalibrationWork:
        """The work that a request would be, on the rows that can be used; loads the model.

        Raises:
            ServiceError: No row can be used, or a choice does not fit the prompt set.
            CoftError: A setting is outside its range, or the model cannot be loaded.
            NotFoundError: The word list has been deleted.
        """
        return self._work(prompts, request)[0]

    def submit(self, prompts: ParsedPromptSet, request: CalibrationRequest) -> int:
        """Store the prompt set, start the calibration as a job, and return the job's id.

        Raises:
            ServiceError: Rows cannot be used and going on without them was not allowed, or none is left; or a choice
                does not fit the prompt set.
            CoftError: A setting is outside its range, or the model cannot be loaded.
            NotFoundError: The word list has been deleted.
        """
        work, errors = self._work(prompts, request)
        if errors and not request.accept_errors:
            raise ServiceError(_refusal(prompts, errors))
        rows = [row_record(row) for row in work.rows]
        stored = self._prompt_sets.add(request.name, prompts.filename, prompts.digest, rows)
        return self._start(work, stored.id, None)

    def resume(self, job_id: int) -> int:
        """Start a cancelled, failed or interrupted calibration again, from what it had done.

        Returns:
            The new job's id.

        Raises:
            ServiceError: The job is still at work, is done, was resumed already, or its prompt set is gone.
            CoftError: The model cannot be loaded.
            NotFoundError: There is no such job, or its word list has been deleted.
        """
        with self._resuming:
            record = self._runner.get(job_id)
            _require_resumable(record)
            prompt_set_id, request = _asked(record)
            try:
                rows = tuple(row_from(row) for row in self._prompt_sets.rows(prompt_set_id))
            except NotFoundError as error:
                raise ServiceError(
                    f"The prompt set of job {job_id} has been deleted, so it cannot be resumed; calibrate anew."
                ) from error
            check_request(request)
            model = prompted(self._host.get(request.model), request)
            work = CalibrationWork(model, self._detectors.choose(request), rows, request)
            return self._start(work, prompt_set_id, job_id)

    def _work(
        self, prompts: ParsedPromptSet, request: CalibrationRequest
    ) -> tuple[CalibrationWork, tuple[RowError, ...]]:
        check_request(request)
        detector = self._detectors.choose(request)
        loaded = self._host.get(request.model)
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

    def _start(self, work: CalibrationWork, prompt_set_id: int, resumes: int | None) -> int:
        payload: JsonObject = {"prompt_set_id": prompt_set_id, "request": request_to_json(work.request)}

        def take_up(job_id: int) -> None:
            if resumes is not None:
                self._ledgers.move(resumes, job_id)
                self._jobs.set_result(resumes, {RESUMED_AS: job_id})

        def run(context: JobContext) -> JsonObject:
            with KeptLedger(self._ledgers, context.job_id, prompt_set_id) as ledger:
                made = self._calibrate(context, work, ledger)
                record = self._store.add(made, prompt_set_id, context.job_id)
            return {"calibration_id": record.id}

        return self._runner.submit(CALIBRATION_JOB, work.request.name, run, payload, take_up)

    def _calibrate(self, context: JobContext, work: CalibrationWork, ledger: KeptLedger) -> AnyCalibration:
        work = replace(work, room=self._host.memory.room(MemoryWait(context)))
        end = work.share_of_calibrating
        context.begin_phase(0.0, _message(work.request.source, 0, len(work.rows)))
        with self._host.turn():
            report = _Report(context, ledger, self._host, 0.0, end)
            made = calibrated(work, report, ledger.stage("calibration"))
            if not work.records_chains:
                return made
            context.begin_phase(end, _message("chains", 0, work.prompts_to_record))
            report = _Report(context, ledger, self._host, end, 1.0)
            return with_chains(work, made, report, ledger.stage("chains"))


class _Report:
    """Called by the core after each batch: reports, saves, gives way, and ends the job where it was cancelled."""

    def __init__(self, context: JobContext, ledger: KeptLedger, host: ModelHost, begin: float, end: float) -> None:
        self._context, self._ledger, self._host = context, ledger, host
        self._begin, self._end = begin, end

    def __call__(self, done: int, total: int) -> None:
        self._context.check_cancelled()
        self._ledger.save_if_due()
        fraction = self._begin + (self._end - self._begin) * done / max(total, 1)
        self._context.progress(min(fraction, 1.0), _message(self._ledger.phase, done, total))
        # A reviewer who steps an audit waits for one batch, not for the whole calibration.
        self._host.give_way()


def _require_resumable(record: JobRecord) -> None:
    if record.kind != CALIBRATION_JOB:
        raise ServiceError(f"Job {record.id} is no calibration, so it cannot be resumed.")
    if record.status == "done":
        raise ServiceError(f"Job {record.id} is done; there is nothing left to resume.")
    if record.status not in RESUMABLE:
        raise ServiceError(f"Job {record.id} is still at work; wait until it has ended, or cancel it first.")
    if heir := (record.result or {}).get(RESUMED_AS):
        raise ServiceError(f"Job {record.id} was resumed as job {heir} already; look at that one.")


def _asked(record: JobRecord) -> tuple[int, CalibrationRequest]:
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
        raise ServiceError("The prompt set has no column of weights; add one, or choose other weights.")
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
        "chains": "chains of the calibrated policy",
    }.get(name, name)
    return f"{words}, {done} of {total} prompts"
