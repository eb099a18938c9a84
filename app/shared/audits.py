"""Audits as the services take and give them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Literal, NamedTuple

import typer
from pydantic import TypeAdapter

from app.shared.decoding import DecodingSettings, menu, setting, settings_of, slider
from coft_core.conformal.bins import Bin
from coft_core.conformal.chain import ChainCertificate
from coft_core.conformal.coverage import CoverageRow
from coft_core.conformal.drift import DriftReport
from coft_core.conformal.groups import GroupSummary
from coft_core.conformal.part import Certifiable, Iteration, Reading
from coft_core.conformal.sequence import SequenceThreshold
from coft_core.controls import NEUTRAL
from coft_core.model.noise import NumericNoise, noise_of
from coft_core.policies.base import Parameter
from coft_core.types import Span, Step
from db.audits import BatchPlace
from db.chains import BranchOutline
from db.types import JsonObject

CertifiedIn = Literal["nothing", "both", "factual"]
"""In which readings a policy certifies its tokens, and so which calibrations fit it."""


@dataclass(frozen=True, slots=True)
class PolicyInfo:
    """A decoding policy that can be chosen."""

    key: str
    name: str
    about: str
    fuses: bool
    certifies: bool
    layouts: tuple[str, ...]
    kind: str = "fusion"
    source: str = ""
    parameters: tuple[Parameter, ...] = ()
    certified_in: CertifiedIn = "nothing"
    differs: str = ""


SENSITIVE = 0.5
"""Absolute log ratio from which pages call a token attribute-sensitive."""


KINDS_OF_MEMORY = {
    "slots": "preallocated memory",
    "growing": "growing memory",
    "states": "states copied at every step",
    "engine": "by the engine",
}
"""Ways in which a model keeps earlier tokens, in words."""


@dataclass(frozen=True, slots=True)
class KeptMemory:
    """How the keys and values of one model are kept."""

    model: str
    kind: str
    reason: str
    held_once: int
    joins: bool

    @property
    def text(self) -> str:
        """In words: ``"preallocated memory, 812 tokens held once, may share forwards with other sessions"``."""
        why = f" ({self.reason})" if self.reason else ""
        parts = [f"{KINDS_OF_MEMORY[self.kind]}{why}"]
        if self.held_once:
            parts.append(f"{self.held_once:,} tokens held once")
        parts.append("may share forwards with other sessions" if self.joins else "forwards of its own")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Computation:
    """One way in which steps of a session were computed."""

    dtype: str
    quantization: str
    steps: str
    memory: tuple[KeptMemory, ...]
    numeric_noise: float
    temperature: float | None = None

    @property
    def sentence(self) -> str:
        """In words: ``"float32, steps traced; preallocated memory, forwards of its own"``."""
        weights = "" if self.quantization == "none" else f" with {self.quantization} weights"
        parts = [item.text if not place else f"{item.model}: {item.text}" for place, item in enumerate(self.memory)]
        return "; ".join([f"{self.dtype}{weights}, steps {self.steps}", *parts])


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
    mask_layout: str = "joint"
    certified_in: CertifiedIn = "both"


@dataclass(frozen=True, slots=True)
class FamilyThresholds:
    """One family's part of a calibration with factorized masks."""

    family: str
    alpha: float
    contexts: int
    tau: float
    state: str


