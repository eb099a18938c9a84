"""Several settings over a whole prompt set: one batch a column, run in the background, and read side by side."""

from __future__ import annotations

from pathlib import Path

from app.services.batch.rows import OPEN
from app.services.batch.service import BatchService
from app.services.comparing.columns import checked_columns, labels_of
from app.services.comparing.set_tables import set_csv, summary_csv
from app.services.comparing.set_views import SetViews
from app.services.csv_files import write_text
from app.services.errors import ServiceError
from app.services.job_views import JobService
from app.services.prompts.stored import rows_jsonl
from app.services.views.batches import BatchRequest
from app.services.views.compared_sets import SetComparison, SetOrder, SetRequest, SetSummary, StoredPromptSet
from app.services.views.prompt_sets import ParsedPromptSet
from db.repositories import BatchesRepository, ComparisonsRepository, PromptSetsRepository


class SetComparisonService:
    """Submits, follows, cancels and resumes comparisons over prompt sets, and sums them up."""

    def __init__(
        self,
        comparisons: ComparisonsRepository,
        batches: BatchesRepository,
        prompt_sets: PromptSetsRepository,
        jobs: JobService,
        running: BatchService,
    ) -> None:
        """Wire to the stores, to what looks jobs up, and to what runs batches."""
        self._comparisons = comparisons
        self._batches = batches
        self._prompt_sets = prompt_sets
        self._running = running
        self._views = SetViews(comparisons, batches, prompt_sets, jobs)

    def submit(self, prompts: ParsedPromptSet, request: SetRequest) -> int:
        """Store the prompts and a batch for each column, start them one after another, and return the id.

        Raises:
            ServiceError: There is no name, there are fewer than two columns or too many, two are alike, or rows cannot
                be used and going on without them was not allowed.
            ColumnMismatch: A column's calibration belongs to another policy and going on was not allowed.
            CoftError: A setting is outside its range, or a model cannot be loaded.
            NotFoundError: A calibration or a word list has been deleted.
        """
        columns = checked_columns(request.columns)
        name = request.name.strip()
        if not name:
            raise ServiceError("The comparison has no name; give it one.")
        requests = [
            BatchRequest(f"{name} · {label}", settings, request.accept_errors)
            for settings, label in zip(columns, labels_of(columns), strict=True)
        ]
        batches = self._running.store(prompts, requests)
        made = self._comparisons.add(name, batches[0].prompt_set_id, [batch.id for batch in batches])
        for batch in batches:
            self._running.resume(batch.id)
        return made.id

    def prompt_sets(self) -> tuple[StoredPromptSet, ...]:
        """Prompt sets of earlier uploads, newest first, each content once."""
        found = {item.digest: item for item in reversed(self._prompt_sets.list())}
        newest = sorted(found.values(), key=lambda item: -item.id)
        return tuple(StoredPromptSet(i.id, i.name, i.filename, i.row_count, i.created_at) for i in newest)

    def write_prompt_set(self, prompt_set_id: int, folder: Path) -> Path:
        """Write a stored prompt set into a folder as JSONL, so that it can be used like an upload; return its path.

        Raises:
            NotFoundError: There is no such set.
        """
        stem = Path(self._prompt_sets.get(prompt_set_id).filename).stem or "prompts"
        return write_text(folder / f"{stem}.jsonl", rows_jsonl(self._prompt_sets.rows(prompt_set_id)))

    def list(self) -> tuple[SetSummary, ...]:
        """All comparisons, newest first."""
        found = []
        for record in self._comparisons.list():
            batches = [self._batches.get(number) for number in record.batch_ids]
            policies = tuple(str(batch.request["settings"]["policy"]) for batch in batches)
            going = any(self._views.going(batch) for batch in batches)
            found.append(SetSummary(record.id, record.name, record.created_at, record.row_count, policies, going))
        return tuple(found)

    def view(
        self, comparison_id: int, order: SetOrder = "line", column: int = 0, descending: bool = False
    ) -> SetComparison:
        """A comparison with its rows and means; needs no model.

        Args:
            comparison_id: The comparison.
            order: What the rows are sorted by.
            column: Whose value sorts, 0-based.
            descending: Whether the largest comes first.

        Raises:
            NotFoundError: There is no such comparison.
            ServiceError: All of its batches have been deleted.
        """
        return self._views.view(comparison_id, order, column, descending)

    def cancel(self, comparison_id: int) -> None:
        """Ask all columns to stop after their current tokens; finished sessions stay, and it can be resumed.

        Raises:
            ServiceError: A column runs in another process.
            NotFoundError: There is no such comparison.
        """
        for number in reversed(self._comparisons.get(comparison_id).batch_ids):
            self._running.cancel(number)

    def resume(self, comparison_id: int) -> None:
        """Go on with the rows that are not finished, column after column.

        Raises:
            ServiceError: It is running, or nothing is left to run.
            NotFoundError: There is no such comparison.
        """
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
            self._running.resume(number)

    def csv(self, comparison_id: int) -> str:
        """One line a prompt and column as RFC 4180 CSV text; raises what :meth:`view` does."""
        return set_csv(self.view(comparison_id))

    def summary_csv(self, comparison_id: int) -> str:
        """The columns' means with their intervals as RFC 4180 CSV text; raises what :meth:`view` does."""
        return summary_csv(self.view(comparison_id))

    def write_csv(self, comparison_id: int, folder: Path) -> tuple[Path, Path]:
        """Write rows and means into a folder, each file atomically, and return their paths."""
        view, stem = self.view(comparison_id), f"coft-compare-set-{comparison_id}"
        return (
            write_text(folder / f"{stem}.csv", set_csv(view)),
            write_text(folder / f"{stem}-summary.csv", summary_csv(view)),
        )

    def delete(self, comparison_id: int) -> None:
        """Delete a comparison with its batches; their sessions stay in the library.

        Raises:
            ServiceError: It is running.
            NotFoundError: There is no such comparison.
        """
        record = self._comparisons.get(comparison_id)
        if any(self._views.going(self._batches.get(number)) for number in record.batch_ids):
            raise ServiceError(f"The comparison “{record.name}” is running; cancel it first.")
        self._comparisons.delete(comparison_id)
        for number in record.batch_ids:
            self._running.delete(number)
