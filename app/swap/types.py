"""Attribute swaps as the services take and give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.shared.audits import AuditSettings, StartAudit
from app.shared.exchanges import Variant
from coft_core.types import Span, Step

VIEWS = ("factual", "fused", "drawn", "masked")
"""Views whose distributions are compared: the model alone; fused; what the policy draws from; the masked prompt."""


@dataclass(frozen=True, slots=True)
class SwapRequest:
    """A request to replace an attribute in a prompt and compare what follows."""

    prompt: str
    settings: AuditSettings = field(default_factory=AuditSettings)
    spans: tuple[Span, ...] | None = None
    pronouns: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    group_pronouns: tuple[str | None, ...] = ()
    category: str | None = None
    targets: tuple[int, ...] | None = None
    roles: tuple[tuple[int, str], ...] = ()
    include_original: bool = True
    max_new_tokens: int = 12
    answer_step: int = 0
    top: int = 8


@dataclass(frozen=True, slots=True)
class SwapTarget:
    """A masked span that can be replaced; a ``pronoun`` is one and nothing else, which groups do not replace."""

    start: int
    end: int
    text: str
    category: str
    pronoun: bool


@dataclass(frozen=True, slots=True)
class SwapPronoun:
    """A pronoun of a prompt as it was read."""

    start: int
    end: int
    text: str
    role: str
    roles: tuple[str, ...]
    sure: bool


@dataclass(frozen=True, slots=True)
class SwapTargets:
    """What of a prompt can be replaced."""

    spans: tuple[SwapTarget, ...]
    pronouns: tuple[SwapPronoun, ...]

    @property
    def families(self) -> tuple[str, ...]:
        """Families of the spans that groups can replace, in reading order."""
        return tuple(dict.fromkeys(span.category for span in self.spans if not span.pronoun))

    @property
    def has_pronoun(self) -> bool:
        """Whether a masked span has a pronoun."""
        return any(p.start < s.end and s.start < p.end for p in self.pronouns for s in self.spans)


@dataclass(frozen=True, slots=True)
class SwapProgress:
    """How far a comparison is."""

    number: int
    share: float
    label: str
    decoding: str


@dataclass(frozen=True, slots=True)
class SwapChain:
    """A short chain after one variant; ``start`` is a request that makes the same chain as a session."""

    steps: tuple[Step, ...]
    text: str
    finished: str
    certificate: str
    start: StartAudit


@dataclass(frozen=True, slots=True)
class SwapOutcome:
    """What follows a variant."""

    variant: Variant
    vanilla: SwapChain
    policy: SwapChain
    masked_like_first: bool
    tokens: int


@dataclass(frozen=True, slots=True)
class SwapToken:
    """A candidate of the compared step; in each view its probability in every variant."""

    token_id: int
    token: str
    probabilities: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class SwapGap:
    """Total variation in [0, 1] between two variants over the whole vocabulary, by view; variants by their index."""

    first: int
    second: int
    distances: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SwapResult:
    """What an attribute swap shows."""

    outcomes: tuple[SwapOutcome, ...]
    views: tuple[str, ...]
    answer_step: int
    tokens: tuple[SwapToken, ...]
    gaps: tuple[SwapGap, ...]
    notes: tuple[str, ...]
    number: int = 0

    @property
    def common_steps(self) -> int:
        """Steps that every chain has; each of them can be compared."""
        return min(len(chain.steps) for outcome in self.outcomes for chain in (outcome.vanilla, outcome.policy))

    @property
    def policy(self) -> str:
        """The policy that is compared with vanilla decoding."""
        return self.outcomes[0].policy.start.settings.policy

    def largest(self, view: str) -> float:
        """Largest distance of any two variants in a view."""
        return max(gap.distances[view] for gap in self.gaps)

    def mean(self, view: str) -> float:
        """Mean distance over all pairs of variants in a view."""
        return sum(gap.distances[view] for gap in self.gaps) / len(self.gaps)