@dataclass(frozen=True, slots=True)
class CalibrationView:
    """A calibration run, read at one alpha."""

    summary: CalibrationSummary
    alpha: float
    bins: tuple[Bin, ...]
    coverage: tuple[CoverageRow, ...]
    tokens: int
    fingerprint: tuple[tuple[str, str], ...]
    fingerprint_digest: str
    log_values: dict[str, tuple[float, ...]]
    reading: Reading
    smallest_alpha: Certifiable
    sequence: SequenceThreshold | None
    notes: tuple[str, ...] = ()
    groups: tuple[GroupSummary, ...] = ()
    group: str | None = None
    families: tuple[FamilyThresholds, ...] = ()
    family: str | None = None
    effective_contexts: float | None = None
    iterations: tuple[Iteration, ...] = ()
    has_chains: bool = False
    sequence_coverage: tuple[CoverageRow, ...] = ()
    coverage_by_step: tuple[CoverageRow, ...] = ()

    @property
    def usable(self) -> tuple[Bin, ...]:
        """Bins whose own threshold says something."""
        return tuple(item for item in self.bins if item.state == "calibrated")


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
    """A loaded model as the pages name it."""

    name: str
    label: str
    note: str
    context_length: int
    sentinel: str
    details: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings(DecodingSettings):
    """Everything that a reviewer can set for one audit; policies declare their own parameters."""

    policy: str = setting("coft")
    calibration_id: int | None = setting(None)
    greedy: bool = setting(
        False, "Greedy: take the likeliest token", help="take the likeliest certified token", fold="sampling",
        control="Checkbox", calibrated=False,
    )  # fmt: skip
    shared_noise: bool = setting(
        False, "Same noise in every prompt", help="each token has the same noise in every prompt", fold="sampling",
        control="Checkbox", calibrated=False, hint="With one seed, the texts of two prompts then part only where "
        "the model treats the prompts differently. Always on in Batches, What if someone else? and Many draws.",
    )  # fmt: skip
    proceed_uncertified: bool = setting(False, help="use a calibration of another policy")
    controls: int = setting(
        NEUTRAL, "Comparable words", help="neutral words that each marked word is compared with; 0 compares with none",
        fold="length", calibrated=False, **slider(0, 99, 1),
        hint="Each effect is compared with what so many neutral words do in the same place; 0 compares with none.",
    )  # fmt: skip
    group: str | None = setting(None, help="group whose own thresholds are used (default: all contexts together)")
    parameters: tuple[tuple[str, ParameterValue], ...] = setting(())


@dataclass(frozen=True, slots=True)
class StartAudit:
    """A request to begin an audit."""

    prompt: str
    settings: AuditSettings = field(default_factory=AuditSettings)
    spans: tuple[Span, ...] | None = None
    name: str | None = None
    batch: BatchPlace | None = None
    repeats: int | None = None


class MaskPiece(NamedTuple):
    """A run of the masked prompt: text as it stays, or one sentinel per masked token."""

    text: str
    masked: bool


@dataclass(frozen=True, slots=True)
class MaskPreview:
    """The prompt as the masked branch reads it."""

    pieces: tuple[MaskPiece, ...]
    token_count: int
    masked_count: int
    warnings: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    sentinel: str = ""


@dataclass(frozen=True, slots=True)
class PartFigures:
    """One part of a chain."""

    steps: int
    strongest: int | None
    largest_log_ratio: float | None


@dataclass(frozen=True, slots=True)
class ThinkingView:
    """What a chain's thinking and its answer are."""

    ranges: tuple[tuple[int, int], ...]
    thinking: PartFigures
    answer: PartFigures
    ended: bool


@dataclass(frozen=True, slots=True)
class ChainProgress:
    """What each further step changes of a chain as a whole, and the prompt's masked words."""

    finished: str | None
    certificate: str = ""
    chain: ChainCertificate | None = None
    noise: NumericNoise = field(default_factory=lambda: noise_of(None))
    computed: tuple[Computation, ...] = ()
    masked: tuple[str, ...] = ()
    thinking: ThinkingView | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditView(ChainProgress):
    """A session as a page shows it: one branch's whole chain, and the tree around it."""

    session_id: int
    name: str
    prompt: str
    spans: tuple[Span, ...]
    settings: AuditSettings
    model: str
    preview: MaskPreview
    branch_id: int
    branches: tuple[BranchOutline, ...]
    steps: tuple[Step, ...]
    fingerprint_digest: str
    calibration: CalibrationSummary | None
    user_list: str
    bins: tuple[Bin, ...]
    warnings: tuple[str, ...]
    created_at: datetime
    updated_at: datetime
    drift: DriftReport | None = None


@dataclass(frozen=True, slots=True)
class SettingsFit:
    """How the settings of an audit and the calibration that they name agree; found without the model."""

    differences: tuple[tuple[str, str, str], ...] = ()
    notes: tuple[str, ...] = ()
    adoptable: bool = False


_PREVIEW, _SETTINGS = TypeAdapter(MaskPreview), TypeAdapter(AuditSettings)


