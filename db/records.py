"""Records of audit sessions, their branches and their verdict logs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

JsonObject = dict[str, Any]
"""A JSON object with string keys; numbers in it must be finite."""


@dataclass(frozen=True, slots=True)
class SpanRecord:
    """A sensitive character span, offsets into the text as typed.

    Attributes:
        start: First character, 0-based.
        end: One past the last character.
        category: Attribute family.
        source: Who found it.
        detail: What exactly matched.
        kept: True for a whitelisted span, which is never masked.
        score: How sure its source is, 0 to 1; None where there is nothing to say.
        suggested: True for a span that is shown and not masked.
    """

    start: int
    end: int
    category: str = "other"
    source: str = "user"
    detail: str = ""
    kept: bool = False
    score: float | None = None
    suggested: bool = False


@dataclass(frozen=True, slots=True)
class CandidateRecord:
    """One row of a step's candidate table: a token's log-probabilities in the three views, and who refuses it."""

    token_id: int
    token: str
    log_p_factual: float
    log_p_masked: float
    log_p_fused: float
    certified: bool
    refused_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FamilyStepRecord:
    """What one attribute family's masked branch says of a step's token; logarithms may be infinite."""

    family: str
    log_p_masked: float
    log_joint: float
    log_tau: float
    certified: bool
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One step of a chain; the last three fields are set by the store.

    Attributes:
        index: Position in the continuation, 0-based.
        token_id: The emitted token.
        token: Its text.
        log_p_factual: Its log-probability in the factual branch.
        log_p_masked: In the masked branch.
        log_p_fused: After fusion.
        log_tau: Log-threshold of the step; ``-inf`` certifies everything.
        certified: Whether the emitted token is in the certified set.
        set_size: Size of that set.
        certified_mass: Its fused probability.
        fallback: Whether the set was empty.
        forced: Whether a person chose the token.
        policy_token_id: The token that the policy would have emitted.
        policy_token: Its text.
        state: What the threshold rests on.
        entropy_factual: Entropy of the factual distribution, nats.
        entropy_masked: Entropy of the masked distribution, nats.
        entropy_fused: Entropy of the fused distribution, nats.
        kl_fused_masked: KL divergence of fused from masked, nats.
        tv_on_set: Total variation of the conditionals on the set; None if the set is empty.
        tv_bound: Its bound; None where there is none.
        sensitivity: Factual minus masked logit of the emitted token.
        log_ratio: Factual minus masked log-probability of it.
        margin: Its support, in the readings that certify it, minus ``log_tau``; may be infinite.
        kl_fused_factual: KL divergence of fused from factual, nats; may be infinite, None where it was not computed.
        tv_fused_factual: Total variation of fused and factual; None where it was not computed.
        seconds: Time that the model took for it, waiting for the model's turn excluded; None where it was not measured.
        peak_bytes: Most memory that the device held meanwhile; None where it was not measured.
        candidates: Top rows of the three views, in the order given.
        families: With factorized masks, each family's part; empty with one masked branch.
        certified_in: The readings that certify: ``"both"``, or ``"factual"`` alone.
        set_size_low: Least size of the set within numeric noise; None where it was not computed.
        set_size_high: Largest size; None likewise.
        noise: Bound of the noise, nats; None likewise.
        logits: The branches' logits as bytes, if they were kept; None also where they were not asked for.
        id: The row's id; None before it is stored.
        branch_id: The branch whose own step this is; None before it is stored.
        created_at: When it was stored.
    """

    index: int
    token_id: int
    token: str
    log_p_factual: float
    log_p_masked: float
    log_p_fused: float
    log_tau: float
    certified: bool
    set_size: int
    certified_mass: float
    fallback: bool
    forced: bool
    policy_token_id: int
    policy_token: str
    state: str
    entropy_factual: float
    entropy_masked: float
    entropy_fused: float
    kl_fused_masked: float
    tv_on_set: float | None
    tv_bound: float | None
    sensitivity: float
    log_ratio: float
    margin: float
    kl_fused_factual: float | None = None
    tv_fused_factual: float | None = None
    seconds: float | None = None
    peak_bytes: int | None = None
    candidates: tuple[CandidateRecord, ...] = ()
    families: tuple[FamilyStepRecord, ...] = ()
    certified_in: str = "both"
    set_size_low: int | None = None
    set_size_high: int | None = None
    noise: float | None = None
    logits: bytes | None = field(default=None, repr=False)
    id: int | None = None
    branch_id: int | None = None
    created_at: datetime | None = None


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


