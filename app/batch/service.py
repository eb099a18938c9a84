"""Batch audits: every prompt of a set as a session of its own, run in the background and resumed after a crash."""

from __future__ import annotations

import builtins
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, cast

from pydantic import TypeAdapter

from app.audit.service import AuditService, neutral_words
from app.batch.controls import BatchControls, batch_controls, controls_csv
from app.batch.impact import Outcomes, outcomes_of
from app.batch.rows import (
    BatchOrder,
    GroupTotals,
    group_totals,
    groups_csv,
    rows_csv,
    sorted_rows,
    totals_json,
)
from app.jobs.long_run import RunOfRows
from app.jobs.service import JobContext, JobView
from app.jobs.travelling import sendable
from app.jobs.workers import Workers
from app.prompts.rows import INTERVAL, BatchRowView, RowState, fields_json, row_views
from app.prompts.sets import (
    ParsedPromptSet,
    PromptSetReader,
    RowError,
    refused_rows,
    require_prompts,
    rows_of,
)
from app.shared.audits import AuditSettings, StartAudit
from app.shared.errors import ColumnMismatch, JobCancelled, ServiceError, sentence_of
from app.shared.files import write_text
from app.shared.impact import ImpactTable, OutcomeRule, impact_table
from app.shared.json import job_json, settings_json
from app.shared.kept_steps import WrittenChain
from app.shared.planning import Planner, pinned, prompted, without_calibration
from app.shared.policies import certifies
from app.shared.thresholds import Thresholds
from app.shared.wiring import Services
from coft_core.controls.measure import controls_of
from coft_core.decode.cost import reserved_bytes
from coft_core.decode.loop import Rollout
from coft_core.decode.plan import Plan
from coft_core.errors import CalibrationMismatch, EngineError, InvalidInputError, ModelLoadError
from coft_core.model.language_model import LanguageModel
from coft_core.text.masking import prompt_ids
from coft_core.text.turns import framed
from coft_core.types import Step
from db.audits import BatchPlace
from db.batches import BatchesRepository, BatchRecord, BatchRowRecord
from db.prompt_sets import PromptRow, PromptSetsRepository
from db.types import JsonObject, NotFoundError

TRIAL_STEPS = 8
"""Steps of an estimate's trial at most, the first one included."""

OF_THE_WHOLE_BATCH = (CalibrationMismatch, EngineError, ModelLoadError)
"""Errors that every other row would meet as well."""


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """A request to audit every prompt of a set with the same settings."""

    name: str
    settings: AuditSettings = field(default_factory=AuditSettings)
    accept_errors: bool = False
    same_seed: bool = False
    group_thresholds: bool = False


@dataclass(frozen=True, slots=True)
class PreparedBatches:
    """Batches of the same prompts that were checked and can be stored."""

    filename: str
    digest: str
    rows: tuple[PromptRow, ...]
    requests: tuple[BatchRequest, ...]


@dataclass(frozen=True, slots=True)
class BatchEstimate:
    """What the prompts of a batch that can be used will take, judged by a few steps of one of them."""

    prompts: int
    contexts: int
    groups: int
    tokens: int
    controls: int
    seconds: float


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """A batch in a list; ``rows`` is the number of its prompts, ``job`` the last that ran it, if it is still known."""

    id: int
    name: str
    created_at: datetime
    rows: int
    job: JobView | None


@dataclass(frozen=True, slots=True)
class BatchView:
    """A batch as a page shows it; ``controls`` are told once it does not run."""

    id: int
    name: str
    request: BatchRequest
    filename: str
    created_at: datetime
    rows: tuple[BatchRowView, ...]
    counts: dict[RowState, int]
    groups: tuple[GroupTotals, ...]
    job: JobView | None
    resumable: bool
    notes: tuple[str, ...]
    controls: BatchControls | None = None

    @property
    def running(self) -> bool:
        """Whether a job is at work on it."""
        return self.job is not None and self.job.active

    @property
    def own(self) -> bool:
        """Whether the visitor may cancel and resume it."""
        return self.job is None or self.job.own


