"""Prompt sets as the services take and give them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from coft_core.types import Example, Span

PROMPT_SET_FIELDS = ("prompt", "reference", "spans", "group", "context", "weight")
"""What a row of a prompt set can hold; only ``prompt`` is required."""


@dataclass(frozen=True, slots=True)
class RowError:
    """Why a row of an uploaded prompt set cannot be used; ``line`` counts from 1, the header included."""

    line: int
    column: str
    message: str


@dataclass(frozen=True, slots=True)
class ParsedPromptSet:
    """An uploaded prompt set after reading.

    Attributes:
        filename: Name of the file as uploaded.
        size: Bytes.
        format: ``"CSV, comma"``, ``"CSV, semicolon"`` or ``"JSONL"``.
        rows: Usable rows with their line numbers.
        errors: What is wrong with the others.
        total: Rows in the file.
        ignored_columns: Columns that are not known and were not read.
        digest: SHA-256 of the file.
        weights: Shift weight of each usable row, in their order; empty if the file has none.
        columns: Columns of the file in its order.
        mapping: For each field of a prompt set the column that it was read from; fields without one are left out.
    """

    filename: str
    size: int
    format: str
    rows: tuple[tuple[int, Example], ...]
    errors: tuple[RowError, ...]
    total: int
    ignored_columns: tuple[str, ...]
    digest: str
    weights: tuple[float, ...] = ()
    columns: tuple[str, ...] = ()
    mapping: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PromptPreview:
    """A row as it will be masked.

    Attributes:
        line: Line in the file.
        prompt: The prompt.
        reference: Its reference, if it has one.
        spans: Its spans: those of the row, else those detected.
        detected: Whether they were detected.
        group: Its group.
        context: Its context.
    """

    line: int
    prompt: str
    reference: str | None
    spans: tuple[Span, ...]
    detected: bool
    group: str | None
    context: str | None


@dataclass(frozen=True, slots=True)
class CalibrationEstimate:
    """What a calibration will take, from a short trial with a few of its own prompts.

    Attributes:
        prompts: Prompts that can be used.
        contexts: Independent contexts among them.
        needed: Contexts that alpha needs at least, those kept apart not counted.
        tried: Prompts of the trial.
        seconds: Estimated time in seconds.
        unmasked: Prompts in which nothing is masked, of those looked at.
        looked_at: Prompts that were looked at for it in about a second; None is all.
    """

    prompts: int
    contexts: int
    needed: int
    tried: int
    seconds: float
    unmasked: int
    looked_at: int | None = None


@dataclass(frozen=True, slots=True)
class SamplePromptSet:
    """A prompt set that comes with the program.

    Attributes:
        name: File name.
        title: Title for a menu.
        description: One sentence.
        rows: Number of rows.
        path: The file.
    """

    name: str
    title: str
    description: str
    rows: int
    path: Path