def preview_from_json(data: JsonObject) -> MaskPreview:
    """A preview as it is stored with a session, which reopens without its model."""
    return _PREVIEW.validate_python(data)


def settings_from_json(data: JsonObject) -> AuditSettings:
    """Settings as stored with a session."""
    if unknown := data.keys() - {each.name for each in fields(AuditSettings)}:
        raise TypeError(f"there is no setting {', '.join(sorted(unknown))}")
    return _SETTINGS.validate_python(data)


@dataclass(frozen=True, slots=True)
class CalibrationRequest(DecodingSettings):
    """A request to calibrate on a parsed prompt set."""

    name: str
    estimator: str = setting(
        "hierarchical", "Estimator", help="how thresholds are estimated",
        **menu(
            hierarchical="hierarchical: all tokens, whole contexts",
            one_per_context="one per context: one token each",
            pooled="pooled: as in the paper, for comparison only",
        ),
    )  # fmt: skip
    verification_share: float = setting(
        0.25, "Share kept apart to check the result", help="share kept apart", **slider(0.1, 0.9, 0.05)
    )
    accept_errors: bool = setting(False, help="go on with the rows that can be used")
    source: str = setting(
        "reference", "Contexts come from", help="the prompts' own references, or what the policy itself writes",
        typed=Literal["reference", "rollout"],
    )  # fmt: skip
    draws: int = setting(
        1, "Draws that are averaged", help="draws of one_per_context that are averaged", **slider(1, 200, 1)
    )
    by_group: bool = setting(
        False, "Thresholds for each group of its own", help="keep the rows' groups, for thresholds by group",
        control="Checkbox",
    )  # fmt: skip
    alpha_by_family: tuple[tuple[str, float], ...] | None = setting(
        None, help="with --mask factorized, each family's share of alpha, e.g. gender=0.05,race=0.05 (default: equal "
        "shares)", typed=str | None, option=typer.Option("--alpha-by-family", metavar="FAMILY=ALPHA,..."),
    )  # fmt: skip
    bin_width: int = setting(
        8, "Steps of a bin", help="steps that share a threshold, for widening and even bins", **slider(1, 64, 1)
    )
    max_position: int = setting(
        256, "Own thresholds up to step", help="steps beyond belong to the last bin", **slider(8, 1024, 8)
    )
    tolerance: float = setting(
        0.01, "Settled within", help="change of tau at which rollouts count as settled", **slider(0.001, 0.1, 0.001)
    )
    max_iterations: int = setting(
        4, "Rounds at most", help="rounds of rollouts at most", option=typer.Option("--rounds"), **slider(2, 12, 1)
    )
    record_chains: bool = setting(
        False, "Record texts, to notice drift later",
        help="also record what the policy writes, so that drift can be measured", control="Checkbox",
    )  # fmt: skip
    rho: float = setting(1.0, help="bound on how much likelier a prompt can be in use")
    weighting: str = "none"
    deployment: tuple[str, ...] = ()
    certified_in: str = setting(
        "both", help="both readings, or only the factual one, for methods that certify in one branch",
        typed=Literal["both", "factual"], option=typer.Option("--certify-in"),
    )  # fmt: skip
    bin_spacing: str = setting(
        "finest", "Steps that share a threshold",
        help="finest: each step that enough contexts reach; widening: steps 1, 2, 3-4, 5-8, then bins of --bin-width; "
        "even: bins of --bin-width throughout, as in the paper",
        **menu(
            finest="none: each step has its own, as far as the contexts allow",
            widening="1, 2, 3–4, 5–8, then wider: the first steps differ most",
            even="the same number throughout, as in the paper",
        ),
    )  # fmt: skip


CALIBRATING = settings_of(CalibrationRequest)
"""What is said of the settings of a calibration."""


@dataclass(frozen=True, slots=True)
class ReadingRequest:
    """How to read a finished calibration, without the model; what is None stays as calibrated."""

    alpha: float | None = None
    estimator: str | None = None
    bin_width: int | None = None
    max_position: int | None = None
    draws: int | None = None
    rho: float | None = None
    group: str | None = None
    family: str | None = None
    alpha_by_family: tuple[tuple[str, float], ...] | None = None
    bin_spacing: str | None = None
