"""Calibration runs: made as background jobs, stored with their values, read at any alpha without the model."""

from __future__ import annotations

import builtins
import math
from collections import OrderedDict
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import Any

from app.jobs import JobContext, JobRunner
from app.services.calibration_views import calibration_view, summary_of
from app.services.detection import Detectors
from app.services.errors import ServiceError
from app.services.mapping import span_record
from app.services.model_host import ModelHost
from app.services.prompt_sets import parse_prompt_set, require_references
from app.services.views import (
    CalibrationRequest,
    CalibrationSummary,
    CalibrationView,
    ParsedPromptSet,
    RowError,
)
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.calibrator import calibrate, example_length
from coft_core.conformal.quantile import check_alpha
from coft_core.engine.model import LanguageModel
from coft_core.fusion import check_lambda
from coft_core.masking.spans import SpanDetector
from coft_core.sampling import Sampling
from coft_core.types import Example
from db.records import BinRecord, CalibrationFields, CalibrationRecord, JsonObject, PromptRowRecord
from db.repositories import CalibrationsRepository, PromptSetsRepository

JOB_KIND = "calibration"
READ_CACHE = 32


class CalibrationService:
    """Prompt sets and calibration runs."""

    def __init__(
        self,
        runs: CalibrationsRepository,
        prompt_sets: PromptSetsRepository,
        jobs: JobRunner,
        host: ModelHost,
        detectors: Detectors,
        max_upload_bytes: int = 20_000_000,
    ) -> None:
        """Wire the service.

        Args:
            runs: The store of calibration runs.
            prompt_sets: The store of prompt sets.
            jobs: Runs calibrations in the background.
            host: Owner of the models.
            detectors: Find spans where a row names none.
            max_upload_bytes: Largest prompt set that is read.
        """
        self._runs = runs
        self._prompt_sets = prompt_sets
        self._jobs = jobs
        self._host = host
        self._detectors = detectors
        self._max_upload_bytes = max_upload_bytes
        self._loaded: OrderedDict[int, Calibration] = OrderedDict()
        self._lock = Lock()

    def parse(self, path: Path, filename: str | None = None) -> ParsedPromptSet:
        """Read a CSV or JSONL prompt set; row-level problems are data, an unreadable file is an error.

        A row without a reference is a problem too, since calibration is on references.
        """
        return require_references(parse_prompt_set(path, filename, self._max_upload_bytes))

    def submit(self, prompts: ParsedPromptSet, request: CalibrationRequest) -> int:
        """Store the prompt set, start the calibration as a job, and return the job's id.

        Raises:
            ServiceError: Rows cannot be used and going on without them was not allowed, or none is left.
            CoftError: A setting is outside its range, or the model cannot be loaded.
            NotFoundError: The word list has been deleted.
        """
        _check(request)
        detector = self._detectors.choose(request)
        model = self._host.get(request.model)
        usable, errors = self._usable(prompts, model)
        if errors and not request.accept_errors:
            first = errors[0]
            raise ServiceError(
                f"{len(errors)} of {prompts.total} rows cannot be used, the first on line {first.line} "
                f"({first.column} {first.message}); correct them, or go on with the good rows."
            )
        if not usable:
            raise ServiceError("No row can be used to calibrate; give each prompt a reference continuation.")
        stored = self._prompt_sets.add(request.name, prompts.filename, prompts.digest, [_row(*row) for row in usable])
        payload: JsonObject = {"prompt_set_id": stored.id, "request": asdict(request)}
        examples = [example for _, example in usable]

        def work(context: JobContext) -> JsonObject:
            return self._calibrate(context, model, detector, examples, request, stored.id)

        return self._jobs.submit(JOB_KIND, request.name, work, payload)

    def row_errors(self, prompts: ParsedPromptSet, model: str) -> tuple[RowError, ...]:
        """All that is wrong with a prompt set for a model, in the order of lines: also what only the model can tell."""
        return self._usable(prompts, self._host.get(model))[1]

    def list(self, model: str | None = None) -> tuple[CalibrationSummary, ...]:
        """Finished calibrations, newest first."""
        return tuple(summary_of(record) for record in self._runs.list(model))

    def view(self, calibration_id: int, alpha: float | None = None) -> CalibrationView:
        """A calibration read at an alpha (its own by default); needs no model."""
        record = self._runs.get(calibration_id)
        calibration = self.load(calibration_id)
        if alpha is not None and alpha != calibration.alpha:
            calibration = calibration.read(alpha=alpha)
        return calibration_view(record, calibration)

    def find(self, calibration_id: int | None, alpha: float) -> CalibrationView | None:
        """The view of a calibration that may have been deleted."""
        if calibration_id is None:
            return None
        return self.view(calibration_id, alpha) if any(r.id == calibration_id for r in self._runs.list()) else None

    def load(self, calibration_id: int) -> Calibration:
        """The calibration itself, values included."""
        with self._lock:
            if calibration_id not in self._loaded:
                self._loaded[calibration_id] = Calibration.from_bytes(self._runs.values(calibration_id))
            self._loaded.move_to_end(calibration_id)
            while len(self._loaded) > READ_CACHE:
                self._loaded.popitem(last=False)
            return self._loaded[calibration_id]

    def delete(self, calibration_id: int) -> None:
        """Delete a calibration; sessions that used it keep its label."""
        if self._runs.get(calibration_id).embedded:
            raise ServiceError("The embedded calibration comes with the program and cannot be deleted.")
        self._runs.delete(calibration_id)
        with self._lock:
            self._loaded.pop(calibration_id, None)

    def add(
        self, calibration: Calibration, prompt_set_id: int | None = None, embedded: bool = False
    ) -> CalibrationRecord:
        """Store a finished calibration."""
        return self._runs.add(_fields(calibration, prompt_set_id, embedded), _bins(calibration), calibration.to_bytes())

    def install_embedded(self, path: Path) -> CalibrationRecord | None:
        """Store the calibration that comes with the embedded model, once per version of it."""
        if not path.is_file():
            return None
        calibration = Calibration.load(path)
        for record in self._runs.list(embedded=True):
            if record.fingerprint_digest == calibration.fingerprint.digest and record.name == calibration.name:
                return record
        return self.add(calibration, embedded=True)

    def _usable(
        self, prompts: ParsedPromptSet, model: LanguageModel
    ) -> tuple[tuple[tuple[int, Example], ...], tuple[RowError, ...]]:
        prompts = require_references(prompts)
        usable, errors = [], list(prompts.errors)
        for line, example in prompts.rows:
            if (length := example_length(model, example)) > model.context_length:
                errors.append(RowError(line, "prompt", f"{length:,} tokens, the model takes {model.context_length:,}"))
            else:
                usable.append((line, example))
        return tuple(usable), tuple(sorted(errors, key=lambda e: e.line))

    def _calibrate(
        self,
        context: JobContext,
        model: LanguageModel,
        detector: SpanDetector,
        examples: builtins.list[Example],
        request: CalibrationRequest,
        prompt_set_id: int,
    ) -> JsonObject:
        def progress(done: int, total: int) -> None:
            context.check_cancelled()
            context.progress(done / total, f"{done} of {total} prompts")

        context.progress(0.0, f"0 of {len(examples)} prompts")
        with self._host.turn():
            calibration = calibrate(
                model,
                examples,
                lam=request.lam,
                alpha=request.alpha,
                estimator=request.estimator,
                temperature=request.temperature,
                top_p=request.top_p,
                top_k=request.top_k,
                sentinel=request.sentinel or None,
                verification_share=request.verification_share,
                seed=request.seed,
                detector=detector,
                progress=progress,
                name=request.name,
            )
        record = self.add(calibration, prompt_set_id)
        return {"calibration_id": record.id}


