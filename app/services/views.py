"""What the services take and give: frozen data, shared by the pages and the command line.

The pages and the command line import the core's types from here, never from the core itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime

from coft_core.types import FAMILIES, Candidate, Diagnostics, Example, Span, Step

__all__ = [
    "FAMILIES",
    "AuditSettings",
    "AuditView",
    "BinView",
    "BranchView",
    "CalibrationRequest",
    "CalibrationSummary",
    "CalibrationView",
    "Candidate",
    "CoverageView",
    "Diagnostics",
    "Example",
    "JobView",
    "MaskPiece",
    "MaskPreview",
    "ModelView",
    "ParsedPromptSet",
    "RowError",
    "SessionSummary",
    "Span",
    "StartAudit",
    "Step",
    "replace",
]

FAMILY_NAMES: dict[str, str] = {
    "gender": "gender",
    "race": "race and ethnicity",
    "nationality": "nationality",
    "religion": "religion",
    "age": "age",
    "disability": "disability",
    "orientation": "sexual orientation",
    "socioeconomic": "socioeconomic status",
    "family": "family role",
    "name": "first name",
    "other": "other",
}
"""Attribute families as a reviewer reads them."""


@dataclass(frozen=True, slots=True)
class ModelView:
    """A loaded model as the pages name it.

    Attributes:
        name: Id or folder as given.
        label: Short label with size, e.g. ``"demo · 3.6M, embedded"``.
        note: Where and how it runs, e.g. ``"Runs on this computer, float32"``.
        context_length: Longest sequence in tokens.
        sentinel: The sentinel that masking uses by default.
    """

    name: str
    label: str
    note: str
    context_length: int
    sentinel: str


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """Everything a reviewer can set for one audit; the defaults equal those of the embedded calibration.

    Attributes:
        model: ``"demo"``, a hub id or a folder.
        policy: ``"coft"`` or ``"vanilla"``.
        lam: Fusion weight.
        alpha: Risk level at which the calibration is read.
        calibration_id: Calibration run; None audits without certificate.
        temperature: Sampling temperature.
        top_p: Nucleus mass; 1 is off.
        top_k: Tokens kept; 0 is off.
        greedy: Take the likeliest token instead of drawing.
        seed: Seed of the keyed draws.
        max_new_tokens: Steps at most.
        sentinel: Sentinel text; None takes the model's own.
        proceed_uncertified: Go on although the calibration belongs to another policy.
    """

    model: str = "demo"
    policy: str = "coft"
    lam: float = 0.6
    alpha: float = 0.1
    calibration_id: int | None = None
    temperature: float = 1.0
    top_p: float = 0.9
    top_k: int = 0
    greedy: bool = False
    seed: int = 0
    max_new_tokens: int = 64
    sentinel: str | None = None
    proceed_uncertified: bool = False


@dataclass(frozen=True, slots=True)
class StartAudit:
    """A request to begin an audit.

    Attributes:
        prompt: The reviewer's text, exactly as typed.
        settings: The settings.
        spans: Sensitive spans, kept ones included; None lets the detector find them.
        name: Session name; None makes one from the prompt.
    """

    prompt: str
    settings: AuditSettings = field(default_factory=AuditSettings)
    spans: tuple[Span, ...] | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class MaskPiece:
    """A run of the masked prompt: text as it stays, or one sentinel per masked token."""

    text: str
    masked: bool


@dataclass(frozen=True, slots=True)
class MaskPreview:
    """The prompt as the masked branch reads it.

    Attributes:
        pieces: Text and sentinels in reading order.
        token_count: Tokens of the prompt, equal in both branches.
        masked_count: How many of them are the sentinel.
        warnings: Sentences to show, e.g. that both branches are equal because nothing is masked.
    """

    pieces: tuple[MaskPiece, ...]
    token_count: int
    masked_count: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BranchView:
    """One branch of the chain; ``fork_step`` (0-based) is where it departs from its parent."""

    id: int
    parent_id: int | None
    fork_step: int | None
    token: str | None
    name: str


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
class AuditView:
    """A session as a page shows it: one branch's whole chain, and the tree around it.

    Attributes:
        session_id: Database id.
        name: Session name.
        prompt: The reviewer's text.
        spans: All spans, kept ones included.
        settings: The settings it was started with.
        model: The model's label.
        preview: The masked prompt.
        branch_id: The shown branch.
        branches: All branches of the session, oldest first.
        steps: The shown chain from its first step, ancestors' steps included.
        finished: None, or ``"length"``, ``"end"`` or ``"context"``.
        certificate: ``"certified"`` or ``"uncertified: ..."``.
        fingerprint_digest: Digest of the policy's fingerprint.
        calibration: The calibration, if one is used and still stored.
        bins: Its bins at the session's alpha.
        warnings: Sentences to show with the session.
        created_at: Start.
        updated_at: Last change.
    """

    session_id: int
    name: str
    prompt: str
    spans: tuple[Span, ...]
    settings: AuditSettings
    model: str
    preview: MaskPreview
    branch_id: int
    branches: tuple[BranchView, ...]
    steps: tuple[Step, ...]
    finished: str | None
    certificate: str
    fingerprint_digest: str
    calibration: CalibrationSummary | None
    bins: tuple[BinView, ...]
    warnings: tuple[str, ...]
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A past audit in a list."""

    id: int
    name: str
    prompt: str
    model: str
    policy: str
    steps: int
    certificate: str
    created_at: datetime
    updated_at: datetime


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