FORMAT = 1
"""Version of what goes into a digest; it never changes for entries that are written."""

FIRST = "0" * 64
"""Stands for the digest before the first entry."""

LogContent = Mapping[str, str | int | bool | None]
"""What an entry says, in JSON's types."""


@dataclass(frozen=True, slots=True)
class LogBreak:
    """The first place at which a log does not hold together.

    Attributes:
        entry: Number of the entry, 1-based.
        reason: What is wrong with it, one sentence.
    """

    entry: int
    reason: str


def entry_digest(content: LogContent, previous: str) -> str:
    """Digest of an entry.

    Args:
        content: What the entry says.
        previous: Digest of the entry before it; :data:`FIRST` for the first one.

    Returns:
        64 hexadecimal digits.
    """
    text = json.dumps(
        {**content, "format": FORMAT, "previous": previous}, sort_keys=True, ensure_ascii=True, separators=(",", ":")
    )
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def first_break(entries: Sequence[tuple[LogContent, str, str]]) -> LogBreak | None:
    """The first broken link of a log; None if it is whole.

    Args:
        entries: Content, digest of the entry before and own digest of each entry, oldest first. The content's
            ``entry`` is its number, 1-based.
    """
    last = FIRST
    for number, (content, previous, digest) in enumerate(entries, 1):
        if content["entry"] != number:
            return LogBreak(number, f"Entry {number} is missing: entry {content['entry']} stands in its place.")
        if previous != last:
            return LogBreak(number, f"Entry {number} does not follow the entry before it: one of them was replaced.")
        if entry_digest(content, previous) != digest:
            return LogBreak(number, f"Entry {number} was changed after it was written: its digest does not fit.")
        last = digest
    return None


Verdict = Literal["fair", "unfair", "unclear"]
"""What a reviewer may say of a session, branch, span of steps or step."""

LogKind = Literal["verdict", "adjudication", "review_started", "review_finished"]
"""Kinds of entries of a verdict log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFields:
    """What the caller says of an audit session.

    Attributes:
        name: The reviewer's name for it.
        prompt: Her text, exactly as typed.
        model: Model id.
        model_revision: Its revision.
        policy: Policy name.
        policy_settings: All settings of the policy.
        lam: Fusion weight; None where the policy has none.
        alpha: Miscoverage level; None where the policy has none.
        temperature: Sampling temperature.
        top_p: Nucleus mass; 1 is off.
        top_k: Number of tokens kept; 0 is off.
        greedy: True for argmax decoding.
        seed: Seed of the keyed draws, a signed 64-bit integer.
        max_new_tokens: Longest continuation.
        calibration_id: The calibration used; the store sets it to None when that run is deleted.
        calibration_label: What the calibration was called, kept after its deletion.
        fingerprint: The policy's fingerprint.
        fingerprint_digest: Its digest.
        certificate: Certification status in words.
        warnings: Sentences to show beside the session.
        status: Where the audit stands, in the application's words.
        batch: Its place in a batch; None for a session of its own.
        footprint: Memory that its chains need, as computed when it began; None for sessions that were stored without.
        rendering: How the model read the prompt, to the token; None for sessions that were stored without.
    """

    name: str
    prompt: str
    model: str
    model_revision: str
    policy: str
    policy_settings: JsonObject
    lam: float | None
    alpha: float | None
    temperature: float
    top_p: float
    top_k: int
    greedy: bool
    seed: int
    max_new_tokens: int
    fingerprint: JsonObject
    fingerprint_digest: str
    certificate: str
    calibration_id: int | None = None
    calibration_label: str = ""
    warnings: tuple[str, ...] = ()
    status: str = "open"
    batch: BatchPlaceRecord | None = None
    footprint: JsonObject | None = None
    rendering: JsonObject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord(SessionFields):
    """A stored audit session with its spans, in the order given."""

    id: int
    created_at: datetime
    updated_at: datetime
    active_branch_id: int
    spans: tuple[SpanRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """One row of the list of sessions; ``step_count`` is the length of the active branch's chain."""

    id: int
    name: str
    prompt: str
    model: str
    policy: str
    created_at: datetime
    updated_at: datetime
    step_count: int
    status: str
    certificate: str


