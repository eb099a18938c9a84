"""Batch audits: every prompt of a set as a session of its own, run in the background and resumed after a crash."""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from app.jobs import JobRunner
from app.services.audits import AuditService
from app.services.batch.checks import require_settings, row_errors
from app.services.batch.estimates import estimated
from app.services.batch.impact import ImpactTable, impact_table
from app.services.batch.jobs import BatchJobs, batch_request
from app.services.batch.outcomes import outcomes_of
from app.services.batch.rows import INTERVAL, OPEN, group_totals, groups_csv, row_views, rows_csv, sorted_rows
from app.services.calibration.thresholds import Thresholds
from app.services.errors import CalibrationMismatch, ColumnMismatch, ServiceError
from app.services.job_views import JobService
from app.services.model_host import ModelHost
from app.services.planning import Planner
from app.services.prompting import pinned, prompted
from app.services.prompts.files import PromptRow, row_from, row_record, rows_of
from app.services.prompts.reading import PromptSetReader, refused_rows
from app.services.prompts.samples import listed_samples
from app.services.reports import write_text
from app.services.views.batches import (
    BatchEstimate,
    BatchOrder,
    BatchRequest,
    BatchRowView,
    BatchSummary,
    BatchView,
    OutcomeRule,
    Outcomes,
)
from app.services.views.prompt_sets import ParsedPromptSet, RowError, SamplePromptSet
from coft_core.engine.model import LanguageModel
from db.records import BatchRecord
from db.repositories import BatchesRepository, PromptSetsRepository


