"""Records of audit sessions, their branches and annotations."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from db.records.common import JsonObject, SpanRecord

Verdict = Literal["fair", "unfair", "unclear"]
"""What a reviewer may say of a session, branch or step."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationRecord:
    """A reviewer's remark on a session, a branch of it, or one step of a branch."""

    id: int
    session_id: int
    branch_id: int | None
    step_index: int | None
    verdict: Verdict | None
    note: str
    tag: str
    reviewer: str
    created_at: datetime
