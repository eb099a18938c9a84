"""Prompt sets, calibration runs and jobs as the services take and give them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from coft_core.types import Example


@dataclass(frozen=True, slots=True)
class BinView:
    """One position bin of a calibration, ready to be drawn.

    Attributes:
        label: ``"1–8"`` or ``"257 and later"``.
        first_step: 0-based.
        last_step: 0-based inclusive; None is open-ended.
        state: ``calibrated``, ``inherited`` or ``uninformative``.
        tau: Threshold as a probability; 0 certifies everything.
        contexts: Contexts with data in the bin.
        rank: ``k = floor(alpha (n + 1))``.
        coverage_low: Lower end of the 95 % range that realised coverage can take; None without rank.
        coverage_high: Upper end.
        inherited_from: Label of the lending bin.
        needed: Contexts needed for this alpha.
    """

    label: str
    first_step: int
    last_step: int | None
    state: str
    tau: float
    contexts: int
    rank: int
    coverage_low: float | None
    coverage_high: float | None
    inherited_from: str | None
    needed: int


@dataclass(frozen=True, slots=True)
class CoverageView:
    """Empirical coverage on the verification split; ``label`` is ``"All steps"`` or a bin's label."""

    label: str
    contexts: int
    kept: int
    coverage: float | None
    low: float | None
    high: float | None
    agrees: bool | None


@dataclass(frozen=True, slots=True)
class CalibrationSummary:
    """A calibration run in a list."""

    id: int
    name: str
    model: str
    estimator: str
    source: str
    lam: float
    alpha: float
    contexts: int
    coverage: float | None
    coverage_low: float | None
    coverage_high: float | None
    created_at: datetime
    embedded: bool


@dataclass(frozen=True, slots=True)
class CalibrationView:
    """A calibration run, read at one alpha.

    Attributes:
        summary: The run.
        alpha: Risk level of this reading.
        bins: Thresholds by position.
        coverage: Overall row first, then one row per bin that has verification data.
        tokens: Number of stored values.
        calibrated_up_to: Last step (1-based) with an own, informative threshold; None if there is none.
        fingerprint: Field and value, in order.
        fingerprint_digest: Short digest.
        log_values: Natural log joint support of the true tokens by bin label, for histograms.
    """

    summary: CalibrationSummary
    alpha: float
    bins: tuple[BinView, ...]
    coverage: tuple[CoverageView, ...]
    tokens: int
    calibrated_up_to: int | None
    fingerprint: tuple[tuple[str, str], ...]
    fingerprint_digest: str
    log_values: dict[str, tuple[float, ...]]


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
    """

    filename: str
    size: int
    format: str
    rows: tuple[tuple[int, Example], ...]
    errors: tuple[RowError, ...]
    total: int
    ignored_columns: tuple[str, ...]
    digest: str


@dataclass(frozen=True, slots=True)
class CalibrationRequest:
    """A request to calibrate on a parsed prompt set.

    Attributes:
        name: Name of the run.
        model: Model to calibrate.
        lam: Fusion weight.
        alpha: Risk level.
        estimator: ``hierarchical``, ``one_per_context`` or ``pooled``.
        temperature: Sampling temperature.
        top_p: Nucleus mass.
        top_k: Tokens kept.
        sentinel: Sentinel text; None takes the model's own.
        seed: Seed of the split.
        verification_share: Share of the contexts kept apart to check the result.
        accept_errors: Go on with the good rows although others cannot be used.
        masked_families: Families whose detected spans are masked; None takes the program's own choice.
        user_list_id: Word list whose terms win over what is detected; None uses none.
    """

    name: str
    model: str = "demo"
    lam: float = 0.6
    alpha: float = 0.1
    estimator: str = "hierarchical"
    temperature: float = 1.0
    top_p: float = 0.9
    top_k: int = 0
    sentinel: str | None = None
    seed: int = 0
    verification_share: float = 0.25
    accept_errors: bool = False
    masked_families: tuple[str, ...] | None = None
    user_list_id: int | None = None


@dataclass(frozen=True, slots=True)
class JobView:
    """A background job.

    Attributes:
        id: Database id.
        kind: ``"calibration"``.
        title: What it does, for a person.
        status: ``queued``, ``running``, ``done``, ``failed``, ``cancelled`` or ``interrupted``.
        progress: 0 to 1.
        message: What it is doing.
        error: One sentence, if it failed.
        result: What it made, e.g. ``{"calibration_id": 3}``.
    """

    id: int
    kind: str
    title: str
    status: str
    progress: float
    message: str
    error: str | None
    result: dict[str, object] | None
