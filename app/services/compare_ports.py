"""Comparisons over prompt sets as pages and commands see them; see :mod:`app.services.ports`."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from app.services.views.compared_sets import SetComparison, SetOrder, SetRequest, SetSummary, StoredPromptSet
from app.services.views.prompt_sets import ParsedPromptSet


class ComparedSets(Protocol):
    """Every prompt of a set under several settings, in the background."""

    def submit(self, prompts: ParsedPromptSet, request: SetRequest) -> int:
        """Store the prompts and a batch for each column, start them one after another, and return the id."""

    def prompt_sets(self) -> tuple[StoredPromptSet, ...]:
        """Prompt sets of earlier uploads, newest first."""

    def write_prompt_set(self, prompt_set_id: int, folder: Path) -> Path:
        """Write a stored prompt set into a folder as JSONL, so that it can be used like an upload."""

    def list(self) -> tuple[SetSummary, ...]:
        """All comparisons, newest first."""

    def view(
        self, comparison_id: int, order: SetOrder = "line", column: int = 0, descending: bool = False
    ) -> SetComparison:
        """A comparison with its rows and means; needs no model."""

    def cancel(self, comparison_id: int) -> None:
        """Ask all columns to stop after their current tokens; it can be resumed."""

    def resume(self, comparison_id: int) -> None:
        """Go on with the rows that are not finished, column after column."""

    def csv(self, comparison_id: int) -> str:
        """One line a prompt and column as RFC 4180 CSV text."""

    def summary_csv(self, comparison_id: int) -> str:
        """The columns' means with their intervals as RFC 4180 CSV text."""

    def write_csv(self, comparison_id: int, folder: Path) -> tuple[Path, Path]:
        """Write rows and means into a folder, each file atomically, and return their paths."""

    def delete(self, comparison_id: int) -> None:
        """Delete a comparison that is not running, with its batches; their sessions stay in the library."""
