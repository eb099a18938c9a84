"""The data that crosses the core's borders: frozen, without behaviour beyond derived values."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import total_ordering
from numbers import Real
from typing import TYPE_CHECKING, Literal

from coft_core.errors import InvalidInputError

if TYPE_CHECKING:
    from coft_core.stored_logits import StoredLogits


FAMILIES: tuple[str, ...] = (
    "gender",
    "race",
    "nationality",
    "religion",
    "age",
    "disability",
    "appearance",
    "orientation",
    "socioeconomic",
    "family",
    "name",
)
"""Attribute families, in the order in which pages list them."""

KNOWN_FAMILIES: tuple[str, ...] = (*FAMILIES, "other")
"""Every category that a span can have, in that order."""

PROXY_FAMILIES: tuple[str, ...] = ("socioeconomic", "family", "name")
"""Families that only hint at a protected attribute; beside one that is said outright their spans are suggested."""


def in_page_order(families: Iterable[str]) -> tuple[str, ...]:
    """Known families in the order in which pages list them, each once."""
    named = frozenset(families)
    return tuple(name for name in KNOWN_FAMILIES if name in named)


BinState = Literal["calibrated", "inherited", "uninformative"]
"""Where a position bin's threshold comes from; see :class:`coft_core.conformal.bins.Bin`."""

CertificateState = Literal["calibrated", "inherited", "uninformative", "mismatch", "none"]
"""A bin's state, ``mismatch`` (calibration of another policy, used knowingly), or ``none`` (no calibration)."""


CertifiedIn = Literal["both", "factual"]
"""Where a token must reach the threshold: in the fused and the masked reading (Eq. 7), or in the factual one alone."""


class CertificateKind(StrEnum):
    """What may be claimed for a run; ``mismatch`` where a calibration of another policy is used knowingly."""

    CERTIFIED = "certified"
    MISMATCH = "mismatch"
    UNCERTIFIED = "uncertified"


_MISMATCH = "policy mismatch"
_CERTIFIED = re.compile(r"certified(?: at (\d+) of (\d+) steps)?")


@dataclass(frozen=True, slots=True)
class Certificate:
    """What may be claimed for a run, and why no more."""

    kind: CertificateKind
    reason: str = ""
    steps: tuple[int, int] | None = None

    @classmethod
    def uncertified(cls, reason: str) -> Certificate:
        """Nothing is claimed, and why."""
        return cls(CertificateKind.UNCERTIFIED, reason)

    @classmethod
    def mismatch(cls, differences: str) -> Certificate:
        """A calibration of another policy is used knowingly; ``differences`` names what differs."""
        return cls(CertificateKind.MISMATCH, f"{_MISMATCH} ({differences})")

    @classmethod
    def read(cls, text: str) -> Certificate:
        """The certificate of a stored or exported :attr:`text`."""
        if match := _CERTIFIED.fullmatch(text):
            return cls(CertificateKind.CERTIFIED, steps=(int(match[1]), int(match[2])) if match[1] else None)
        reason = text.removeprefix("uncertified: ")
        kind = CertificateKind.MISMATCH if reason.startswith(_MISMATCH) else CertificateKind.UNCERTIFIED
        return cls(kind, reason)

    @property
    def text(self) -> str:
        """``"certified at k of n steps"`` or ``"uncertified: <why>"``; ``"certified"`` before the first step."""
        if not self.certified:
            return f"uncertified: {self.reason}"
        return "certified" if self.steps is None else f"certified at {self.steps[0]} of {self.steps[1]} steps"

    def at(self, certified: int, steps: int) -> Certificate:
        """The same once steps have been written, with a certified token at so many of them."""
        return replace(self, steps=(certified, steps)) if self.certified and steps else self

    def counted(self, steps: Sequence[Step]) -> Certificate:
        """The same once these steps have been written."""
        return self.at(sum(step.certified for step in steps), len(steps))

    @property
    def certified(self) -> bool:
        """Whether tokens in the certified set count as certified."""
        return self.kind is CertificateKind.CERTIFIED

    @property
    def thresholded(self) -> bool:
        """Whether there are thresholds, be they of this policy or knowingly of another."""
        return self.kind is not CertificateKind.UNCERTIFIED

    @property
    def mismatched(self) -> bool:
        """Whether a calibration of another policy is used knowingly; no token then counts as certified."""
        return self.kind is CertificateKind.MISMATCH