class BatchService(PromptSetReader):
    """Submits, follows, cancels and resumes batches, and sums them up."""

    def __init__(
        self,
        batches: BatchesRepository,
        prompt_sets: PromptSetsRepository,
        runner: JobRunner,
        jobs: JobService,
        audits: AuditService,
        thresholds: Thresholds,
        host: ModelHost,
        planner: Planner,
        max_upload_bytes: int = 20_000_000,
    ) -> None:
        """Wire the service.

        Args:
            batches: The store of batches.
            prompt_sets: The store of prompt sets.
            runner: Runs batches in the background.
            jobs: Looks jobs up.
            audits: Starts and steps the sessions.
            thresholds: Knows which groups have some.
            host: Owner of the models.
            planner: Plans the trials of estimates.
            max_upload_bytes: Largest prompt set that is read.
        """
        super().__init__(max_upload_bytes)
        self._batches = batches
        self._prompt_sets = prompt_sets
        self._running = BatchJobs(batches, prompt_sets, runner, audits)
        self._jobs = jobs
        self._audits = audits
        self._thresholds = thresholds
        self._host = host
        self._planner = planner

    def row_errors(self, prompts: ParsedPromptSet, request: BatchRequest) -> tuple[RowError, ...]:
        """All that is wrong with a prompt set for a request, also what only the model can tell; loads the model.

        Raises:
            ServiceError: None of the columns holds the prompts.
            CoftError: The model cannot be loaded.
        """
        return row_errors(prompts, request, self._model(request), self._thresholds)

    def samples(self) -> tuple[SamplePromptSet, ...]:
        """Prompt sets that come with the program, to be audited."""
        return listed_samples("audit", "deployment")

    def estimate(self, prompts: ParsedPromptSet, request: BatchRequest) -> BatchEstimate:
        """What a batch of the usable rows will take, by a trial with one of them.

        Raises:
            ServiceError: No row can be used.
            CoftError: A setting is outside its range, or the model cannot be loaded.
        """
        model = self._model(request)
        usable = self._usable(prompts, row_errors(prompts, request, model, self._thresholds))
        return estimated(usable, request, self._planner, model, self._host.memory)

    def submit(self, prompts: ParsedPromptSet, request: BatchRequest) -> int:
        """Store a batch, start it as a job, and return the batch's id.

        Raises:
            ServiceError: It has no name, or rows cannot be used and going on without them was not allowed.
            CalibrationMismatch: The calibration belongs to another policy and going on was not allowed.
            CoftError: A setting is outside its range, or the model cannot be loaded.
            NotFoundError: The calibration or the word list has been deleted.
        """
        (batch,) = self.store(prompts, (request,))
        self._running.start(batch)
        return batch.id

    def store(self, prompts: ParsedPromptSet, requests: Sequence[BatchRequest]) -> builtins.list[BatchRecord]:
        """Store a batch for each request, all of the same prompts, or none; :meth:`resume` starts each of them.

        Rows that one of the requests cannot use are left out of all.

        Raises:
            ServiceError: A request has no name, or rows cannot be used and going on without them was not allowed.
            ColumnMismatch: The calibration of one belongs to another policy and going on was not allowed.
            CoftError: A setting is outside its range, or a model cannot be loaded.
            NotFoundError: A calibration or a word list has been deleted.
        """
        if not all(request.name.strip() for request in requests):
            raise ServiceError("The batch has no name; give it one.")
        errors = sorted({error for request in requests for error in self.row_errors(prompts, request)}, key=_place)
        if errors and not all(request.accept_errors for request in requests):
            raise ServiceError(refused_rows(prompts, errors))
        usable = self._usable(prompts, errors)
        # All sessions of all batches are to read the same prompt alike, those of rows that wait until tomorrow too.
        requests = [self._pinned(request) for request in requests]
        for place, request in enumerate(requests):
            self._require(place, request, usable[0])
        records, lines = [row_record(row) for row in usable], [row.line for row in usable]
        stored = self._prompt_sets.add(requests[0].name, prompts.filename, prompts.digest, records)
        return [self._batches.add(request.name, stored.id, asdict(request), lines) for request in requests]

    def _model(self, request: BatchRequest) -> LanguageModel:
        return prompted(self._host.get(request.settings.model), request.settings)

    def _pinned(self, request: BatchRequest) -> BatchRequest:
        return replace(request, settings=pinned(self._host.get(request.settings.model), request.settings))

    def _require(self, place: int, request: BatchRequest, first: PromptRow) -> None:
        """Refuse settings under which no row could be audited; a mismatch says whose they are."""
        try:
            require_settings(request.settings, first, self._audits, self._planner, self._model(request))
        except CalibrationMismatch as mismatch:
            raise ColumnMismatch(place, mismatch) from mismatch

    def cancel(self, batch_id: int) -> None:
        """Ask a running batch to stop after its current token; finished sessions stay, and it can be resumed.

        Raises:
            ServiceError: It runs in another process.
            NotFoundError: There is no such batch.
        """
        batch = self._batches.get(batch_id)
        if batch.job_id is not None:
            self._jobs.cancel(batch.job_id)

    def resume(self, batch_id: int) -> int:
        """Go on with the rows that are not finished; a session that was cut off is continued. The new job's id.

        Raises:
            ServiceError: It is running, or nothing is left to run.
            NotFoundError: There is no such batch.
        """
        batch = self._batches.get(batch_id)
        if not any(row.is_open for row in self._batches.rows(batch_id)):
            raise ServiceError(f"Every row of “{batch.name}” is finished, so there is nothing to resume.")
        return self._running.start(batch)

    def list(self) -> tuple[BatchSummary, ...]:
        """All batches, newest first."""
        return tuple(
            BatchSummary(batch.id, batch.name, batch.created_at, batch.row_count, self._jobs.find(batch.job_id))
            for batch in self._batches.list()
        )

    def view(self, batch_id: int, order: BatchOrder = "line", descending: bool = False) -> BatchView:
        """A batch with its rows and totals; needs no model.

        Raises:
            NotFoundError: There is no such batch.
        """
        batch = self._batches.get(batch_id)
        rows, job = self._rows(batch), self._jobs.find(batch.job_id)
        groups = group_totals(rows)
        counts = dict(Counter(row.state for row in rows))
        return BatchView(
            id=batch.id,
            name=batch.name,
            request=batch_request(batch.request),
            filename=self._prompt_sets.get(batch.prompt_set_id).filename,
            created_at=batch.created_at,
            rows=sorted_rows(rows, order, descending),
            counts=counts,
            groups=groups,
            job=job,
            resumable=not (job is not None and job.active) and any(row.state in OPEN for row in rows),
            notes=_notes(rows, bool(groups)),
        )

    def outcomes(self, batch_id: int, rule: OutcomeRule) -> Outcomes:
        """Which rows are selected, read from their continuations.

        Raises:
            ServiceError: The rule cannot be used.
            NotFoundError: There is no such batch.
        """
        return outcomes_of(self._rows(self._batches.get(batch_id)), rule)

    def impact(self, batch_id: int, rule: OutcomeRule, exclude_small: bool = False) -> tuple[ImpactTable, Outcomes]:
        """Selection rates by group and impact ratios, and the outcomes that they rest on.

        Raises:
            ServiceError: The rule cannot be used, or no decided row has a group.
            NotFoundError: There is no such batch.
        """
        found = self.outcomes(batch_id, rule)
        return impact_table(found.pairs, exclude_small), found

    def csv(self, batch_id: int) -> str:
        """The rows of a batch as RFC 4180 CSV text.

        Raises:
            NotFoundError: There is no such batch.
        """
        return rows_csv(self._rows(self._batches.get(batch_id)))

    def write_csv(self, batch_id: int, folder: Path) -> tuple[Path, Path]:
        """Write the rows and the totals by group into a folder, each file atomically, and return their paths."""
        rows = self._rows(self._batches.get(batch_id))
        return (
            write_text(folder / f"coft-audit-batch-{batch_id}.csv", rows_csv(rows)),
            write_text(folder / f"coft-audit-batch-{batch_id}-groups.csv", groups_csv(group_totals(rows))),
        )

    def delete(self, batch_id: int) -> None:
        """Delete a batch; its sessions stay in the library.

        Raises:
            ServiceError: It is running.
            NotFoundError: There is no such batch.
        """
        batch = self._batches.get(batch_id)
        job = self._jobs.find(batch.job_id)
        if job is not None and job.active:
            raise ServiceError(f"The batch “{batch.name}” is running; cancel it first.")
        self._batches.delete(batch_id)

    @staticmethod
    def _usable(prompts: ParsedPromptSet, errors: Sequence[RowError]) -> builtins.list[PromptRow]:
        """The rows with nothing wrong; at least one."""
        bad = {error.line for error in errors}
        usable = [row for row in rows_of(prompts) if row.line not in bad]
        if not usable:
            raise ServiceError("No row can be audited; correct the rows and upload the file again.")
        return usable

    def _rows(self, batch: BatchRecord) -> builtins.list[BatchRowView]:
        prompts = [row_from(record) for record in self._prompt_sets.rows(batch.prompt_set_id)]
        return row_views(self._batches.rows(batch.id), prompts, self._batches.verdict_logs(batch.id))


def _place(error: RowError) -> tuple[int, str]:
    return error.line, error.column


def _notes(rows: Sequence[BatchRowView], totals: bool) -> tuple[str, ...]:
    open_rows = sum(row.state != "finished" for row in rows)
    notes = [f"Intervals: {INTERVAL}."] if totals else []
    if open_rows:
        counted = "1 row is" if open_rows == 1 else f"{open_rows} rows are"
        notes.append(f"{counted} not finished and in no total.")
    return tuple(notes)
