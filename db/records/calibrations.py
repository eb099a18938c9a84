"""Records of calibration runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from db.records.common import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class BinRecord:
    """One position bin of a calibration.

    Attributes:
        position: The bin's ordinal, 0-based.
        first_step: First step that it covers, 0-based.
        last_step: Last step that it covers, inclusive; None for all later ones.
        log_tau: Log-threshold; ``-inf`` certifies everything.
        state: ``calibrated``, ``inherited`` or ``uninformative``.
        contexts: Number of independent contexts that it rests on.
        rank: Rank k of the threshold among the values, where the estimator has one.
        low: Lower end of the range that realised coverage can take, a probability.
        high: Upper end of that range.
    """

    position: int
    first_step: int
    last_step: int | None
    log_tau: float
    state: str
    contexts: int
    rank: int | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationFields:
    """What the caller says of a calibration run; its value bytes travel separately."""

    name: str
    model: str
    model_revision: str
    alpha: float
    lam: float
    estimator: str
    source: str
    bin_width: int
    max_position: int
    fingerprint_digest: str
    fingerprint: JsonObject
    context_count: int
    token_count: int
    prompt_set_id: int | None = None
    verification: JsonObject | None = None
    coverage: JsonObject | None = None
    status: str = "ready"
    job_id: int | None = None
    embedded: bool = False
    mask_layout: str = "joint"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRecord(CalibrationFields):
    """A stored calibration run with its bins, in order of position."""

    id: int
    created_at: datetime
    bins: tuple[BinRecord, ...]
