"""Comparisons over prompt sets as the services take and give them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from app.services.views.audits import AuditSettings
from app.services.views.batches import MeanInterval, RowState
from app.services.views.jobs import JobView
from coft_core.footprint import Footprint

SetOrder = Literal[
    "line", "prompt", "group", "parted_at", "mean_tv_factual", "mean_kl_factual", "mean_log_ratio", "certified_share",
    "fallbacks", "seconds_per_token", "steps",
]  # fmt: skip
"""What the rows are sorted by; all but the first three of one of the columns."""


@dataclass(frozen=True, slots=True)
class SetRequest:
    """A request to decode every prompt of a set under several settings.

    Attributes:
        name: Name of the comparison.
        columns: The settings of each column; the others are compared with the first.
        accept_errors: Go on with the good rows although others cannot be used.
    """

    name: str
    columns: tuple[AuditSettings, ...]
    accept_errors: bool = False


@dataclass(frozen=True, slots=True)
class SetCell:
    """What one column says of one prompt; numbers are of the session's main chain.

    Attributes:
        state: How far it is.
        session_id: Its session; None if there is none.
        text: The continuation so far.
        steps: Number of tokens.
        parted_at: First step (0-based) with another token than the first column, the shorter chain's end included;
            None where both are equal, where one is not finished, and in the first column.
        parted: Whether it parts from the first column; None where that cannot be said yet.
        mean_kl_factual: Mean over its steps of the divergence from vanilla, nats; infinite where a step forbids
            nothing less; None where it was not computed, or says nothing of the audited model.
        mean_tv_factual: The same as total variation.
        mean_log_ratio: Mean absolute log-ratio of the tokens' factual to masked probability; None without tokens.
        fallbacks: Steps at which no token was certified; None where nothing is thresholded.
        certified_share: Share of certified tokens; None where the session is uncertified.
        seconds_per_token: Median time of a step after the first, in seconds, waiting excluded; None if unmeasured.
        key_value_bytes: Computed memory of keys and values of all branches at its end; None if unknown.
        peak_bytes: Most memory that the device held during its steps; None if unmeasured.
        error: Why it could not be run; empty if it could.
    """

    state: RowState
    session_id: int | None = None
    text: str = ""
    steps: int = 0
    parted_at: int | None = None
    parted: bool | None = None
    mean_kl_factual: float | None = None
    mean_tv_factual: float | None = None
    mean_log_ratio: float | None = None
    fallbacks: int | None = None
    certified_share: float | None = None
    seconds_per_token: float | None = None
    key_value_bytes: int | None = None
    peak_bytes: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class SetRow:
    """One prompt of the set and what each column says of it."""

    line: int
    prompt: str
    group: str | None
    context: str | None
    cells: tuple[SetCell, ...]


@dataclass(frozen=True, slots=True)
class SetColumn:
    """One column of a comparison.

    Attributes:
        batch_id: The batch that runs it.
        settings: Its settings.
        job: The job that ran it last; None if it is not known any more.
        finished: Prompts whose chain is at its end.
        failed: Prompts that could not be run.
        means: Means over the finished prompts, one a measure, with 95 % intervals.
        footprint: Memory of its longest prompt's branches and of its models, as computed; None if unknown.
        peak_bytes: Most memory that the device held during any of its steps; None if unmeasured.
        own_model: True where it decodes a checkpoint of its own, so that nothing is said of the audited model.
    """

    batch_id: int
    settings: AuditSettings
    job: JobView | None
    finished: int
    failed: int
    means: tuple[MeanInterval, ...]
    footprint: Footprint | None
    peak_bytes: int | None
    own_model: bool


@dataclass(frozen=True, slots=True)
class SetComparison:
    """Every prompt of a set under several settings.

    Attributes:
        id: Its id.
        name: Its name.
        created_at: When it was submitted.
        filename: Name of the file with its prompts.
        columns: Its columns; the others are compared with the first.
        rows: Its rows, sorted as asked.
        running: Whether a column is being run or waits for its turn.
        resumable: Whether it stands still with rows left to run.
        notes: Sentences that must be shown with it.
    """

    id: int
    name: str
    created_at: datetime
    filename: str
    columns: tuple[SetColumn, ...]
    rows: tuple[SetRow, ...]
    running: bool
    resumable: bool
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetSummary:
    """A comparison over a prompt set in a list."""

    id: int
    name: str
    created_at: datetime
    rows: int
    policies: tuple[str, ...]
    running: bool


@dataclass(frozen=True, slots=True)
class StoredPromptSet:
    """A prompt set of an earlier upload in a menu."""

    id: int
    name: str
    filename: str
    rows: int
    created_at: datetime