def is_number(value: object) -> bool:
    """Whether a value is a finite real number; True and False are none."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling controls, the same in every branch and at calibration.

    Attributes:
        temperature: Divides the logits.
        top_p: Nucleus mass; 1 is off.
        top_k: Tokens kept; 0 is off.
        shared_noise: Each token has noise of its own in a draw, so that draws of one key differ no more between
            prompts than their distributions do; the law of each draw is the same.
    """

    temperature: float = 1.0
    top_p: float = 0.9
    top_k: int = 0
    shared_noise: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be sampled with."""
        if not (is_number(self.temperature) and self.temperature > 0):
            raise InvalidInputError(
                f"temperature is {self.temperature}; choose a number above 0, or greedy decoding for the likeliest "
                "token."
            )
        if not (math.isfinite(self.top_p) and 0 < self.top_p <= 1):
            raise InvalidInputError(f"top-p is {self.top_p}; choose a number above 0 and at most 1 (1 is off).")
        if self.top_k < 0 or int(self.top_k) != self.top_k:
            raise InvalidInputError(f"top-k is {self.top_k}; choose a whole number, 0 is off.")


@total_ordering
@dataclass(frozen=True, slots=True)
class Span:
    """A sensitive character span of the reviewer's text, exactly as typed (no normalisation).

    Spans sort by their fields in order; one without a score sorts before one with it.

    Attributes:
        start: First character, 0-based.
        end: One past the last character.
        category: Attribute family, one of :data:`FAMILIES`, or ``"other"``.
        source: Who found it: ``"lexicon"``, ``"pipeline"``, ``"list"`` (a user list) or ``"user"``.
        detail: What exactly matched, e.g. ``"pronouns"``, ``"NORP"`` or a user list's name.
        kept: True for a whitelisted span: it is shown, and never masked.
        score: How sure its source is, 0 to 1, where it says.
        suggested: True for a span that is shown and not masked until the reviewer accepts it.
    """

    start: int
    end: int
    category: str = "other"
    source: str = "user"
    detail: str = ""
    kept: bool = False
    score: float | None = None
    suggested: bool = False

    @property
    def masked(self) -> bool:
        """Whether its characters are to be masked: it is neither kept nor a mere suggestion."""
        return not (self.kept or self.suggested)

    def __lt__(self, other: Span) -> bool:
        """Whether this span sorts before another."""
        return self._order < other._order

    @property
    def _order(self) -> tuple[int, int, str, str, str, bool, float, bool]:
        score = -1.0 if self.score is None else self.score
        return (self.start, self.end, self.category, self.source, self.detail, self.kept, score, self.suggested)


@dataclass(frozen=True, slots=True)
class UserTerm:
    """One term of a reviewer's word list, with the family of its spans; one to ``keep`` is never masked."""

    term: str
    family: str = "other"
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """One row of a step's candidate table: a token in the three views, in nats at the policy's temperature.

    Attributes:
        certified: Whether ``min(log_p_fused, log_p_masked) >= log_tau`` (Eq. 7); with factorized masks, whether every
            family's own masked branch and threshold say so; whether ``log_p_factual >= log_tau`` where only the factual
            reading certifies (:attr:`Step.certified_in`).
        refused_by: With factorized masks, the families that refuse the token.
        at_most: The views in which the engine did not return the token, so that its log-probability is an upper bound.
    """

    token_id: int
    token: str
    log_p_factual: float
    log_p_masked: float
    log_p_fused: float
    certified: bool
    refused_by: tuple[str, ...] = ()
    at_most: tuple[str, ...] = ()

    @property
    def log_joint(self) -> float:
        """Joint support ``m(v) = min(log p_fused, log p_masked)`` (Eq. 5 is ``1 - exp(m)``)."""
        return min(self.log_p_fused, self.log_p_masked)

    def log_support(self, certified_in: CertifiedIn) -> float:
        """What the threshold is compared with: joint support, or the log-probability in the factual reading."""
        return self.log_p_factual if certified_in == "factual" else self.log_joint


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """What Theorems 1-3 and Corollary 1 say about one step; all logarithms are natural.

    Attributes:
        kl_fused_masked: ``KL(fused || masked)``, non-increasing in lambda (Theorem on monotone KL decay).
        tv_on_set: Total variation of the fused and masked conditionals on the certified set; None if empty.
        tv_bound: Corollary 1's bound ``sqrt(KL / 2) / tau``; None when tau is 0 (no threshold, no statement), and where
            only the factual reading certifies, since the set then has no least mass in the other two.
        sensitivity: ``z_factual - z_masked`` of the chosen token (Delta_t of Sec. 3.3), raw logits.
        log_ratio: ``log p_factual - log p_masked`` of the chosen token: free of the logits' arbitrary offset.
        margin: Support of the chosen token, in the readings that certify it, minus ``log_tau``.
        kl_fused_factual: ``KL(fused || factual)`` over the whole vocabulary, before the certified set and the sampling
            controls cut it: the policy's divergence from vanilla, or from the checkpoint that it decodes.
        tv_fused_factual: Total variation of the same two distributions, in [0, 1].
    """

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


