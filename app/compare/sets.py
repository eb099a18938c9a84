"""Several settings over a whole prompt set: one batch a column, run in the background, and read side by side."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path

from app.batch.service import BatchRequest, BatchService, batch_request
from app.compare.chains import (
    SETTING_COLUMNS,
    Chain,
    SetCell,
    SetColumn,
    SetComparison,
    SetOrder,
    SetRequest,
    SetRow,
    SetSummary,
    by_line,
    cell_of,
    chains_of,
    checked_columns,
    column_means,
    footprint_from,
    labels_of,
    largest,
    own_model,
    parted,
    setting_columns,
)
from app.prompts.rows import INTERVAL, OPEN, in_order, row_views
from app.prompts.sets import ParsedPromptSet, rows_jsonl
from app.shared.audits import AuditSettings
from app.shared.errors import ServiceError
from app.shared.files import to_csv, write_text
from app.shared.wiring import Services
from coft_core.decode.cost import Footprint
from db.batches import BatchesRepository, BatchRecord
from db.comparisons import ComparisonsRepository
from db.prompt_sets import PromptRow, PromptSetRecord, PromptSetsRepository

ROW_FIELDS = ("line", "prompt", "group")

CELL_COLUMNS = (
    "state", "session_id", "steps", "parted_at", "mean_tv_factual", "mean_kl_factual", "mean_log_ratio",
    "certified_share", "fallbacks", "seconds_per_token", "key_value_bytes", "peak_bytes", "error",
)  # fmt: skip
SET_COLUMNS = ("line", "group", "context", "prompt", "column", *SETTING_COLUMNS, *CELL_COLUMNS, "continuation")
SUMMARY_COLUMNS = (
    "column", *SETTING_COLUMNS, "measure", "mean", "low", "high", "contexts", "left_out", "interval",
)  # fmt: skip
MEMORY = "computed from the models' shapes; the longest prompt of the set"
PEAK = "measured: most memory that the device held, all loaded models included"


def sorted_rows(rows: Sequence[SetRow], order: SetOrder, column: int, descending: bool) -> tuple[SetRow, ...]:
    """Rows sorted by a field of theirs or of a column's cells, then by line; what has no value stands last."""
    lines = sorted(rows, key=attrgetter("line"))
    return in_order(lines, lambda row: getattr(row if order in ROW_FIELDS else row.cells[column], order), descending)


def set_csv(view: SetComparison) -> str:
    """RFC 4180 text, one line a prompt and column; columns and steps count from 1, times are seconds."""
    settings = [setting_columns(column.settings) for column in view.columns]
    return to_csv(
        SET_COLUMNS,
        (
            {
                "line": row.line,
                "group": row.group,
                "context": row.context,
                "prompt": row.prompt,
                "column": place + 1,
                **settings[place],
                **_cell(cell),
            }
            for row in view.rows
            for place, cell in enumerate(row.cells)
        ),
    )


def summary_csv(view: SetComparison) -> str:
    """RFC 4180 text, one line a column and measure; what is computed or measured once has no interval."""
    return to_csv(SUMMARY_COLUMNS, _summary(view))


def _summary(view: SetComparison) -> Iterator[dict[str, object]]:
    blank: dict[str, object] = dict.fromkeys(("mean", "low", "high", "contexts", "left_out", "interval"))
    for place, column in enumerate(view.columns, 1):
        figures = {"column": place, **setting_columns(column.settings)}
        for item in column.means:
            yield {**figures, **asdict(item), "interval": INTERVAL}
        if column.footprint is not None:
            for name in ("model_bytes", "further_bytes"):
                yield {**blank, **figures, "measure": name, "mean": getattr(column.footprint, name), "interval": MEMORY}
        if column.peak_bytes is not None:
            yield {**blank, **figures, "measure": "peak_bytes", "mean": column.peak_bytes, "interval": PEAK}


def _cell(cell: SetCell) -> dict[str, object]:
    values: dict[str, object] = {name: getattr(cell, name) for name in CELL_COLUMNS}
    at = "" if cell.parted is None else "same" if cell.parted_at is None else cell.parted_at + 1
    return {**values, "parted_at": at, "continuation": cell.text}


@dataclass(frozen=True, slots=True)
class _StoredColumn:
    """What is stored of one column."""

    batch: BatchRecord
    settings: AuditSettings
    cells: Mapping[int, SetCell]
    chains: Mapping[int, Chain]
    footprint: Footprint | None


def _rows(prompts: Sequence[PromptRow], parts: Sequence[_StoredColumn]) -> list[SetRow]:
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
    if len({(column.settings.seed, column.settings.greedy) for column in columns}) > 1:
        yield "The columns have different seeds, so that tokens can differ just by chance."
    if len({column.settings.model for column in columns}) > 1:
        yield "The columns have different models; tokens are compared by their text."
    if any(column.own_model for column in columns):
        yield (
            "A column decodes a checkpoint of its own: its factual reading is the checkpoint’s, so no divergence from "
            "the audited model is given."
        )


