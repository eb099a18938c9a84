"""Comparisons over prompt sets without a model or a thread: a run goes on by some rows whenever it is looked at."""

from __future__ import annotations

import builtins
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from app.compare.chains import checked_columns, column_means, own_model
from app.compare.sets import set_csv, sorted_rows, summary_csv
from app.compare.types import (
    SetCell,
    SetColumn,
    SetComparison,
    SetOrder,
    SetRequest,
    SetRow,
    SetSummary,
)
from app.shared.audits import AuditSettings, StartAudit
from app.shared.errors import ColumnMismatch
from app.shared.files import write_text
from app.shared.prompt_sets import ParsedPromptSet
from coft_core.decode.cost import Footprint
from coft_core.errors import CalibrationMismatch
from db.prompt_sets import PromptSetRecord
from db.types import NotFoundError
from tests.fakes.audits import FakeAudits
from tests.fakes.comparisons import written
from tests.fakes.data import job_view, make_step

WHEN = datetime(2026, 3, 4, 14, 5, tzinfo=UTC)
FAILING = "cannot be run"
"""Words of a prompt whose rows fail."""


@dataclass
class FakeSet:
    number: int
    request: SetRequest
    filename: str
    rows: list[SetRow]
    running: bool = True
    done: int = field(default=0)


class FakeComparedSets:
    """A run goes on by ``pace`` rows when it is looked at; 0 stands still."""

    def __init__(self, audits: FakeAudits) -> None:
        self.audits = audits
        self.stored: dict[int, FakeSet] = {}
        self.pace = 1000
        self.taken: list[int] = []

    def submit(self, prompts: ParsedPromptSet, request: SetRequest) -> int:
        for place, settings in enumerate(checked_columns(request.columns)):
            apart = self.audits.fit(settings).differences if settings.policy == "coft" else ()
            if apart and not settings.proceed_uncertified:
                raise ColumnMismatch(place, CalibrationMismatch(apart))
        waiting = tuple(SetCell("waiting") for _ in request.columns)
        rows = [SetRow(line, row.prompt, row.group, row.context, waiting) for line, row in prompts.rows]
        number = max(self.stored, default=0) + 1
        self.stored[number] = FakeSet(number, request, prompts.filename, rows)
        return number

    def prompt_sets(self) -> builtins.list[PromptSetRecord]:
        return [PromptSetRecord(id=7, name="Ward notes", filename="ward.csv", digest="", created_at=WHEN, row_count=3)]

    def write_prompt_set(self, prompt_set_id: int, folder: Path) -> Path:
        self.taken.append(prompt_set_id)
        rows = (f'{{"prompt": "The nurse said {word}", "context": "1"}}\n' for word in ("he", "she", "they"))
        return write_text(folder / "ward.jsonl", "".join(rows))

    def list(self) -> tuple[SetSummary, ...]:
        return tuple(
            SetSummary(
                item.number, item.request.name, WHEN, len(item.rows),
                tuple(own.policy for own in item.request.columns), item.running,
            )
            for item in reversed(self.stored.values())
        )  # fmt: skip

    def view(
        self, comparison_id: int, order: SetOrder = "line", column: int = 0, descending: bool = False
    ) -> SetComparison:
        item = self._get(comparison_id)
        if item.running:
            self._work(item)
        columns = tuple(self._column(item, place) for place in range(len(item.request.columns)))
        left = any(cell.state == "waiting" for row in item.rows for cell in row.cells)
        return SetComparison(
            item.number, item.request.name, WHEN, item.filename, columns,
            sorted_rows(item.rows, order, column, descending), item.running, left and not item.running,
            ("Intervals: made up.",),
        )  # fmt: skip

    def cancel(self, comparison_id: int) -> None:
        self._get(comparison_id).running = False

    def resume(self, comparison_id: int) -> None:
        self._get(comparison_id).running = True

    def csv(self, comparison_id: int) -> str:
        return set_csv(self.view(comparison_id))

    def summary_csv(self, comparison_id: int) -> str:
        return summary_csv(self.view(comparison_id))

    def write_csv(self, comparison_id: int, folder: Path) -> tuple[Path, Path]:
        view = self.view(comparison_id)
        return write_text(folder / "set.csv", set_csv(view)), write_text(folder / "set-summary.csv", summary_csv(view))

    def delete(self, comparison_id: int) -> None:
        del self.stored[self._get(comparison_id).number]

    def _get(self, number: int) -> FakeSet:
        if number not in self.stored:
            raise NotFoundError(f"There is no comparison with the id {number}; it may have been deleted.")
        return self.stored[number]

    def _work(self, item: FakeSet) -> None:
        for place, row in enumerate(item.rows[: item.done + self.pace]):
            if row.cells[0].state == "waiting":
                cells = tuple(self._cell(row, item.request.columns, column) for column in range(len(row.cells)))
                item.rows[place] = replace(row, cells=cells)
        item.done = min(item.done + self.pace, len(item.rows))
        item.running = item.done < len(item.rows)

    def _cell(self, row: SetRow, columns: tuple[AuditSettings, ...], place: int) -> SetCell:
        if FAILING in row.prompt:
            return SetCell("failed", error="The prompt fills the context; shorten it.")
        settings = columns[place]
        session = self.audits._create(StartAudit(row.prompt, settings, (), f"line {row.line}"))
        tokens = written(settings, min(9, settings.max_new_tokens))
        session.branches[0].steps = [make_step(index, token, session.state) for index, token in enumerate(tokens)]
        apart = place > 0 and row.line % 3 != 0
        share = 0.03 * place * (1 + row.line % 4)
        return SetCell(
            state="finished",
            session_id=session.id,
            text="".join(tokens),
            steps=len(tokens),
            parted_at=row.line % 5 if apart else None,
            parted=apart if place else None,
            mean_kl_factual=share / 2,
            mean_tv_factual=share,
            mean_log_ratio=0.1 + 0.02 * (row.line % 6),
            fallbacks=row.line % 2 if settings.calibration_id else None,
            certified_share=0.9 if settings.calibration_id else None,
            seconds_per_token=0.01 * (1 + place) + 0.001 * (row.line % 3),
            key_value_bytes=300_000 * (1 + place),
        )

    def _column(self, item: FakeSet, place: int) -> SetColumn:
        settings, cells = item.request.columns[place], [row.cells[place] for row in item.rows]
        finished = sum(cell.state == "finished" for cell in cells)
        status = "running" if item.running else "done"
        job = job_view(place + 1, "batch", "", status, 0.5, "")
        return SetColumn(
            batch_id=10 * item.number + place,
            settings=settings,
            job=job,
            finished=finished,
            failed=sum(cell.state == "failed" for cell in cells),
            means=column_means(builtins.list(item.rows), place),
            footprint=Footprint((9, 9), (8192, 8192), 14_400_000, 0),
            peak_bytes=None,
            own_model=own_model(settings),
        )
