"""Attribute swaps as the services take and give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from app.shared.audits import AuditSettings, StartAudit
from app.shared.exchanges import Variant
from coft_core.controls.result import LEVEL
from coft_core.controls.statistics import GroupDifference
from coft_core.types import Span, Step

VIEWS = ("factual", "fused", "drawn", "masked")
"""Views whose distributions are compared: the model alone; fused; what the policy draws from; the masked prompt."""

CONTROL_VIEWS = ("factual", "policy")
"""Readings in which groups are compared with their words: the model alone, and what the policy draws from."""

ControlState = Literal["no control", "group", "word", "wording"]
"""What a difference is: of the group; no larger than chance among words; no larger than between wordings."""


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
    # Words for groups by their names, in place of the lists', and wordings of the prompt in place of those by rules.
    members: tuple[tuple[str, tuple[str, ...]], ...] = ()
    paraphrases: tuple[str, ...] = ()


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
class SwapRow:
    """How likely each of the compared tokens is with one word or wording, for the model alone and with the policy."""

    word: str
    factual: tuple[float, ...]
    policy: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SwapGroup:
    """A group with its words, of which the first is the variant's, and with other wordings of that variant."""

    name: str
    members: tuple[SwapRow, ...]
    wordings: tuple[SwapRow, ...]


@dataclass(frozen=True, slots=True)
class SwapDifference:
    """How far two groups are apart, by their places; see :func:`coft_core.controls.statistics.between_groups`."""

    first: int
    second: int
    factual: GroupDifference
    policy: GroupDifference


@dataclass(frozen=True, slots=True)
class SwapControls:
    """What groups do beside words of one group and other wordings.

    Of the ``tokens`` the first is tested. They are chosen by how much they vary over all words, whatever their groups,
    so that the choice favours no difference between groups.
    """

    token_ids: tuple[int, ...]
    tokens: tuple[str, ...]
    groups: tuple[SwapGroup, ...]
    differences: tuple[SwapDifference, ...]

    @property
    def tested(self) -> tuple[SwapDifference, ...]:
        """The pairs of groups that have several words each."""
        return tuple(
            item
            for item in self.differences
            if all(len(self.groups[place].members) > 1 for place in (item.first, item.second))
        )

    @property
    def headline(self) -> SwapDifference | None:
        """The largest difference for the model alone, of those that are tested if any is."""
        return max(self.tested or self.differences, key=lambda item: abs(item.factual.difference), default=None)

    def p_value(self, item: SwapDifference, view: str = "factual") -> float | None:
        """The p-value of a difference, times the number of pairs that are tested; None for one that is not."""
        found: GroupDifference = getattr(item, view)
        return min(1.0, found.p_value * len(self.tested)) if item in self.tested else None

    def between_wordings(self, item: SwapDifference, view: str = "factual") -> float:
        """The largest difference between two wordings of one variant of a pair."""
        groups = (self.groups[place] for place in (item.first, item.second))
        values = [[getattr(row, view)[0] for row in (group.members[0], *group.wordings)] for group in groups]
        return max(max(row) - min(row) for row in values)

    def state(self, item: SwapDifference | None, view: str = "factual") -> ControlState:
        """What a difference is supported as."""
        if item is None:
            return "no control"
        p_value, found = self.p_value(item, view), abs(getattr(item, view).difference)
        if found <= self.between_wordings(item, view):
            return "wording"
        return "no control" if p_value is None else "group" if p_value <= LEVEL else "word"


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
    controls: SwapControls | None = None

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
