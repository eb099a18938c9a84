"""What every service shares that works on uploaded prompt sets: how they are read, and why they are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from app.services.prompts.files import parse_prompt_set
from app.services.views import ParsedPromptSet, RowError


class PromptSetReader:
    """Reads uploaded prompt sets up to a size."""

    def __init__(self, max_upload_bytes: int) -> None:
        """Keep the size in bytes of the largest prompt set that is read."""
        self._max_upload_bytes = max_upload_bytes

    def parse(
        self, path: Path, filename: str | None = None, columns: Mapping[str, str] | None = None
    ) -> ParsedPromptSet:
        """Read a CSV or JSONL prompt set; row-level problems are data, an unreadable file is an error.

        Args:
            path: The file.
            filename: Its name as uploaded.
            columns: For each field the column to read it from; ``""`` reads it from none. Fields that are left out are
                read from the column of their own name, else from one of an obvious name.

        Raises:
            ServiceError: The file as a whole cannot be used.
        """
        return parse_prompt_set(path, filename, self._max_upload_bytes, columns)


def refused_rows(prompts: ParsedPromptSet, errors: Sequence[RowError]) -> str:
    """How many rows cannot be used and why the first of them cannot, as the sentence that refuses a prompt set."""
    bad = len({error.line for error in errors})
    return (
        f"{bad} of {prompts.total} rows cannot be used, {first_refused(errors)}; correct them, or go on with the good "
        "rows."
    )


def first_refused(errors: Sequence[RowError]) -> str:
    """Where the first row is that cannot be used, and why it cannot."""
    first = errors[0]
    return f"the first on line {first.line} ({first.column} {first.message})"