class BatchService(RunOfRows[BatchRecord], PromptSetReader):
    """Submits, follows, cancels and resumes batches, and sums them up; one unit of work is the chain of a prompt."""

    kind, uses = "batch", ("audit", "deployment")

    def __init__(self, services: Services) -> None:
        super().__init__(services, services[BatchesRepository])
        PromptSetReader.__init__(self, services.largest_upload)
        self._batches, self._prompt_sets = services[BatchesRepository], services[PromptSetsRepository]
        self._audits, self._planner = services[AuditService], services[Planner]
        self._thresholds, self._words = services[Thresholds], neutral_words(services.settings)

    def row_errors(self, prompts: ParsedPromptSet, request: BatchRequest) -> tuple[RowError, ...]:
        """All that is wrong with a prompt set for a request, by line, also what only the model can tell; loads it."""
        require_prompts(prompts)
        errors = [*prompts.errors, *_too_long(prompts, self._model(request))]
        if request.group_thresholds:
            errors += self._without_thresholds(prompts, request.settings)
        return tuple(sorted(errors, key=lambda error: error.line))

    def estimate(self, prompts: ParsedPromptSet, request: BatchRequest) -> BatchEstimate:
        """What a batch will take if all chains run to their last step, by a trial with the prompt of medium length."""
        rows, settings = _usable(prompts, self.row_errors(prompts, request)), request.settings
        row = sorted(rows, key=lambda row: len(row.example.prompt))[len(rows) // 2]
        tried = min(TRIAL_STEPS, settings.max_new_tokens)
        plan = self._planner.plan(
            self._model(request),
            row.example.prompt,
            row.example.spans,
            replace(settings, group=_group(row, request), max_new_tokens=tried),
        )
        tokens, *written = self.host.memory.run(reserved_bytes(plan, tried), partial(_timed, plan))
        if settings.controls:
            room, asked = self.host.memory.room(), settings.controls
            compare = partial(controls_of, plan, neutral=asked, words=self._words, room=room)
            written = [sum(parts) for parts in zip(written, _time_to_compare(compare, tokens), strict=True)]
        read, a_step = written
        return BatchEstimate(
            prompts=len(rows),
            contexts=len({_unit(row) for row in rows}),
            groups=len({row.example.group for row in rows} - {None}),
            tokens=len(rows) * settings.max_new_tokens,
            controls=settings.controls,
            seconds=len(rows) * (read + a_step * (settings.max_new_tokens - 1)),
        )

    def submit(self, prompts: ParsedPromptSet, request: BatchRequest) -> int:
        """Store a batch, start it as a job, and return the batch's id."""
        prepared = self.prepare(prompts, (request,))
        with self._batches.together():
            (batch,) = self.store(prepared)
            self.begin(batch)
        return batch.id

    def prepare(self, prompts: ParsedPromptSet, requests: Sequence[BatchRequest]) -> PreparedBatches:
        """Check a batch for each request, all of the same prompts, and load what they need; nothing is stored.

        Rows that one of the requests cannot use are left out of all.
        """
        if not all(request.name.strip() for request in requests):
            raise ServiceError("The batch has no name; give it one.")
        problems = {error for request in requests for error in self.row_errors(prompts, request)}
        errors = sorted(problems, key=lambda error: (error.line, error.column))
        if errors and not all(request.accept_errors for request in requests):
            raise ServiceError(refused_rows(prompts, errors))
        usable = _usable(prompts, errors)
        # All sessions of all batches are to read the same prompt alike, those of rows that wait until tomorrow too, and
        # rows of one seed differ only by their prompts.
        models = [self.host.get(request.settings.model) for request in requests]
        requests = [
            replace(
                request, settings=replace(pinned(model, request.settings), shared_noise=not request.settings.greedy)
            )
            for model, request in zip(models, requests, strict=True)
        ]
        for place, request in enumerate(requests):
            try:
                self._require_settings(request, usable[0])
            except CalibrationMismatch as mismatch:
                raise ColumnMismatch(place, mismatch) from mismatch
        return PreparedBatches(prompts.filename, prompts.digest, tuple(usable), tuple(requests))

    def store(self, prepared: PreparedBatches) -> builtins.list[BatchRecord]:
        """Store batches with their prompts, all or none; :meth:`resume` starts each of them."""
        lines, requests = [row.line for row in prepared.rows], prepared.requests
        with self._batches.together():
            stored = self._prompt_sets.add(requests[0].name, prepared.filename, prepared.digest, prepared.rows)
            return [self._batches.add(request.name, stored.id, asdict(request), lines) for request in requests]

    def list(self) -> tuple[BatchSummary, ...]:
        """All batches, newest first."""
        return tuple(
            BatchSummary(batch.id, batch.name, batch.created_at, batch.row_count, self.job(batch))
            for batch in self._batches.list()
        )

    def view(self, batch_id: int, order: BatchOrder = "line", descending: bool = False) -> BatchView:
        """A batch with its rows and totals; needs no model."""
        batch = self._batches.get(batch_id)
        records, request, job = self._batches.rows(batch_id), batch_request(batch.request), self.job(batch)
        rows = self._views(batch, records)
        groups, active = group_totals(rows), job is not None and job.active
        return BatchView(
            id=batch.id,
            name=batch.name,
            request=request,
            filename=self._prompt_sets.get(batch.prompt_set_id).filename,
            created_at=batch.created_at,
            rows=sorted_rows(rows, order, descending),
            counts=dict(Counter(row.state for row in rows)),
            groups=groups,
            controls=None if active else batch_controls(rows, request.settings.controls),
            job=job,
            resumable=not active and bool(_left(batch, records)),
            notes=_notes(rows, bool(groups)),
        )

    def prompts_digest(self, batch_id: int) -> str:
        """Digest of the prompts."""
        return self._prompt_sets.get(self._batches.get(batch_id).prompt_set_id).digest

    def impact(self, batch_id: int, rule: OutcomeRule, exclude_small: bool = False) -> tuple[ImpactTable, Outcomes]:
        """Selection rates by group and impact ratios, and the outcomes that they rest on."""
        outcomes = outcomes_of(self._rows(batch_id), rule)
        return impact_table(outcomes.pairs, exclude_small), outcomes

    def write_csv(self, batch_id: int, folder: Path) -> tuple[Path, Path, Path]:
        """Write the rows, their totals by group and their controls into a folder, each file atomically."""
        rows, asked = self._rows(batch_id), batch_request(self._batches.get(batch_id).request).settings.controls
        stem = f"coft-audit-batch-{batch_id}"
        return (
            write_text(folder / f"{stem}.csv", rows_csv(rows)),
            write_text(folder / f"{stem}-groups.csv", groups_csv(group_totals(rows))),
            write_text(folder / f"{stem}-controls.csv", controls_csv(batch_controls(rows, asked))),
        )

    def is_left(self, row: BatchRecord) -> bool:
        """Whether a prompt is not finished."""
        return bool(_left(row, self._batches.rows(row.id)))

    def _model(self, request: BatchRequest) -> LanguageModel:
        return prompted(self.host.get(request.settings.model), request.settings)

    def _rows(self, batch_id: int) -> builtins.list[BatchRowView]:
        return self._views(self._batches.get(batch_id), self._batches.rows(batch_id))

    def _views(self, batch: BatchRecord, records: Sequence[BatchRowRecord]) -> builtins.list[BatchRowView]:
        return row_views(records, self._prompts(batch), self._batches.verdict_logs(batch.id))

    def _prompts(self, batch: BatchRecord) -> Sequence[PromptRow]:
        return self._prompt_sets.rows(batch.prompt_set_id)

    def _without_thresholds(self, prompts: ParsedPromptSet, settings: AuditSettings) -> Iterator[RowError]:
        """Rows whose group has no thresholds of its own; each group is looked up once."""
        problems: dict[str | None, str] = {None: "is empty, and thresholds by group need one"}
        for group in {example.group for _, example in prompts.rows} - {None}:
            try:
                self._thresholds.of(replace(settings, group=group))
            except InvalidInputError as error:
                problems[group] = f"has no thresholds: {error}"
        for line, example in prompts.rows:
            if example.group in problems:
                yield RowError(line, "group", problems[example.group])

    def _require_settings(self, request: BatchRequest, first: PromptRow) -> None:
        """Refuse settings under which no row, such as the first one that can be used, could be audited."""
        settings, example = request.settings, first.example
        spans = self._audits.detect(example.prompt, settings) if example.spans is None else example.spans
        self._planner.plan(self._model(request), example.prompt, spans, without_calibration(settings))
        differences = self._audits.fit(settings).differences if certifies(settings) else ()
        if differences and not settings.proceed_uncertified:
            raise CalibrationMismatch(differences)

    def work(self, row: BatchRecord, context: JobContext) -> JsonObject:
        """Begin the sessions of prompts that have none, go on with those that were cut off, and run each to its end."""
        prompts = self._batches.rows(row.id)
        left = _left(row, prompts)
        run = _BatchRun(
            context, row.id, _sessions(row, self._prompts(row)), len(prompts), finished=len(prompts) - len(left)
        )
        context.begin_phase(run.share(), run.sentence)
        with self.workers.hired(context) as workers:
            if workers.elsewhere:
                self._share_out(run, left, workers)
            else:
                for prompt in left:
                    context.check_cancelled()
                    with self._ended(run, prompt):
                        self._run_row(run, prompt)
        return {"prompts": run.total, "failed": run.failed}

    @contextmanager
    def _ended(self, run: _BatchRun, row: BatchRowRecord) -> Iterator[None]:
        """What ends a row; why that cannot be done is noted beside it, and does not stop the others."""
        try:
            yield
        except (*OF_THE_WHOLE_BATCH, JobCancelled):
            raise
        except Exception as error:
            run.failed += 1
            self._batches.fail(run.batch_id, row.line, sentence_of(error))
        else:
            if row.error:
                self._batches.fail(run.batch_id, row.line, None)
        run.finished += 1
        run.context.progress(run.share(), run.sentence)

    def _share_out(self, run: _BatchRun, left: Sequence[BatchRowRecord], workers: Workers) -> None:
        """Have chains written by workers, and store each whole, in the order of the rows."""
        begun: deque[tuple[BatchRowRecord, int, int]] = deque()

        def works() -> Iterator[Callable[[], WrittenChain | Exception]]:
            for row in left:
                try:
                    place = self._begun(row, run.sessions[row.line])
                    work = self._audits.chain_work(*place)
                except Exception as error:
                    with self._ended(run, row), suppress(NotFoundError):
                        raise error
                else:
                    begun.append((row, *place))
                    yield partial(_chain_or_error, work)

        for chain in workers.each(works()):
            run.context.check_cancelled()
            row, session_id, branch_id = begun.popleft()
            with self._ended(run, row):
                if isinstance(chain, Exception):
                    raise chain
                with suppress(NotFoundError):
                    self._audits.take_chain(session_id, branch_id, chain)

    def _begun(self, row: BatchRowRecord, request: StartAudit) -> tuple[int, int]:
        """Session and branch of a row, begun if need be."""
        if row.session_id is not None and row.root_branch_id is not None:
            return row.session_id, row.root_branch_id
        view = self._audits.start(request)
        return view.session_id, view.branch_id

    def _run_row(self, run: _BatchRun, row: BatchRowRecord) -> None:
        """Begin a row's session, or take it up where it was left, run it to its end, and compare its words."""
        context, request = run.context, run.sessions[row.line]
        session_id, branch_id = self._begun(row, request)
        halves = 2 if request.settings.controls else 1
        # A reviewer may delete the session meanwhile; the batch shows its row as deleted.
        with suppress(NotFoundError):
            running = cast("Generator[Step]", self._audits.run(session_id, branch_id, waiting=context.waiting))
            with closing(running) as steps:
                for step in steps:
                    context.check_cancelled()
                    done = (step.index + 1) / request.settings.max_new_tokens
                    told = f"{run.sentence} · line {row.line}, token {step.index + 1}"
                    context.progress(run.share(done / halves), told)
            if self._audits.branch(session_id, branch_id).finished:
                with closing(self._audits.comparing(session_id, branch_id)) as comparing:
                    for share in comparing:
                        context.check_cancelled()
                        told = f"{run.sentence} · line {row.line}, comparable words"
                        context.progress(run.share((1 + share) / halves), told)


@dataclass(slots=True)
class _BatchRun:
    """A job's run of a batch, with each line's session; ``finished`` counts the rows that are over, however."""

    context: JobContext
    batch_id: int
    sessions: Mapping[int, StartAudit]
    total: int
    finished: int
    failed: int = 0

    def share(self, part: float = 0.0) -> float:
        """Share of the batch done, with a part of the present row."""
        return min((self.finished + part) / self.total, 1.0)

    @property
    def sentence(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.finished} of {self.total} prompts{failed}"


def _chain_or_error(work: Callable[[], WrittenChain]) -> WrittenChain | Exception:
    """What a worker gives for a row: what is wrong with it does not end the others."""
    try:
        return work()
    except OF_THE_WHOLE_BATCH:
        raise
    except Exception as error:
        return sendable(error)


def batch_request(stored: JsonObject) -> BatchRequest:
    """A batch's request as it was submitted."""
    return TypeAdapter(BatchRequest).validate_python(stored)


def batch_json(view: BatchView) -> dict[str, Any]:
    """A batch with its rows and totals."""
    return {
        "batch_id": view.id,
        "name": view.name,
        "filename": view.filename,
        "created_at": view.created_at.isoformat(),
        "settings": settings_json(view.request.settings),
        "same_seed": view.request.same_seed,
        "group_thresholds": view.request.group_thresholds,
        "job": None if view.job is None else job_json(view.job),
        "resumable": view.resumable,
        "counts": dict(view.counts),
        "rows": [fields_json(row) for row in view.rows],
        "groups": [totals_json(group) for group in view.groups],
        "controls": None if view.controls is None else asdict(view.controls),
        "notes": list(view.notes),
    }


def batch_summary_json(batch: BatchSummary) -> dict[str, Any]:
    """A batch in a list."""
    return {
        "batch_id": batch.id,
        "name": batch.name,
        "created_at": batch.created_at.isoformat(),
        "prompts": batch.rows,
        "job": None if batch.job is None else job_json(batch.job),
    }


def _sessions(batch: BatchRecord, prompts: Sequence[PromptRow]) -> dict[int, StartAudit]:
    """The request of each line's session."""
    request = batch_request(batch.request)
    settings = request.settings
    seeds = [settings.seed] * len(prompts) if request.same_seed else _seeds(settings.seed, prompts)
    return {
        row.line: StartAudit(
            prompt=row.example.prompt,
            settings=replace(settings, seed=seed, group=_group(row, request)),
            spans=row.example.spans,
            name=f"{batch.name}, line {row.line}",
            batch=BatchPlace(batch.id, row.line),
        )
        for row, seed in zip(prompts, seeds, strict=True)
    }


def _seeds(first: int, prompts: Sequence[PromptRow]) -> list[int]:
    """One seed a context, counted up from the first."""
    places: dict[str | int, int] = {}
    # The store keeps signed 64-bit numbers, so the count goes on from the smallest after the largest.
    return [(first + places.setdefault(_unit(row), len(places)) + 2**63) % 2**64 - 2**63 for row in prompts]


def _unit(row: PromptRow) -> str | int:
    """The row's context; a row without one is one of its own, by its line."""
    return row.line if row.example.context is None else row.example.context


def _group(row: PromptRow, request: BatchRequest) -> str | None:
    """The group whose thresholds a row's session is audited under."""
    return row.example.group if request.group_thresholds else request.settings.group


def _usable(prompts: ParsedPromptSet, errors: Sequence[RowError]) -> list[PromptRow]:
    """The rows with nothing wrong; at least one."""
    bad = {error.line for error in errors}
    usable = [row for row in rows_of(prompts) if row.line not in bad]
    if not usable:
        raise ServiceError("No row can be audited; correct the rows and upload the file again.")
    return usable


def _too_long(prompts: ParsedPromptSet, model: LanguageModel) -> Iterator[RowError]:
    for line, example in prompts.rows:
        written, _ = framed(example.prompt, (), model.prompting.frame, lambda _: ())
        length = len(prompt_ids(model.tokenizer, written, model.prompting))
        if length >= model.context_length:
            yield RowError(line, "prompt", f"has {length:,} tokens and the model takes {model.context_length:,}")


def _left(batch: BatchRecord, rows: Sequence[BatchRowRecord]) -> builtins.list[BatchRowRecord]:
    """Rows whose text is not at its end, or whose words were to be compared and are not."""
    compared = batch_request(batch.request).settings.controls
    return [row for row in rows if row.is_open or (compared and row.finished and row.ranks is None)]


def _timed(plan: Plan, clock: Callable[[], float] = time.perf_counter) -> tuple[Sequence[int], float, float]:
    """A text's tokens, seconds of the first step, which reads the prompt, and of each further one."""
    # The first run of a model is slow for reasons that do not come again.
    with closing(Rollout(plan)) as warming:
        warming.step()
    began = clock()
    with closing(Rollout(plan)) as rollout:
        rollout.step()
        read = clock() - began
        while rollout.finished is None:
            rollout.step()
        tokens = [step.token_id for step in rollout.steps]
    further = len(tokens) - 1
    return tokens, read, (clock() - began - read) / further if further else read


def _time_to_compare(
    compare: Callable[[Sequence[int]], object], tokens: Sequence[int], clock: Callable[[], float] = time.perf_counter
) -> tuple[float, float]:
    """Seconds of comparing words over one token, and of each further one."""

    def seconds(count: int) -> float:
        began = clock()
        compare(tokens[:count])
        return clock() - began

    whole, one = seconds(len(tokens)), seconds(1)
    return one, max(0.0, whole - one) / (len(tokens) - 1) if len(tokens) > 1 else one


def _notes(rows: Sequence[BatchRowView], totals: bool) -> tuple[str, ...]:
    notes = [f"Intervals: {INTERVAL}."] if totals else []
    if unfinished := sum(row.state != "finished" for row in rows):
        counted = "1 row is" if unfinished == 1 else f"{unfinished} rows are"
        notes.append(f"{counted} not finished and in no total.")
    return tuple(notes)