def _check(request: CalibrationRequest) -> None:
    """Refuse settings before a job is made of them."""
    if not request.name.strip():
        raise ServiceError("The calibration has no name; give it one.")
    check_lambda(request.lam)
    check_alpha(request.alpha)
    Sampling(request.temperature, request.top_p, request.top_k)


def _row(line: int, example: Example) -> PromptRowRecord:
    spans = None if example.spans is None else tuple(span_record(span) for span in example.spans)
    return PromptRowRecord(
        line=line, prompt=example.prompt, reference=example.reference, spans=spans, group=example.group
    )


def _fields(calibration: Calibration, prompt_set_id: int | None, embedded: bool) -> CalibrationFields:
    fingerprint = calibration.fingerprint
    coverage: dict[str, Any] = {
        "coverage": calibration.coverage.coverage,
        "low": calibration.coverage.low,
        "high": calibration.coverage.high,
        "contexts": calibration.coverage.contexts,
    }
    return CalibrationFields(
        name=calibration.name,
        model=fingerprint.model,
        model_revision=fingerprint.revision,
        alpha=calibration.alpha,
        lam=fingerprint.lam,
        estimator=calibration.estimator,
        source=calibration.source,
        bin_width=calibration.bin_width,
        max_position=calibration.max_position,
        fingerprint_digest=fingerprint.digest,
        fingerprint=dict(fingerprint.to_dict()),
        context_count=calibration.context_count,
        token_count=len(calibration.values),
        prompt_set_id=prompt_set_id,
        coverage=coverage,
        embedded=embedded,
    )


def _bins(calibration: Calibration) -> list[BinRecord]:
    return [
        BinRecord(
            position=entry.index,
            first_step=entry.first_step,
            last_step=entry.last_step,
            log_tau=entry.log_tau,
            state=entry.state,
            contexts=entry.contexts,
            rank=entry.rank,
            low=_finite(entry.coverage_low),
            high=_finite(entry.coverage_high),
        )
        for entry in calibration.bins
    ]


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
