"""What reading a stored step again at another lambda or alpha says of it: numbers with their bounds."""

from __future__ import annotations

from dataclasses import dataclass

from coft_core.informative import certifies
from coft_core.stored import Mode
from coft_core.types import CertificateState, Step

HANGS = (
    "Whether this token is certified hangs on tokens whose logits were not kept; only the model itself can tell at "
    "this lambda and alpha."
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """A number that is known exactly, or to lie within two others.

    Attributes:
        low: It is at least this.
        high: It is at most this.
    """

    low: float
    high: float

    @classmethod
    def at(cls, value: float) -> Bounds:
        """A number that is known."""
        return cls(value, value)

    @property
    def exact(self) -> bool:
        """Whether the number is known."""
        return self.low == self.high


@dataclass(frozen=True, slots=True)
class RereadFamily:
    """One attribute family's part of a step read again (factorized masks).

    Attributes:
        family: The family.
        log_tau: Its log-threshold.
        state: What the threshold rests on.
        in_set: Whether the emitted token lies in its certified set; None if that hangs on tokens that were not kept.
        margin: Joint support of the emitted token in that family's branch minus ``log_tau``.
    """

    family: str
    log_tau: float
    state: CertificateState
    in_set: bool | None
    margin: Bounds


@dataclass(frozen=True, slots=True)
class RereadStep:
    """One stored step as it reads at another lambda or alpha, its prefix and its draw as they were.

    Attributes:
        index: Position in the continuation, 0-based.
        token_id: The emitted token, as stored.
        token: Its text.
        mode: ``"full"`` when every logit was kept and all numbers are exact, else ``"head"``.
        log_p_fused: Log-probability of the emitted token after fusion.
        log_tau: Log-threshold of the step; ``-inf`` when it certifies everything.
        state: What the threshold rests on.
        in_set: Whether the emitted token lies in the certified set; None if that hangs on tokens that were not kept.
        set_size: Number of tokens in the certified set.
        certified_mass: Fused probability of the certified set.
        margin: Support of the emitted token, in the readings that certify it, minus ``log_tau``; with families, of the
            one nearest to refusing.
        kl_fused_masked: ``KL(fused || masked)``.
        fallback: Whether the set is empty, so that the likeliest fused token is emitted; None if that is not known.
        policy_token_id: The token that the policy chooses at this step after the same prefix with the same draw; None
            if that hangs on tokens that were not kept.
        policy_token: Its text; None where the token is not known.
        changed: Whether that is another token than the policy chose when the step was made (for a forced step: than
            it would have chosen then); None if it is not known.
        families: With factorized masks, each family's part.
        width_open: Whether it hangs on tokens that were not kept if the set is too wide to say anything.
        step: The whole step as decoding would have given it, candidates and diagnostics included; None where only the
            head was kept.
    """

    index: int
    token_id: int
    token: str
    mode: Mode
    log_p_fused: Bounds
    log_tau: float
    state: CertificateState
    in_set: bool | None
    set_size: Bounds
    certified_mass: Bounds
    margin: Bounds
    kl_fused_masked: Bounds
    fallback: bool | None
    policy_token_id: int | None
    policy_token: str | None
    changed: bool | None
    families: tuple[RereadFamily, ...] = ()
    width_open: bool = False
    step: Step | None = None

    @property
    def certified(self) -> bool | None:
        """Whether the emitted token is certified: in the set of a calibration that fits; None if that is not known."""
        if not certifies(self.state) or self.in_set is False:
            return False
        return None if self.width_open else self.in_set

    @property
    def hangs_on_tail(self) -> bool:
        """Whether the emitted token's status hangs on tokens that were not kept."""
        return self.certified is None

    @property
    def note(self) -> str:
        """A sentence that must be shown with the step; empty when there is nothing to add."""
        return HANGS if self.hangs_on_tail else ""
