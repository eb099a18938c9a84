"""Audits as the services take and give them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from app.services.views.calibrations import BinView, CalibrationSummary
from app.services.views.computing import Computation
from coft_core.conformal.chain import ChainCertificate
from coft_core.conformal.drift import DriftReport
from coft_core.numeric_noise import NumericNoise, noise_of
from coft_core.types import Span, Step

ParameterValue = bool | int | float | str | tuple[str, ...]
"""A value of a policy's own parameter."""

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
        sentinel: Which token stands for masked ones unless another is named, and why; a sentence.
        details: How its keys and values are kept, in words.
    """

    name: str
    label: str
    note: str
    context_length: int
    sentinel: str
    details: str = ""


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """Everything a reviewer can set for one audit; the defaults equal those of the embedded calibration.

    Attributes:
        model: ``"demo"``, a hub id or a folder.
        policy: Name of a policy of ``app.services.known_policies``.
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
        mask_layout: ``joint`` (one masked branch) or ``factorized`` (one for each attribute family).
        mask_mode: ``hard`` (sentinels) or ``soft`` (a neutral hint).
        mask_hint: Hint of the soft mask; None takes the usual one.
        whitelist: Terms that the policy never masks.
        group: Group whose own thresholds are used, of a calibration by group; None takes all contexts together.
        parameters: The policy's own parameters by name; those that are left out have their defaults.
        prompt_format: ``auto`` (the model's chat template if it has one), ``chat`` or ``plain`` (the text alone).
        chat_date: Local day, or day and time, as of which a chat template that prints the date is rendered, such as
            ``"2026-11-21"``; None takes the present.
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
    mask_layout: str = "joint"
    mask_mode: str = "hard"
    mask_hint: str | None = None
    whitelist: tuple[str, ...] = ()
    group: str | None = None
    parameters: tuple[tuple[str, ParameterValue], ...] = ()
    prompt_format: str = "auto"
    chat_date: str | None = None


@dataclass(frozen=True, slots=True)
class BatchPlace:
    """Where a session stands in a batch: the batch and the line of its prompt set."""

    batch_id: int
    line: int


@dataclass(frozen=True, slots=True)
class StartAudit:
    """A request to begin an audit.

    Attributes:
        prompt: The reviewer's text, exactly as typed.
        settings: The settings.
        spans: Sensitive spans, kept and suggested ones included; None lets the detector find them.
        name: Session name; None makes one from the prompt.
        batch: Its place in a batch, which holds one session; None for a session of its own.
        repeats: A session of the same prompt whose model read it as this one's is to read it, to the token; None
            renders the prompt anew.
    """

    prompt: str
    settings: AuditSettings = field(default_factory=AuditSettings)
    spans: tuple[Span, ...] | None = None
    name: str | None = None
    batch: BatchPlace | None = None
    repeats: int | None = None


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
        masked_count: How many of the prompt's are masked; of a text that a chat template prints several times, in its
            first copy.
        warnings: Sentences to show, e.g. that both branches are equal because nothing is masked.
        branches: Branches that the policy runs for this prompt, factual first: ``factual`` and ``masked``, or with
            factorized masks the attribute families.
        sentinel: Which token stands for masked ones and why, in words; empty where none does, and for sessions stored
            without it.
    """

    pieces: tuple[MaskPiece, ...]
    token_count: int
    masked_count: int
    warnings: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    sentinel: str = ""


@dataclass(frozen=True, slots=True)
class BranchView:
    """One branch of the tree.

    Attributes:
        id: Its id.
        parent_id: The branch that it was forked from; None for the root.
        fork_step: Step (0-based) at which it departs; None for the root.
        token: The forced token that it departs with; None for the root.
        name: What the reviewer calls it; the token until she renames it.
        length: Steps of its chain, those before the fork included.
        finished: None while it can go on, or ``"length"``, ``"end"`` or ``"context"``.
    """

    id: int
    parent_id: int | None
    fork_step: int | None
    token: str | None
    name: str
    length: int = 0
    finished: str | None = None


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
        chain: The certificate of the chain so far as a whole, and the union bound beside it; None without steps,
            without calibration, or with factorized masks.
        drift: What the audits so far say against the calibration; None without calibration.
        noise: Bound on the numeric noise of the model at the session's temperature.
        computed: How its steps were computed, every way that was used; empty before the first step, and for sessions
            stored without it.
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
    chain: ChainCertificate | None = None
    drift: DriftReport | None = None
    noise: NumericNoise = field(default_factory=lambda: noise_of(None))
    computed: tuple[Computation, ...] = ()


@dataclass(frozen=True, slots=True)
class ChainProgress:
    """What each further step changes of a chain as a whole.

    Attributes:
        finished: None, or ``"length"``, ``"end"`` or ``"context"``.
        chain: As in :class:`AuditView`.
        noise: The same.
        computed: The same.
    """

    finished: str | None
    chain: ChainCertificate | None = None
    noise: NumericNoise = field(default_factory=lambda: noise_of(None))
    computed: tuple[Computation, ...] = ()


@dataclass(frozen=True, slots=True)
class SettingsFit:
    """How the settings of an audit and the calibration that they name agree; found without the model.

    Attributes:
        differences: (field, value in the calibration, value in the settings) for what differs and the settings decide.
            What only the model's weights can tell is found out when an audit starts.
        notes: Sentences that must be shown with its thresholds.
        adoptable: Whether taking over the calibration's settings would settle a difference.
    """

    differences: tuple[tuple[str, str, str], ...] = ()
    notes: tuple[str, ...] = ()
    adoptable: bool = False


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
