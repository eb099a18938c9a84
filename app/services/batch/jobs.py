"""Running a batch: one session after another, each row at most once, whatever interrupts it."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from threading import Lock
from typing import cast

from app.jobs import JobContext, JobRunner
from app.services.audits import AuditService
from app.services.errors import JobCancelled, ServiceError, sentence_of
from app.services.job_waits import MemoryWait
from app.services.mapping import settings_from_json
from app.services.prompts.files import PromptRow, row_from
from app.services.views.audits import BatchPlace, StartAudit
from app.services.views.batches import BatchRequest
from app.services.views.jobs import ACTIVE
from coft_core.errors import CalibrationMismatch, ModelLoadError
from coft_core.types import Step
from db.errors import NotFoundError
from db.records import BatchRecord, BatchRowRecord, JsonObject
from db.repositories import BatchesRepository, PromptSetsRepository

JOB_KIND = "batch"

OF_THE_WHOLE_BATCH = (CalibrationMismatch, ModelLoadError)
"""Errors that every other row would meet as well."""


@dataclass(slots=True)
class _Tally:
    """How far a batch is; ``finished`` counts the rows that are over, however they ended."""

    total: int
    finished: int
    failed: int = 0

    def share(self, part: float = 0.0) -> float:
        """Share of the batch done, with a part of the present row."""
        return min((self.finished + part) / self.total, 1.0)

    @property
    def sentence(self) -> str:
        """The counts in words."""
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.finished} of {self.total} prompts{failed}"


class BatchJobs:
    """Starts the jobs of batches and does their work."""

    def __init__(
        self, batches: BatchesRepository, prompt_sets: PromptSetsRepository, runner: JobRunner, audits: AuditService
    ) -> None:
        """Wire to the stores, the runner and what starts and steps sessions."""
        self._batches = batches
        self._prompt_sets = prompt_sets
        self._runner = runner
        self._audits = audits
        self._starting = Lock()

    def start(self, batch: BatchRecord) -> int:
        """Run what is left of a batch as a job and return the job's id.

        Raises:
            ServiceError: It is running already.
        """
        with self._starting:
            if batch.job_id is not None and self._runner.get(batch.job_id).status in ACTIVE:
                raise ServiceError(f"The batch “{batch.name}” is running already; wait for it, or cancel it.")
            job_id = self._runner.submit(
                JOB_KIND, batch.name, lambda context: self._work(context, batch.id), {"batch_id": batch.id}
            )
            self._batches.begin(batch.id, job_id)
        return job_id

    def _work(self, context: JobContext, batch_id: int) -> JsonObject:
        batch = self._batches.begin(batch_id, context.job_id)
        prompts = [row_from(record) for record in self._prompt_sets.rows(batch.prompt_set_id)]
        requests = _requests(batch, prompts)
        records = self._batches.rows(batch_id)
        left = [record for record in records if record.is_open]
        tally = _Tally(len(records), len(records) - len(left))
        context.begin_phase(tally.share(), tally.sentence)
        for record in left:
            context.check_cancelled()
            try:
                self._run(context, record, requests[record.line], tally)
            except (*OF_THE_WHOLE_BATCH, JobCancelled):
                raise
            except Exception as error:
                # What is wrong with one row must not stop the others; it stands beside the row.
                tally.failed += 1
                self._batches.fail(batch_id, record.line, sentence_of(error))
            tally.finished += 1
            context.progress(tally.share(), tally.sentence)
        return {"batch_id": batch_id, "prompts": tally.total, "failed": tally.failed}

    def _run(self, context: JobContext, record: BatchRowRecord, request: StartAudit, tally: _Tally) -> None:
        """Begin a row's session, or take it up where it was left, and run it to its end."""
        session_id, branch_id = record.session_id, record.root_branch_id
        if session_id is None:
            view = self._audits.start(request)
            session_id, branch_id = view.session_id, view.branch_id
        try:
            running = cast("Generator[Step]", self._audits.run(session_id, branch_id, waiting=MemoryWait(context)))
            with closing(running) as steps:
                for step in steps:
                    context.check_cancelled()
                    done = (step.index + 1) / request.settings.max_new_tokens
                    context.progress(
                        tally.share(done), f"{tally.sentence} · line {record.line}, token {step.index + 1}"
                    )
        except NotFoundError:
            # A reviewer has deleted the session meanwhile; the batch shows its row as deleted.
            return


def batch_request(stored: JsonObject) -> BatchRequest:
    """A batch's request as it was submitted."""
    return BatchRequest(**{**stored, "settings": settings_from_json(stored["settings"])})


def _requests(batch: BatchRecord, prompts: Sequence[PromptRow]) -> dict[int, StartAudit]:
    """The request of each line's session."""
    request = batch_request(batch.request)
    settings = request.settings
    seeds = [settings.seed] * len(prompts) if request.same_seed else _seeds(settings.seed, prompts)
    return {
        row.line: StartAudit(
            prompt=row.example.prompt,
            settings=replace(
                settings, seed=seed, group=row.example.group if request.group_thresholds else settings.group
            ),
            spans=row.example.spans,
            name=f"{batch.name}, line {row.line}",
            batch=BatchPlace(batch.id, row.line),
        )
        for row, seed in zip(prompts, seeds, strict=True)
    }


def _seeds(first: int, prompts: Sequence[PromptRow]) -> list[int]:
    """One seed a context, counted up from the first; a row without a context is one of its own."""
    places: dict[tuple[str, str | int], int] = {}
    units = [("line", r.line) if r.example.context is None else ("context", r.example.context) for r in prompts]
    # The store keeps signed 64-bit numbers, so the count goes on from the smallest after the largest.
    return [(first + places.setdefault(unit, len(places)) + 2**63) % 2**64 - 2**63 for unit in units]
