"""Batches without a model, a database or a thread: a run goes on by some rows whenever it is looked at."""

from __future__ import annotations

import builtins
import csv
import io
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from app.batch.impact import ImpactTable, OutcomeRule, Outcomes, impact_table, outcomes_of
from app.batch.rows import BatchOrder, group_totals, rows_csv, sorted_rows
from app.batch.service import BatchEstimate, BatchRequest, BatchSummary, BatchView
from app.shared.errors import ServiceError
from app.shared.jobs import JobView
from app.shared.prompt_rows import BatchRowView
from app.shared.prompt_sets import ParsedPromptSet, RowError, SamplePromptSet
from db.types import NotFoundError
from tests.fakes.calibrations import ASSETS, FakeCalibrations
from tests.fakes.data import job_view

ENDED = ("done", "failed", "cancelled", "interrupted")
TOO_LONG = 400
"""Characters of a prompt that the model cannot take."""
FAILING = "cannot be run"
"""Words of a prompt whose row fails."""


@dataclass
class FakeBatch:
    number: int
    request: BatchRequest
    filename: str
    rows: list[BatchRowView]
    status: str = "running"


class FakeBatches:
    """A run goes on when it is looked at, until ``limit`` of its rows are over; None is all."""

    def __init__(self, calibrations: FakeCalibrations) -> None:
        self.calibrations = calibrations
        self.stored: dict[int, FakeBatch] = {}
        self.requests: list[BatchRequest] = []
        self.limit: int | None = None

    def parse(self, path: Path, filename: str | None = None, columns: object = None) -> ParsedPromptSet:
        return self.calibrations.parse(path, filename, columns)  # type: ignore[arg-type]

    def samples(self) -> tuple[SamplePromptSet, ...]:
        path = ASSETS / "prompts" / "hiring_questions.csv"
        return (SamplePromptSet(path.name, "Hiring questions, by race", "Twelve questions.", 72, path),)

    def row_errors(self, prompts: ParsedPromptSet, request: BatchRequest) -> tuple[RowError, ...]:
        long = [
            RowError(line, "prompt", "has 1,200 tokens and the model takes 1,024")
            for line, example in prompts.rows
            if len(example.prompt) > TOO_LONG
        ]
        ungrouped = [
            RowError(line, "group", "is empty, and thresholds by group need one")
            for line, example in prompts.rows
            if request.group_thresholds and example.group is None
        ]
        return tuple(sorted((*prompts.errors, *long, *ungrouped), key=lambda error: error.line))

    def estimate(self, prompts: ParsedPromptSet, request: BatchRequest) -> BatchEstimate:
        rows = [example for _, example in prompts.rows]
        contexts = {row.context or row.prompt for row in rows}
        groups = {row.group for row in rows} - {None}
        tokens = len(rows) * request.settings.max_new_tokens
        return BatchEstimate(len(rows), len(contexts), len(groups), tokens, 0.02 * tokens)

    def submit(self, prompts: ParsedPromptSet, request: BatchRequest) -> int:
        bad = {error.line for error in self.row_errors(prompts, request)}
        if bad and not request.accept_errors:
            raise ServiceError(f"{len(bad)} rows cannot be used: correct them, or go on with the good rows.")
        self.requests.append(request)
        usable = [(line, example) for line, example in prompts.rows if line not in bad]
        return self.add(request, [(line, row.prompt, row.group, row.context) for line, row in usable], prompts.filename)

    def add(
        self, request: BatchRequest, prompts: builtins.list[tuple[int, str, str | None, str | None]], filename: str,
        finished: bool = False,
    ) -> int:  # fmt: skip
        """Store a batch as if it had been submitted."""
        number = max(self.stored, default=0) + 1
        rows = [_waiting(*prompt) for prompt in prompts]
        self.stored[number] = FakeBatch(number, request, filename, rows)
        if finished:
            self._work(self.stored[number], None)
        return number

    def list(self) -> tuple[BatchSummary, ...]:
        return tuple(
            BatchSummary(item.number, item.request.name, WHEN, len(item.rows), _job(item))
            for item in reversed(self.stored.values())
        )

    def view(self, batch_id: int, order: BatchOrder = "line", descending: bool = False) -> BatchView:
        item = self._get(batch_id)
        if item.status == "running":
            self._work(item, self.limit)
        rows, groups = item.rows, group_totals(item.rows)
        counts = dict(Counter(row.state for row in rows))
        open_rows = len(rows) - counts.get("finished", 0)
        return BatchView(
            id=batch_id, name=item.request.name, request=item.request, filename=item.filename, created_at=WHEN,
            rows=sorted_rows(rows, order, descending), counts=counts, groups=groups, job=_job(item),
            resumable=item.status in ENDED and open_rows > 0,
            notes=(f"{open_rows} rows are not finished and in no total.",) if open_rows else (),
        )  # fmt: skip

    def cancel(self, batch_id: int) -> None:
        self._get(batch_id).status = "cancelled"

    def resume(self, batch_id: int) -> int:
        item = self._get(batch_id)
        if item.status == "running":
            raise ServiceError(f"The batch “{item.request.name}” is running already; wait for it, or cancel it.")
        item.status = "running"
        return batch_id

    def outcomes(self, batch_id: int, rule: OutcomeRule) -> Outcomes:
        return outcomes_of(self._get(batch_id).rows, rule)

    def impact(self, batch_id: int, rule: OutcomeRule, exclude_small: bool = False) -> tuple[ImpactTable, Outcomes]:
        found = self.outcomes(batch_id, rule)
        return impact_table(found.pairs, exclude_small), found

    def csv(self, batch_id: int) -> str:
        return rows_csv(self._get(batch_id).rows)

    def delete(self, batch_id: int) -> None:
        if self._get(batch_id).status == "running":
            raise ServiceError("The batch is running; cancel it first.")
        del self.stored[batch_id]

    def _get(self, batch_id: int) -> FakeBatch:
        if batch_id not in self.stored:
            raise NotFoundError(f"There is no batch {batch_id}; it may have been deleted.")
        return self.stored[batch_id]

    def _work(self, item: FakeBatch, limit: int | None) -> None:
        over = len(item.rows) if limit is None else limit
        for place, row in enumerate(item.rows[:over]):
            if row.state == "waiting":
                item.rows[place] = _finished(row, place)
        if over >= len(item.rows):
            item.status = "done"


