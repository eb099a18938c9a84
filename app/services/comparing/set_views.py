"""Stored comparisons over prompt sets, read side by side without a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.services.batch.jobs import batch_request
from app.services.batch.rows import INTERVAL, OPEN, row_views
from app.services.comparing.cells import Chain, by_line, cell_of, chains_of, column_means, largest, parted
from app.services.comparing.columns import own_model
from app.services.comparing.set_tables import sorted_rows
from app.services.errors import ServiceError
from app.services.job_views import JobService
from app.services.mapping import footprint_from
from app.services.prompts.files import PromptRow, row_from
from app.services.views.audits import AuditSettings
from app.services.views.compared_sets import SetCell, SetColumn, SetComparison, SetOrder, SetRow
from coft_core.footprint import Footprint
from db.records import BatchRecord
from db.repositories import BatchesRepository, ComparisonsRepository, PromptSetsRepository


@dataclass(frozen=True, slots=True)
class _Part:
    """What is stored of one column."""

    batch: BatchRecord
    settings: AuditSettings
    cells: Mapping[int, SetCell]
    chains: Mapping[int, Chain]
    footprint: Footprint | None


class SetViews:
    """Reads comparisons over prompt sets."""

    def __init__(
        self,
        comparisons: ComparisonsRepository,
        batches: BatchesRepository,
        prompt_sets: PromptSetsRepository,
        jobs: JobService,
    ) -> None:
        """Wire to the stores, and to what looks jobs up."""
        self._comparisons = comparisons
        self._batches = batches
        self._prompt_sets = prompt_sets
        self._jobs = jobs

    def view(self, comparison_id: int, order: SetOrder, column: int, descending: bool) -> SetComparison:
        """A comparison with its rows and means; see :meth:`app.services.comparing.sets.SetComparisonService.view`."""
        record = self._comparisons.get(comparison_id)
        if not record.batch_ids:
            raise ServiceError(f"The batches of “{record.name}” have been deleted, so there is nothing to compare.")
        prompts = [row_from(row) for row in self._prompt_sets.rows(record.prompt_set_id)]
        parts = [self._part(self._batches.get(number), prompts) for number in record.batch_ids]
        rows = _rows(prompts, parts)
        columns = tuple(self._column(place, part, rows) for place, part in enumerate(parts))
        running = any(self.going(part.batch) for part in parts)
        left = any(cell.state in OPEN for row in rows for cell in row.cells)
        return SetComparison(
            id=record.id,
            name=record.name,
            created_at=record.created_at,
            filename=self._prompt_sets.get(record.prompt_set_id).filename,
            columns=columns,
            rows=sorted_rows(rows, order, min(max(column, 0), len(columns) - 1), descending),
            running=running,
            resumable=left and not running,
            notes=tuple(_notes(columns, rows)),
        )

    def going(self, batch: BatchRecord) -> bool:
        """Whether a batch is being run or waits for its turn."""
        job = self._jobs.find(batch.job_id)
        return job is not None and job.active

    def _part(self, batch: BatchRecord, prompts: Sequence[PromptRow]) -> _Part:
        settings, records = batch_request(batch.request).settings, self._batches.rows(batch.id)
        stored = self._comparisons.footprints(batch.id)
        footprints = {session: footprint_from(data) for session, data in stored.items()}
        chains = by_line(records, chains_of(self._comparisons.batch_steps(batch.id)))
        cells = {
            row.line: cell_of(row, chains[row.line], footprints.get(row.session_id or 0), own_model(settings))
            for row in row_views(records, prompts, ())
        }
        return _Part(batch, settings, cells, chains, largest(footprints.values()))

    def _column(self, place: int, part: _Part, rows: Sequence[SetRow]) -> SetColumn:
        cells = [row.cells[place] for row in rows]
        return SetColumn(
            batch_id=part.batch.id,
            settings=part.settings,
            job=self._jobs.find(part.batch.job_id),
            finished=sum(cell.state == "finished" for cell in cells),
            failed=sum(cell.state == "failed" for cell in cells),
            means=column_means(rows, place),
            footprint=part.footprint,
            peak_bytes=max((cell.peak_bytes for cell in cells if cell.peak_bytes is not None), default=None),
            own_model=own_model(part.settings),
        )


def _rows(prompts: Sequence[PromptRow], parts: Sequence[_Part]) -> list[SetRow]:
    by_text = len({part.settings.model for part in parts}) > 1
    return [
        SetRow(
            line=row.line,
            prompt=row.example.prompt,
            group=row.example.group,
            context=row.example.context,
            cells=parted([part.cells[row.line] for part in parts], [part.chains[row.line] for part in parts], by_text),
        )
        for row in prompts
    ]


def _notes(columns: Sequence[SetColumn], rows: Sequence[SetRow]) -> Iterator[str]:
    yield f"Intervals: {INTERVAL}."
    left = sum(any(cell.state != "finished" for cell in row.cells) for row in rows)
    if left:
        many = "1 row is" if left == 1 else f"{left} rows are"
        yield f"{many} not finished in every column; a column’s means count its own finished rows."
    if len({(own.settings.seed, own.settings.greedy) for own in columns}) > 1:
        yield "The columns have different seeds, so that tokens can differ by chance alone."
    if len({own.settings.model for own in columns}) > 1:
        yield "The columns have different models; tokens are compared by their text."
    if any(own.own_model for own in columns):
        yield (
            "A column decodes a checkpoint of its own: its factual reading is the checkpoint’s, so no divergence from "
            "the audited model is given."
        )
