"""Records of a chain's steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


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
