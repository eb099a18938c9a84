"""Records of comparisons over prompt sets, and what comparisons read of steps."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRecord:
    """A comparison over a prompt set.

    Attributes:
        id: Its id.
        name: Its name.
        prompt_set_id: The prompts.
        created_at: When it was stored.
        batch_ids: The batch of each column that has not been deleted, in the order of the columns.
        row_count: Prompts of the set.
    """

    id: int
    name: str
    prompt_set_id: int
    created_at: datetime
    batch_ids: tuple[int, ...]
    row_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStepRecord:
    """The numbers of a step that comparisons sum up; fields as in :class:`db.records.StepRecord`."""

    branch_id: int
    index: int
    token_id: int
    token: str
    certified: bool
    fallback: bool
    log_ratio: float
    kl_fused_factual: float | None
    tv_fused_factual: float | None
    seconds: float | None
    peak_bytes: int | None
