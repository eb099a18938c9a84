"""Audits as the services take and give them."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Literal

from coft_core.conformal.bins import BinEvenness
from coft_core.conformal.certifiable import Certifiable
from coft_core.conformal.chain import ChainCertificate
from coft_core.conformal.drift import DriftReport
from coft_core.conformal.groups import GroupSummary
from coft_core.conformal.informative import silence
from coft_core.conformal.record import Iteration, Reading
from coft_core.conformal.sequence import SequenceThreshold
from coft_core.model.noise import NumericNoise, noise_of
from coft_core.policies.base import Parameter
from coft_core.text.turns import Thinking
from coft_core.types import Span, Step
from db.audits import BatchPlace
from db.chains import BranchOutline
from db.types import JsonObject

CertifiedIn = Literal["nothing", "both", "factual"]
"""In which readings a policy certifies its tokens, and so which calibrations fit it."""


@dataclass(frozen=True, slots=True)
class PolicyInfo:
    """A decoding policy that can be chosen.

    Attributes:
        key: Its name in settings.
        name: Its name on pages.
        about: What it does, in a few words that go on after a comma.
        fuses: Whether lambda matters to it.
        certifies: Whether it reads a calibration, and alpha with it.
        layouts: Mask layouts that it has, the usual one first.
        kind: What it acts on: ``reference``, ``fusion``, ``prompt``, ``steering``, ``constraint`` or ``training``.
        source: Where it was published; empty if nowhere.
        differs: How it differs from what its authors published.
        parameters: Its own parameters, besides the controls that all policies share.
        certified_in: The readings in which it certifies.
    """

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


UntilKind = Literal["fallback", "sensitive", "overruled", "steps"]
"""What a run may be stopped by, beside the end of the chain."""

SENSITIVE = 0.5
"""Absolute log ratio from which pages call a token attribute-sensitive."""


@dataclass(frozen=True, slots=True)
class RunUntil:
    """The step that ends a run: it is the last one written.

    Attributes:
        kind: ``"fallback"``: no token reached the threshold. ``"sensitive"``: the written token's absolute log ratio
            reached ``threshold``. ``"overruled"``: the token that the factual view likes best is not certified.
            ``"steps"``: that many steps were written by this run.
        threshold: Absolute log ratio (nats) for ``"sensitive"``.
        steps: Number of steps for ``"steps"``.
    """

    kind: UntilKind
    threshold: float = SENSITIVE
    steps: int = 20


KINDS_OF_MEMORY = {
    "slots": "preallocated memory",
    "growing": "growing memory",
    "states": "states copied at every step",
}
"""Ways in which a model keeps earlier tokens, in words."""


@dataclass(frozen=True, slots=True)
class KeptMemory:
    """How the keys and values of one model are kept.

    Attributes:
        model: The name under which the policy asks for it; ``"base"`` is the audited one.
        kind: ``"slots"`` (preallocated), ``"growing"``, or ``"states"`` (states copied at every step).
        reason: Why it is not preallocated, as half a sentence; empty where it is.
        held_once: Tokens of the readings' common beginning that are held once; 0 where each reading holds its own.
        joins: Whether steps may share forwards with those of other sessions.
    """

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
    """One way in which steps of a session were computed.

    Attributes:
        dtype: Number type that the model computed in.
        quantization: Form of its weights, ``"none"`` where they are whole.
        steps: Path of its steps: ``"traced"``, ``"CUDA graph"``, or ``"eager"`` with why it is no other. Forwards that
            sessions share are eager on every path.
        memory: How keys and values were kept, the audited model's first.
        numeric_noise: Nats within which log-probabilities of this model agree between such ways.
        temperature: The temperature for which they do; None in sessions of earlier versions, whose bound is that of the
            number type at temperature 1.
    """

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
        evenness: Whether its steps differ from each other; None where they could not be compared.
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
    evenness: BinEvenness | None = None

    @property
    def silence(self) -> str:
        """Why an uninformative bin says nothing; empty for another one."""
        if self.state != "uninformative":
            return ""
        return silence(math.log(self.tau) if self.tau > 0 else -math.inf)


@dataclass(frozen=True, slots=True)
class CoverageView:
    """Empirical coverage on the verification split; ``label`` is ``"All steps"``, a bin's label or a step."""

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
    mask_layout: str = "joint"
    certified_in: CertifiedIn = "both"


@dataclass(frozen=True, slots=True)
class FamilyThresholds:
    """One family's part of a calibration with factorized masks.

    Attributes:
        alpha: Its share of the risk level.
        contexts: Contexts in which it was masked.
        tau: Threshold of its first bin as a probability; 0 certifies everything.
        state: What that threshold rests on.
    """

    family: str
    alpha: float
    contexts: int
    tau: float
    state: str


