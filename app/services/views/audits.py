"""Audits as the services take and give them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from app.services.views.calibrations import BinView, CalibrationSummary
from coft_core.types import Span, Step

FAMILY_NAMES: dict[str, str] = {
    "gender": "gender",
    "race": "race and ethnicity",
    "nationality": "nationality",
    "religion": "religion",
    "age": "age",
    "disability": "disability",
    "appearance": "appearance",
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
        masked_families: Families whose detected spans are masked, spans of the others being suggested; None takes
            the program's own choice, which is all but the proxies unless it is set otherwise.
        user_list_id: Word list whose terms win over what is detected; None uses none.
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
    masked_families: tuple[str, ...] | None = None
    user_list_id: int | None = None


@dataclass(frozen=True, slots=True)
class StartAudit:
    """A request to begin an audit.

    Attributes:
        prompt: The reviewer's text, exactly as typed.
        settings: The settings.
        spans: Sensitive spans, kept and suggested ones included; None lets the detector find them.
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
class AuditView:
    """A session as a page shows it: one branch's whole chain, and the tree around it.

    Attributes:
        session_id: Database id.
        name: Session name.
        prompt: The reviewer's text.
        spans: All spans, kept and suggested ones included.
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
        user_list: Name of the word list that it was started with; empty if none.
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
    user_list: str
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