@dataclass(frozen=True, slots=True)
class FamilyStep:
    """What the branch in which only one family is masked says of a step's emitted token (factorized masks).

    ``log_joint`` is ``min(log_p_fused, log_p_masked)`` there, and ``state`` what the family's threshold rests on.
    """

    family: str
    log_p_masked: float
    log_joint: float
    log_tau: float
    certified: bool
    state: CertificateState


VIEWS = ("factual", "masked", "fused")
"""The readings of a step, in the order of its figures."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is known of a step of which the engine returned only the most likely tokens.

    Log-probabilities of tokens that it returned are lower ends, those of others are upper ends
    (:attr:`Candidate.at_most`), and diagnostics are the least that they can be.

    Attributes:
        seen: Tokens that each branch returned, at least.
        slack: By how many nats the factual, masked and fused lower ends may be exceeded.
        undecided: Tokens, at most, that may or may not be in the certified set; 0 at a decided step.
        exact: Whether the policy's token is certain to be the one that all tokens would have given.
    """

    seen: int
    slack: tuple[float, float, float]
    undecided: int
    exact: bool

    def ends(self, row: Candidate, view: str) -> tuple[float, float]:
        """Between what a candidate's log-probability in a view lies."""
        stated: float = getattr(row, f"log_p_{view}")
        if view in row.at_most:
            return -math.inf, stated
        return stated, min(stated + self.slack[VIEWS.index(view)], 0.0)

    def log_ratio(self, row: Candidate) -> float:
        """The log ratio of a candidate that is nearest to none: it is at least that, in the same direction."""
        (low, high), (masked_low, masked_high) = self.ends(row, "factual"), self.ends(row, "masked")
        return max(low - masked_high, min(high - masked_low, 0.0))


def widest_set(size: int, mass: float, bounds: Bounds | None) -> tuple[int, float]:
    """The size and the fused probability of a certified set, at most."""
    if bounds is None:
        return size, mass
    return size + bounds.undecided, 1.0 if bounds.undecided else min(mass * math.exp(bounds.slack[2]), 1.0)