@dataclass(frozen=True, slots=True)
class CalibrationView:
    """A calibration run, read at one alpha.

    Attributes:
        coverage: Overall row first, then one row per bin that has verification data.
        tokens: Number of stored values.
        fingerprint: Field and value, in order.
        log_values: Natural log support of the true tokens by bin label, for histograms.
        smallest_alpha: Smallest risk levels that the contexts support.
        sequence: Threshold for whole chains; None with factorized masks.
        sequence_coverage: Whole chains of the verification split that it keeps: all that it speaks of first, then by
            length; empty where nothing was measured.
        notes: Sentences that must be shown with the thresholds.
        groups: How much is known of each group; empty unless calibrated by group.
        group: The group whose thresholds these are; None is all contexts together.
        families: With factorized masks, each family's part; empty with one masked branch.
        family: With factorized masks, the family whose bins these are.
        effective_contexts: Effective number of contexts under shift weights; None without weights.
        iterations: Rounds of a rollout calibration, in order.
        coverage_by_step: One row per step that has verification data.
        has_chains: Whether it keeps chains of the policy itself, against which drift can be measured.
    """

    summary: CalibrationSummary
    alpha: float
    bins: tuple[BinView, ...]
    coverage: tuple[CoverageView, ...]
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
    sequence_coverage: tuple[CoverageView, ...] = ()
    coverage_by_step: tuple[CoverageView, ...] = ()

    @property
    def usable(self) -> tuple[BinView, ...]:
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
    """A loaded model as the pages name it.

    Attributes:
        name: Id or folder as given.
        label: Short label with size, e.g. ``"demo · 3.6M, embedded"``.
        note: Where it runs, e.g. ``"Ready on this computer"``.
        context_length: Longest sequence in tokens.
        sentinel: Which token stands for masked ones unless another is named, and why; a sentence.
        details: How it computes and keeps its keys and values, in words.
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
        policy: Name of a policy of ``app.shared.policies``.
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
        system_prompt: Put before every prompt that has no system prompt of its own; None puts nothing there.
        thinking: Whether the model is asked to think before it answers: ``auto`` (as its chat template has it), ``on``
            or ``off``.
        prefill: What the answer begins with, where a prompt says nothing else; None is nothing.
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
    system_prompt: str | None = None
    thinking: Thinking = "auto"
    prefill: str | None = None


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
class PartFigures:
    """One part of a chain.

    Attributes:
        steps: Steps that belong to it.
        strongest: Its step (0-based) with the largest absolute log ratio; None where it has no step.
        largest_log_ratio: That log ratio, in nats.
    """

    steps: int
    strongest: int | None
    largest_log_ratio: float | None


@dataclass(frozen=True, slots=True)
class ThinkingView:
    """What a chain's thinking and its answer are.

    Attributes:
        ranges: First and last step (0-based, inclusive) of each run of thinking.
        thinking: The thinking.
        answer: The answer.
        ended: Whether the thinking ended, so that there can be an answer.
    """

    ranges: tuple[tuple[int, int], ...]
    thinking: PartFigures
    answer: PartFigures
    ended: bool


@dataclass(frozen=True, slots=True)
class AuditView:
    """A session as a page shows it: one branch's whole chain, and the tree around it.

    Attributes:
        spans: All spans, kept and suggested ones included.
        model: The model's label.
        branch_id: The shown branch.
        branches: All branches of the session, oldest first.
        steps: The shown chain from its first step, ancestors' steps included.
        finished: None, or ``"length"``, ``"end"`` or ``"context"``.
        certificate: ``"certified"`` or ``"uncertified: ..."``.
        calibration: The calibration, if one is used and still stored.
        user_list: Name of the word list that it was started with; empty if none.
        bins: The calibration's bins at the session's alpha.
        warnings: Sentences to show with the session.
        chain: The certificate of the chain so far as a whole, and the union bound beside it; None without steps,
            without calibration, or with factorized masks.
        drift: What the audits so far say against the calibration; None without calibration.
        noise: Bound on the numeric noise of the model at the session's temperature.
        computed: How its steps were computed, every way that was used; empty before the first step, and for sessions
            stored without it.
        thinking: What of the chain is thinking and what the answer; None where the model marks no thinking.
    """

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
    thinking: ThinkingView | None = None


@dataclass(frozen=True, slots=True)
class ChainProgress:
    """What each further step changes of a chain as a whole, and the prompt's masked words; see :class:`AuditView`."""

    finished: str | None
    certificate: str = ""
    chain: ChainCertificate | None = None
    noise: NumericNoise = field(default_factory=lambda: noise_of(None))
    computed: tuple[Computation, ...] = ()
    masked: tuple[str, ...] = ()
    thinking: ThinkingView | None = None


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