@dataclass(frozen=True, slots=True)
class StepSupport:
    """What a step says of how well its token is supported.

    Attributes:
        forced: Whether a person chose the token.
        log_p_masked: Its log-probability in the masked branch.
        log_p_fused: Its log-probability after fusion.
    """

    forced: bool
    log_p_masked: float
    log_p_fused: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBeginning:
    """How a session began on its root branch.

    Attributes:
        session_id: The session.
        prompt: Its prompt.
        alpha: Its risk level; None where the policy has none.
        greedy: Whether it took the likeliest tokens.
        certificate: Its certification status in words.
        group: The group whose thresholds it used; None for all contexts together.
        steps: Its first steps.
    """

    session_id: int
    prompt: str
    alpha: float | None
    greedy: bool
    certificate: str
    group: str | None
    steps: tuple[StepSupport, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchRecord:
    """A branch of a session.

    Attributes:
        id: Its id.
        session_id: Its session.
        parent_id: The branch from which it departs; None for the root.
        fork_step: Index of the first step that is its own; steps before it are its parent's.
        path: Key of its random draws, such as ``"0"`` or ``"0/3:417"``; unique in the session.
        name: What the reviewer calls it.
        created_at: When it was made.
        finished: Why it ended, None while it can go on.
    """

    id: int
    session_id: int
    parent_id: int | None
    fork_step: int | None
    path: str
    name: str
    created_at: datetime
    finished: str | None


@dataclass(frozen=True, slots=True)
class BranchOutlineRecord:
    """A branch without its steps.

    Attributes:
        length: Steps of its chain, its ancestors' part included.
        token: The token that it departs with; None for the root, and for a fork whose step was never stored.
    """

    length: int
    token: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationFields:
    """What the caller says of one entry of a session's verdict log.

    Attributes:
        session_id: The session.
        reviewer: Who says so.
        kind: A verdict, the decision of a disagreement, or the beginning or end of a review.
        branch_id: One of the session's branches; None speaks of the whole session.
        step_index: First step of that branch's chain that is meant, 0-based; None speaks of the whole branch.
        last_step_index: Last step that is meant, inclusive; equals the first for a single token.
        verdict: ``fair``, ``unfair`` or ``unclear``; None withdraws a verdict or gives none.
        note: Free text.
        tag: A short label.
        blind: Whether the reviewer could not see the verdicts of others.
    """

    session_id: int
    reviewer: str = ""
    kind: LogKind = "verdict"
    branch_id: int | None = None
    step_index: int | None = None
    last_step_index: int | None = None
    verdict: Verdict | None = None
    note: str = ""
    tag: str = ""
    blind: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationRecord(AnnotationFields):
    """A stored entry of a session's verdict log.

    Attributes:
        id: Its id.
        branch_path: Path of its branch; None where it has none.
        entry: Its number in the session's log, 1-based.
        created_at: When it was written.
        previous: Digest of the entry before it.
        digest: Its own digest; see :mod:`db.records`.
    """

    id: int
    branch_path: str | None
    entry: int
    created_at: datetime
    previous: str
    digest: str

    @property
    def content(self) -> LogContent:
        """What its digest covers: nothing that only this store knows, so that a copy can be checked elsewhere."""
        return {
            "session": self.session_id,
            "entry": self.entry,
            "kind": self.kind,
            "branch": self.branch_path,
            "first_step": self.step_index,
            "last_step": self.last_step_index,
            "verdict": self.verdict,
            "note": self.note,
            "tag": self.tag,
            "reviewer": self.reviewer,
            "blind": self.blind,
            "at": self.created_at.astimezone(UTC).isoformat(),
        }
