"""Records of batches."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from db.records.common import JsonObject


@dataclass(frozen=True, slots=True)
class BatchPlaceRecord:
    """Where a session stands in a batch: the batch and the line of its prompt set."""

    batch_id: int
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord:
    """A batch without its rows.

    Attributes:
        id: Its id.
        name: Its name.
        prompt_set_id: The prompts.
        request: What was asked of them.
        job_id: The job that ran it last; None before the first one, or once that job is deleted.
        created_at: When it was stored.
        row_count: Number of its rows.
    """

    id: int
    name: str
    prompt_set_id: int
    request: JsonObject
    job_id: int | None
    created_at: datetime
    row_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRowRecord:
    """What became of one row of a batch, measured on its session's root branch.

    Attributes:
        line: Line of the prompt set.
        session_id: Its session; None before it began, or once the session is deleted.
        begun: Whether a session was ever made of it.
        error: Why it could not be run; None if it could.
        root_branch_id: Root branch of the session.
        finished: Why its chain ended; None while it can go on.
        certificate: What may be claimed of the session.
        archived: Whether the session is archived.
        text: Its continuation so far.
        steps: Number of steps; the numbers below are about these.
        certified: Steps whose token is certified.
        fallbacks: Steps without any certified token.
        overruled: Steps whose likeliest fused token was not certified while others were.
        mean_log_ratio: Mean of the absolute log-ratios of the tokens' factual to masked probability.
        max_log_ratio: Largest of them.
        min_margin: Smallest margin; may be infinite.
    """

    line: int
    session_id: int | None
    begun: bool
    error: str | None
    root_branch_id: int | None
    finished: str | None
    certificate: str | None
    archived: bool
    text: str
    steps: int
    certified: int
    fallbacks: int
    overruled: int
    mean_log_ratio: float | None
    max_log_ratio: float | None
    min_margin: float | None

    @property
    def is_open(self) -> bool:
        """Whether it can still be run: its chain is not at its end, and its session was not deleted."""
        return self.finished is None and not (self.begun and self.session_id is None)