WHEN = datetime(2026, 3, 4, 14, 5, tzinfo=UTC)


def hiring(rows: int = 24, groups: tuple[str, ...] = ("white", "Black", "Asian", "Arab")) -> builtins.list[tuple]:
    """Prompts of contexts that have one row for each group."""
    return [
        (
            place + 2,
            f"Question {place // len(groups) + 1}: does the {groups[place % len(groups)]} applicant get the job?",
            groups[place % len(groups)],
            str(place // len(groups) + 1),
        )
        for place in range(rows)
    ]


def read_rows(path: Path) -> builtins.list[dict[str, str]]:
    """A downloaded table."""
    return list(csv.DictReader(io.StringIO(Path(path).read_text("utf-8"))))


def _waiting(line: int, prompt: str, group: str | None, context: str | None) -> BatchRowView:
    return BatchRowView(
        line=line, state="waiting", session_id=None, prompt=prompt, reference=None, group=group, context=context,
        text="", error="", certificate="", verdict="", verdicts=0, steps=0, certified_share=None, fallbacks=None,
        overruled=None, mean_log_ratio=None, max_log_ratio=None, min_margin=None, archived=False,
    )  # fmt: skip


def _finished(row: BatchRowView, place: int) -> BatchRowView:
    """What a row might come to; every third text says no, one in eight says neither."""
    if FAILING in row.prompt:
        return replace(row, state="failed", error="The prompt fills the context; shorten it.")
    text = " Maybe, who knows." if place % 8 == 7 else " No, it is given away." if place % 3 else " Yes, gladly."
    steps = 6 + place % 5
    return replace(
        row, state="finished", session_id=place % 3 + 1, text=text, certificate="certified", steps=steps,
        certified_share=1 - (place % 4) / steps, fallbacks=place % 2, overruled=place % 3,
        mean_log_ratio=0.1 + 0.03 * (place % 7), max_log_ratio=0.4 + 0.11 * (place % 9),
        min_margin=-0.2 + 0.05 * (place % 11), verdict="unfair" if place % 10 == 4 else "",
    )  # fmt: skip


def _job(item: FakeBatch) -> JobView:
    over = sum(row.state != "waiting" for row in item.rows)
    share = over / max(1, len(item.rows))
    running = item.status == "running"
    return job_view(
        item.number, "batch", item.request.name, item.status, share, f"{over} of {len(item.rows)} prompts", None,
        40.0 * (1 - share) if running else None,
    )  # fmt: skip