class SetComparisonService:
    """Submits, follows, cancels and resumes comparisons over prompt sets, and sums them up."""

    def __init__(self, services: Services) -> None:
        self._comparisons, self._batches = services[ComparisonsRepository], services[BatchesRepository]
        self._prompt_sets, self._running = services[PromptSetsRepository], services[BatchService]

    def submit(self, prompts: ParsedPromptSet, request: SetRequest) -> int:
        """Store the prompts and a batch for each column, start them one after another, and return the id."""
        columns = checked_columns(request.columns)
        name = request.name.strip()
        if not name:
            raise ServiceError("The comparison has no name; give it one.")
        requests = [
            BatchRequest(f"{name} · {label}", settings, request.accept_errors)
            for settings, label in zip(columns, labels_of(columns), strict=True)
        ]
        prepared = self._running.prepare(prompts, requests)
        # Ended in between, there would be prompts and batches that no comparison names.
        with self._comparisons.together():
            batches = self._running.store(prepared)
            comparison_id = self._comparisons.add(name, batches[0].prompt_set_id, [batch.id for batch in batches])
            for batch in batches:
                self._running.begin(batch, comparison_id=comparison_id.id, comparison=name)
        return comparison_id.id

    def prompt_sets(self) -> builtins.list[PromptSetRecord]:
        """Prompt sets of earlier uploads, newest first, each content once."""
        by_content = {item.digest: item for item in reversed(self._prompt_sets.list())}
        return sorted(by_content.values(), key=lambda item: -item.id)

    def write_prompt_set(self, prompt_set_id: int, folder: Path) -> Path:
        """Write a stored prompt set into a folder as JSONL, so that it can be used like an upload; return its path."""
        stem = Path(self._prompt_sets.get(prompt_set_id).filename).stem or "prompts"
        return write_text(folder / f"{stem}.jsonl", rows_jsonl(self._prompt_sets.rows(prompt_set_id)))

    def list(self) -> tuple[SetSummary, ...]:
        """All comparisons, newest first."""
        summaries = []
        for record in self._comparisons.list():
            batches = [self._batches.get(number) for number in record.batch_ids]
            policies = tuple(str(batch.request["settings"]["policy"]) for batch in batches)
            going = any(self._running.at_work(batch) for batch in batches)
            summaries.append(SetSummary(record.id, record.name, record.created_at, record.row_count, policies, going))
        return tuple(summaries)

    def view(
        self, comparison_id: int, order: SetOrder = "line", column: int = 0, descending: bool = False
    ) -> SetComparison:
        """A comparison with its rows and means; needs no model."""
        record = self._comparisons.get(comparison_id)
        if not record.batch_ids:
            raise ServiceError(f"The batches of “{record.name}” have been deleted, so there is nothing to compare.")
        prompts = self._prompt_sets.rows(record.prompt_set_id)
        parts = [self._part(self._batches.get(number), prompts) for number in record.batch_ids]
        rows = _rows(prompts, parts)
        columns = tuple(self._column(place, part, rows) for place, part in enumerate(parts))
        running = any(self._running.at_work(part.batch) for part in parts)
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

    def cancel(self, comparison_id: int) -> None:
        """Ask all columns to stop after their current tokens; finished sessions stay, and it can be resumed."""
        for number in reversed(self._comparisons.get(comparison_id).batch_ids):
            self._running.cancel(number)

    def resume(self, comparison_id: int) -> None:
        """Go on with the rows that are not finished, column after column."""
        view = self.view(comparison_id)
        if view.running:
            raise ServiceError(f"The comparison “{view.name}” is running already; wait for it, or cancel it.")
        left = [
            column.batch_id
            for place, column in enumerate(view.columns)
            if any(row.cells[place].state in OPEN for row in view.rows)
        ]
        if not left:
            raise ServiceError(f"Every row of “{view.name}” is finished, so there is nothing to resume.")
        for number in left:
            self._running.resume(number, comparison_id=comparison_id, comparison=view.name)

    def write_csv(self, comparison_id: int, folder: Path) -> tuple[Path, Path]:
        """Write rows and means into a folder, each file atomically, and return their paths."""
        view, stem = self.view(comparison_id), f"coft-compare-set-{comparison_id}"
        return (
            write_text(folder / f"{stem}.csv", set_csv(view)),
            write_text(folder / f"{stem}-summary.csv", summary_csv(view)),
        )

    def delete(self, comparison_id: int) -> None:
        """Delete a comparison with its batches; their sessions stay in the library."""
        record = self._comparisons.get(comparison_id)
        if any(self._running.at_work(self._batches.get(number)) for number in record.batch_ids):
            raise ServiceError(f"The comparison “{record.name}” is running; cancel it first.")
        self._comparisons.delete(comparison_id)
        for number in record.batch_ids:
            self._running.delete(number)

    def _part(self, batch: BatchRecord, prompts: Sequence[PromptRow]) -> _StoredColumn:
        settings, records = batch_request(batch.request).settings, self._batches.rows(batch.id)
        stored = self._comparisons.footprints(batch.id)
        footprints = {session: footprint_from(data) for session, data in stored.items()}
        chains = by_line(records, chains_of(self._comparisons.batch_steps(batch.id)))
        cells = {
            row.line: cell_of(row, chains[row.line], footprints.get(row.session_id or 0), own_model(settings))
            for row in row_views(records, prompts, ())
        }
        return _StoredColumn(batch, settings, cells, chains, largest(footprints.values()))

    def _column(self, place: int, part: _StoredColumn, rows: Sequence[SetRow]) -> SetColumn:
        cells = [row.cells[place] for row in rows]
        return SetColumn(
            batch_id=part.batch.id,
            settings=part.settings,
            job=self._running.job(part.batch),
            finished=sum(cell.state == "finished" for cell in cells),
            failed=sum(cell.state == "failed" for cell in cells),
            means=column_means(rows, place),
            footprint=part.footprint,
            peak_bytes=max((cell.peak_bytes for cell in cells if cell.peak_bytes is not None), default=None),
            own_model=own_model(part.settings),
        )