@dataclass(frozen=True, slots=True)
class Step:
    """One generated (or teacher-forced) token with everything that an audit shows of it.

    Attributes:
        index: Position in the continuation, 0-based (pages and reports show ``index + 1``).
        token_id: The emitted token, of which the log-probabilities are.
        log_tau: Log-threshold used at this step; ``-inf`` when it certifies everything.
        certified: Whether the emitted token lies in the certified set of a calibration that fits the policy, and the
            threshold says something (see :mod:`coft_core.conformal.informative`).
        certified_mass: Fused probability of the certified set.
        fallback: True when the set was empty and ``argmax p_fused`` was emitted (Eq. 8, second case).
        forced: True when a person, not the policy, chose the token.
        policy_token_id: The token that the policy would have emitted.
        state: What the threshold rests on.
        candidates: Top rows of the three views, likeliest factual first; the emitted token is among them.
        families: With factorized masks, each family's part; the masked view is then their mean, ``log_tau`` the
            smallest of their thresholds, and the margin that of the family that is nearest to refusing.
        set_size_low: Tokens that stay in the certified set whichever way the model is run: those above the threshold
            by the numeric noise. None without a set, and for steps stored without it.
        set_size_high: Tokens that can be in it: those under the threshold by no more than the numeric noise too.
        noise: The bound of that noise, in nats; see :func:`coft_core.model.noise.model_noise`.
        bounds: What is known where the engine returned only the most likely tokens; the certified set is then what is
            certain to be in it. None where all tokens are known.
        logits: The branches' logits, if they were kept to read the step again. Steps are equal without them.
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
    state: CertificateState
    candidates: tuple[Candidate, ...]
    diagnostics: Diagnostics
    families: tuple[FamilyStep, ...] = ()
    certified_in: CertifiedIn = "both"
    set_size_low: int | None = None
    set_size_high: int | None = None
    noise: float | None = None
    bounds: Bounds | None = None
    logits: StoredLogits | None = field(default=None, compare=False, repr=False)

    @property
    def widest(self) -> tuple[int, float]:
        """The size and the fused probability of the certified set, at most."""
        return widest_set(self.set_size, self.certified_mass, self.bounds)

    def is_open(self, row: Candidate) -> bool:
        """Whether a candidate may or may not be in the certified set."""
        if self.bounds is None or row.certified or self.state == "none":
            return False
        views = ("factual",) if self.certified_in == "factual" else ("masked", "fused")
        return min(self.bounds.ends(row, view)[1] for view in views) >= self.log_tau

    @property
    def log_support(self) -> float:
        """The emitted token's log-probability that the threshold is compared with; see :attr:`certified_in`."""
        return self.log_p_factual if self.certified_in == "factual" else min(self.log_p_fused, self.log_p_masked)

    @property
    def least_support(self) -> float:
        """What is certain of :attr:`log_support`: nothing where the engine did not return the token."""
        emitted = next((row for row in self.candidates if row.token_id == self.token_id), None)
        return self.log_support if emitted is None or self.is_known(emitted) else -math.inf

    def is_known(self, row: Candidate) -> bool:
        """Whether the engine returned a candidate in the readings that certify it."""
        return not {*row.at_most} & ({"factual"} if self.certified_in == "factual" else {"masked", "fused"})

    def near_threshold(self, noise: float) -> bool:
        """Whether a token is so close to the threshold that rounding could turn its certificate.

        Of steps stored without a range only the listed tokens are compared with the noise in nats, with factorized
        masks only the emitted one.
        """
        if self.set_size_low is not None and self.set_size_high is not None:
            undecided = self.bounds.undecided if self.bounds else 0
            return self.set_size_high - self.set_size_low > undecided
        if self.families:
            distances = [part.log_joint - part.log_tau for part in self.families]
        else:
            listed = (row.log_support(self.certified_in) - self.log_tau for row in self.candidates)
            distances = [self.diagnostics.margin, *listed]
        return any(abs(distance) <= noise for distance in distances)


OWN = "each prompt's own"
"""In place of a system prompt, a prefill or a number of turns in which the prompts of a set differ."""


@dataclass(frozen=True, slots=True)
class Example:
    """One calibration prompt.

    Attributes:
        reference: Its true continuation; required for ``source="reference"``.
        spans: Sensitive spans; None lets the detector find them.
        group: Whom the row is about, for thresholds by group; it does not say which rows depend on each other.
        context: What the row belongs to: rows that share it depend on each other and count as one context.
    """

    prompt: str
    reference: str | None = None
    spans: tuple[Span, ...] | None = None
    group: str | None = None
    context: str | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """The result of :func:`coft_core.generate`.

    Attributes:
        text: The continuation's text; ``tokens`` are its tokens' texts.
        spans: The spans that were used, kept and suggested ones included.
        seed: Seed of the keyed draws.
        finished: ``"length"``, ``"end"`` (the model wrote its end token), ``"context"`` (context full), or ``"stop"``
            where another program's criterion ended it.
        certificate: ``"certified at k of n steps"`` or ``"uncertified: <why>"``: the text of a :class:`Certificate`.
        warnings: Sentences that a page or report must show beside the run.
    """

    prompt: str
    text: str
    tokens: tuple[str, ...]
    steps: tuple[Step, ...]
    spans: tuple[Span, ...]
    seed: int
    finished: str
    certificate: str
    warnings: tuple[str, ...] = field(default=())