def preview_to_json(preview: MaskPreview) -> JsonObject:
    """A preview as JSON, so that a session reopens without its model."""
    return {**asdict(preview), "pieces": [[piece.text, piece.masked] for piece in preview.pieces]}


def preview_from_json(data: JsonObject) -> MaskPreview:
    """The inverse of :func:`preview_to_json`."""
    return MaskPreview(
        pieces=tuple(MaskPiece(text, bool(masked)) for text, masked in data["pieces"]),
        token_count=int(data["token_count"]),
        masked_count=int(data["masked_count"]),
        warnings=tuple(data["warnings"]),
        branches=tuple(data.get("branches", ())),
        sentinel=str(data.get("sentinel", "")),
    )


def settings_from_json(data: JsonObject) -> AuditSettings:
    """Settings as stored with a session."""
    families = data.get("masked_families")
    return AuditSettings(
        **{
            **data,
            "masked_families": None if families is None else tuple(families),
            "whitelist": tuple(data.get("whitelist", ())),
            "parameters": tuple((name, _value(value)) for name, value in data.get("parameters", ())),
        }
    )


def _value(value: ParameterValue | list[str]) -> ParameterValue:
    """JSON knows lists alone; settings hold tuples."""
    return tuple(value) if isinstance(value, list) else value


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
        source: ``reference`` (the prompts' own continuations) or ``rollout`` (what the policy itself writes).
        draws: Draws of ``one_per_context`` that are averaged.
        by_group: Keep the rows' groups, so that each group can have thresholds of its own.
        mask_layout: ``joint`` (one masked branch) or ``factorized`` (one for each attribute family). A single
            attribute is ``joint`` with one entry in ``masked_families``.
        alpha_by_family: With factorized masks, (family, its share of alpha); None shares alpha out equally.
        mask_mode: ``hard`` (sentinels) or ``soft`` (a neutral hint).
        mask_hint: Hint of the soft mask; None takes the usual one.
        whitelist: Terms that are never masked; part of the policy.
        bin_width: Steps that share a threshold, for widening and even bins.
        max_position: Steps beyond are tied to the last bin.
        max_new_tokens: Steps of a rollout, or of a recorded chain, at most.
        tolerance: Largest change of any bin's tau at which rollouts count as settled.
        max_iterations: Rounds of rollouts at most.
        record_chains: Also record what the calibrated policy writes on these prompts, so that drift can be measured.
        rho: Bound on the density ratio of the prompts that will be audited; 1 assumes that they are like these.
        weighting: ``none``, ``column`` (the rows' own weights) or ``estimated`` (from ``deployment``).
        deployment: Prompts like those that will be audited; needed to estimate weights.
        certified_in: ``both`` readings, as COFT certifies, or the ``factual`` one alone, for methods of one branch;
            lambda and masks have no say in the latter.
        bin_spacing: ``finest``: a threshold for each step that enough contexts reach; ``widening``: steps 1, 2, 3-4,
            5-8, then bins of ``bin_width``; ``even``: all of ``bin_width``, as in the paper.
        prompt_format: As in an audit's settings: ``auto``, ``chat`` or ``plain``.
        chat_date: As in an audit's settings; None takes the moment at which the calibration is asked for.
        system_prompt: As in an audit's settings.
        thinking: As in an audit's settings.
        prefill: As in an audit's settings.
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
    source: str = "reference"
    draws: int = 1
    by_group: bool = False
    mask_layout: str = "joint"
    alpha_by_family: tuple[tuple[str, float], ...] | None = None
    mask_mode: str = "hard"
    mask_hint: str | None = None
    whitelist: tuple[str, ...] = ()
    bin_width: int = 8
    max_position: int = 256
    max_new_tokens: int = 64
    tolerance: float = 0.01
    max_iterations: int = 4
    record_chains: bool = False
    rho: float = 1.0
    weighting: str = "none"
    deployment: tuple[str, ...] = ()
    certified_in: str = "both"
    bin_spacing: str = "finest"
    prompt_format: str = "auto"
    chat_date: str | None = None
    system_prompt: str | None = None
    thinking: Thinking = "auto"
    prefill: str | None = None


@dataclass(frozen=True, slots=True)
class ReadingRequest:
    """How to read a finished calibration, without the model; what is None stays as calibrated.

    Attributes:
        alpha: Risk level.
        estimator: Threshold estimator.
        bin_width: Steps per position bin.
        max_position: Steps with bins of their own.
        draws: Draws of ``one_per_context`` that are averaged.
        rho: Density-ratio bound; it takes the place of weights.
        group: The group whose own thresholds are read; None reads all contexts together.
        family: With factorized masks, the family whose bins are shown; None shows the first.
        alpha_by_family: With factorized masks, (family, its share of alpha).
        bin_spacing: ``finest``, ``widening`` or ``even`` position bins.
    """

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
