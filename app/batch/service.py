"""Batch audits: every prompt of a set as a session of its own, run in the background and resumed after a crash."""

from __future__ import annotations

import builtins
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import cast

from app.audit.service import AuditService
from app.batch.impact import (
    INTERVAL,
    OPEN,
    ImpactTable,
    group_totals,
    groups_csv,
    impact_table,
    outcomes_of,
    row_views,
    rows_csv,
    sorted_rows,
)
from app.batch.types import (
    BatchEstimate,
    BatchOrder,
    BatchRequest,
    BatchRowView,
    BatchSummary,
    BatchView,
    OutcomeRule,
    Outcomes,
)
from app.shared.audits import AuditSettings, BatchPlace, StartAudit
from app.shared.errors import ColumnMismatch, JobCancelled, ServiceError, sentence_of
from app.shared.files import write_text
from app.shared.jobs import ACTIVE, JobContext, JobRunner, JobService
from app.shared.mapping import settings_from_json
from app.shared.memory import DeviceMemory, MemoryWait
from app.shared.model_host import ModelHost
from app.shared.planning import Planner, pinned, prompted, without_calibration
from app.shared.policies import certifies
from app.shared.prompt_sets import (
    ParsedPromptSet,
    PromptRow,
    PromptSetReader,
    RowError,
    SamplePromptSet,
    listed_samples,
    refused_rows,
    require_prompts,
    row_from,
    row_record,
    rows_of,
)
from app.shared.thresholds import Thresholds
from coft_core.decode.cost import reserved_bytes
from coft_core.decode.loop import Rollout
from coft_core.decode.plan import Plan
from coft_core.errors import CalibrationMismatch, InvalidInputError, ModelLoadError
from coft_core.model.language_model import LanguageModel
from coft_core.text.masking import prompt_ids
from coft_core.types import Step
from db.batches import BatchesRepository
from db.prompt_sets import PromptSetsRepository
from db.records import BatchRecord, BatchRowRecord, JsonObject
from db.types import NotFoundError


def row_errors(
    prompts: ParsedPromptSet, request: BatchRequest, model: LanguageModel, thresholds: Thresholds
) -> tuple[RowError, ...]:
    """All that is wrong with a prompt set for a request, in the order of its lines.

    Args:
        prompts: The prompt set.
        request: What is asked of it.
        model: The model that will read it.
        thresholds: Knows which groups have some.

    Raises:
        ServiceError: None of its columns is known to hold the prompts, or thresholds by group are asked for without a
            calibration.
        NotFoundError: The calibration has been deleted.
    """
    require_prompts(prompts)
    found = [*prompts.errors, *_too_long(prompts, model)]
    if request.group_thresholds:
        found += _without_thresholds(prompts, request.settings, thresholds)
    return tuple(sorted(found, key=lambda error: error.line))


def require_settings(
    settings: AuditSettings, first: PromptRow, audits: AuditService, planner: Planner, model: LanguageModel
) -> None:
    """Refuse settings under which no row could be audited.

    Args:
        settings: The settings.
        first: A row that can be used.
        audits: Detects its spans.
        planner: Plans it.
        model: The audited model.

    Raises:
        CalibrationMismatch: The calibration belongs to another policy and going on was not allowed.
        CoftError: A setting is outside its range.
        ServiceError: There is no such policy or mask.
        NotFoundError: The calibration or the word list has been deleted.
    """
    spans = audits.detect(first.example.prompt, settings) if first.example.spans is None else first.example.spans
    planner.plan(model, first.example.prompt, spans, without_calibration(settings))
    differences = audits.fit(settings).differences if certifies(settings) else ()
    if differences and not settings.proceed_uncertified:
        raise CalibrationMismatch(differences)


def _too_long(prompts: ParsedPromptSet, model: LanguageModel) -> Iterator[RowError]:
    for line, example in prompts.rows:
        length = len(prompt_ids(model.tokenizer, example.prompt, model.prompting))
        if length >= model.context_length:
            yield RowError(line, "prompt", f"has {length:,} tokens and the model takes {model.context_length:,}")


def _without_thresholds(
    prompts: ParsedPromptSet, settings: AuditSettings, thresholds: Thresholds
) -> Iterator[RowError]:
    """Rows whose group has no thresholds of its own; each group is looked up once."""
    problems: dict[str | None, str] = {None: "is empty, and thresholds by group need one"}
    for group in {example.group for _, example in prompts.rows} - {None}:
        try:
            thresholds.of(replace(settings, group=group))
        except InvalidInputError as error:
            problems[group] = f"has no thresholds: {error}"
    for line, example in prompts.rows:
        if example.group in problems:
            yield RowError(line, "group", problems[example.group])


TRIAL_STEPS = 8
"""Steps of the trial at most, the first one included."""


def estimated(
    rows: Sequence[PromptRow],
    request: BatchRequest,
    planner: Planner,
    model: LanguageModel,
    memory: DeviceMemory,
    clock: Callable[[], float] = time.perf_counter,
) -> BatchEstimate:
    """Try the prompt of medium length, and extrapolate to chains that all run to their last step.

    Args:
        rows: The rows that can be used, at least one.
        request: What is asked of them.
        planner: Plans the trial.
        model: The model.
        memory: The device's memory and turns; the caller holds none.
        clock: Seconds.

    Raises:
        CoftError: The settings cannot be used.
    """
    settings = request.settings
    row = sorted(rows, key=lambda item: len(item.example.prompt))[len(rows) // 2]
    group = row.example.group if request.group_thresholds else settings.group
    tried = min(TRIAL_STEPS, settings.max_new_tokens)
    plan = planner.plan(
        model, row.example.prompt, row.example.spans, replace(settings, group=group, max_new_tokens=tried)
    )
    read, a_step = memory.run(reserved_bytes(plan, tried), partial(_timed, plan, clock))
    units = {(row.line,) if row.example.context is None else row.example.context for row in rows}
    return BatchEstimate(
        prompts=len(rows),
        contexts=len(units),
        groups=len({row.example.group for row in rows} - {None}),
        tokens=len(rows) * settings.max_new_tokens,
        seconds=len(rows) * (read + a_step * (settings.max_new_tokens - 1)),
    )


def _timed(plan: Plan, clock: Callable[[], float]) -> tuple[float, float]:
    """Seconds of the first step, which reads the prompt, and of each further one."""
    # The first run of a model is slow for reasons that do not come again.
    with _rollout(Rollout(plan)) as warming:
        warming.step()
    began = clock()
    with _rollout(Rollout(plan)) as rollout:
        rollout.step()
        read = clock() - began
        while rollout.finished is None:
            rollout.step()
        taken = len(rollout.steps)
    return read, (clock() - began - read) / (taken - 1) if taken > 1 else read


@contextmanager
def _rollout(rollout: Rollout) -> Iterator[Rollout]:
    try:
        yield rollout
    finally:
        rollout.close()


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
