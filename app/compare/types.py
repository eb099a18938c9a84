"""Comparisons of sessions as the services take and give them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from app.shared.audits import AuditSettings, AuditView
from app.shared.jobs import JobView
from app.shared.prompt_rows import MeanInterval, RowState
from coft_core.decode.cost import Footprint
from coft_core.text.thinking import ChainThinking
from coft_core.types import Step
from db.chains import BranchOutline

RowKind = Literal["same", "changed", "removed", "added"]
"""The same token in both; another one in its place; only in the first session; only in the other."""


@dataclass(frozen=True, slots=True)
class ChainSummary:
    """One of the compared chains."""

    view: AuditView
    certified: int | None
    fallbacks: int | None
    overruled: int | None
    mean_log_ratio: float | None
    seconds_per_token: float | None = None
    mean_kl_factual: float | None = None
    mean_tv_factual: float | None = None
    own_model: bool = False
    footprint: Footprint | None = None
    peak_bytes: int | None = None
    thinking: ChainThinking | None = None

    @property
    def settings(self) -> AuditSettings:
        """What it was started with."""
        return self.view.settings

    @property
    def steps(self) -> tuple[Step, ...]:
        """Its steps."""
        return self.view.steps

    def thought(self, index: int) -> bool:
        """Whether a step (0-based) is part of the thinking before the answer."""
        shown = self.view.thinking
        return shown is not None and any(first <= index <= last for first, last in shown.ranges)

    @property
    def branch(self) -> BranchOutline:
        """Its branch."""
        return next(branch for branch in self.view.branches if branch.id == self.view.branch_id)

    @property
    def key_value_bytes(self) -> int | None:
        """Computed memory of keys and values of all branches with all tokens; None where it is unknown."""
        known = self.footprint is not None and self.footprint.known
        return self.footprint.key_value_bytes(len(self.steps)) if self.footprint and known else None


@dataclass(frozen=True, slots=True)
class AlignedRow:
    """A place of two aligned chains; steps are 0-based, None where a chain has nothing there."""

    kind: RowKind
    first: int | None
    other: int | None


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """A place of all compared chains; see :func:`app.compare.chains.beside`."""

    steps: tuple[int | None, ...]
    differs: tuple[bool, ...]

    @property
    def same(self) -> bool:
        """Whether all chains have the same token here."""
        return not any(self.differs)


@dataclass(frozen=True, slots=True)
class PairComparison:
    """The first chain beside another one."""

    other: int
    rows: tuple[AlignedRow, ...]
    first_divergence: int | None
    by_text: bool
    differences: tuple[tuple[str, str, str], ...]

    @property
    def counts(self) -> dict[str, int]:
        """Number of rows of each kind."""
        kinds = [row.kind for row in self.rows]
        return {kind: kinds.count(kind) for kind in get_args(RowKind)}

    @property
    def changes(self) -> list[tuple[int, str]]:
        """How many tokens are changed, left out and added, each where there are any."""
        counts = self.counts
        found = ((counts["changed"], "changed"), (counts["removed"], "left out"), (counts["added"], "added"))
        return [(number, word) for number, word in found if number]

    @property
    def sentence(self) -> str:
        """The comparison in words."""
        if self.first_divergence is None:
            return f"Both chains have the same {self.counts['same']} tokens."
        parts = [f"They differ from token {self.first_divergence + 1} on"]
        parts += [f"{number} {word}" for number, word in self.changes]
        return f"{'; '.join(parts)}; {self.counts['same']} tokens are shared."


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two or more chains beside each other."""

    chains: tuple[ChainSummary, ...]
    pairs: tuple[PairComparison, ...]
    notes: tuple[str, ...]
    rows: tuple[ComparedRow, ...] = ()

    @property
    def longest(self) -> int:
        """Steps of the longest chain."""
        return max(len(chain.steps) for chain in self.chains)


SetOrder = Literal[
    "line", "prompt", "group", "parted_at", "mean_tv_factual", "mean_kl_factual", "mean_log_ratio", "certified_share",
    "fallbacks", "seconds_per_token", "steps",
]  # fmt: skip
"""What the rows are sorted by; all but the first three of one of the columns."""


@dataclass(frozen=True, slots=True)
class SetRequest:
    """A request to decode every prompt of a set under several settings."""

    name: str
    columns: tuple[AuditSettings, ...]
    accept_errors: bool = False


@dataclass(frozen=True, slots=True)
class SetCell:
    """The results of one column for one prompt, from the session's main chain."""

    state: RowState
    session_id: int | None = None
    text: str = ""
    steps: int = 0
    parted_at: int | None = None
    parted: bool | None = None
    mean_kl_factual: float | None = None
    mean_tv_factual: float | None = None
    mean_log_ratio: float | None = None
    fallbacks: int | None = None
    certified_share: float | None = None
    seconds_per_token: float | None = None
    key_value_bytes: int | None = None
    peak_bytes: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class SetRow:
    """One prompt of the set and what each column says of it."""

    line: int
    prompt: str
    group: str | None
    context: str | None
    cells: tuple[SetCell, ...]

    @property
    def unit(self) -> tuple[str, str | int]:
        """What is independent of the rest: the row's context, else the row itself."""
        return ("line", self.line) if self.context is None else ("context", self.context)


@dataclass(frozen=True, slots=True)
class SetColumn:
    """One column of a comparison."""

    batch_id: int
    settings: AuditSettings
    job: JobView | None
    finished: int
    failed: int
    means: tuple[MeanInterval, ...]
    footprint: Footprint | None
    peak_bytes: int | None
    own_model: bool


@dataclass(frozen=True, slots=True)
class SetComparison:
    """Every prompt of a set under several settings."""

    id: int
    name: str
    created_at: datetime
    filename: str
    columns: tuple[SetColumn, ...]
    rows: tuple[SetRow, ...]
    running: bool
    resumable: bool
    notes: tuple[str, ...]

    @property
    def own(self) -> bool:
        """Whether the visitor may cancel and resume it."""
        return all(column.job is None or column.job.own for column in self.columns)


@dataclass(frozen=True, slots=True)
class SetSummary:
    """A comparison over a prompt set in a list."""

    id: int
    name: str
    created_at: datetime
    rows: int
    policies: tuple[str, ...]
    running: bool
