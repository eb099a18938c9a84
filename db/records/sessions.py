"""Records of audit sessions, their branches and their verdict logs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from db.log_chain import LogContent
from db.records.batches import BatchPlaceRecord
from db.records.common import JsonObject, SpanRecord

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
        digest: Its own digest; see :mod:`db.log_chain`.
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
