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
    """One of the compared chains.

    Attributes:
        view: Its session, with this chain as the shown one.
        certified: Certified tokens; None where the session is uncertified.
        fallbacks: Steps at which no token was certified; None where nothing is thresholded.
        overruled: Steps at which certification refused the token that the fused view finds likeliest, others being
            certified; None where nothing is thresholded.
        mean_log_ratio: Mean absolute log-ratio of the tokens' factual to masked probability; None without tokens.
        seconds_per_token: Median time of a step after the first, which also reads the prompt; waiting for the model's
            turn is not counted. None where no step was measured.
        mean_kl_factual: Mean over its steps of the divergence from vanilla, ``KL(fused || factual)`` in nats; None
            where a step was stored without it, or where it says nothing of the audited model.
        mean_tv_factual: The same as total variation.
        own_model: Whether it decodes a checkpoint of its own: its factual reading is then not the audited model's.
        footprint: Memory of its branches and models as computed from their shapes; None where it was stored without.
        peak_bytes: Most memory that the device held, for all that ran, during any of its steps; None where that was
            not measured.
        thinking: How its thinking is told from its answer; None where its model marks none.
    """

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
    """A place of all compared chains; see :func:`app.compare.chains.beside`.

    Attributes:
        steps: The step of each chain, 0-based; None where a chain has nothing there.
        differs: Of the first chain, whether no other one has its token here; of the others, whether they have another
            token than the first one, or one where it has none, or none where it has one.
    """

    steps: tuple[int | None, ...]
    differs: tuple[bool, ...]

    @property
    def same(self) -> bool:
        """Whether all chains have the same token here."""
        return not any(self.differs)


@dataclass(frozen=True, slots=True)
class PairComparison:
    """The first chain beside another one.

    Attributes:
        other: Place of the other chain among the compared ones.
        rows: Both chains aligned, in reading order.
        first_divergence: First step at which they have different tokens, or only one has any; None if they are equal.
        by_text: Whether tokens were compared by their text, since the models have different vocabularies.
        differences: (setting, value of the first, value of the other) for all that the sessions do not share.
    """

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
    """Two or more chains beside each other.

    Attributes:
        chains: The chains; the others are compared with the first.
        pairs: One a further chain.
        notes: Sentences that must be shown with it.
        rows: All chains aligned with the first, in reading order.
    """

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
    """A request to decode every prompt of a set under several settings.

    Attributes:
        name: Name of the comparison.
        columns: The settings of each column; the others are compared with the first.
        accept_errors: Go on with the good rows although others cannot be used.
    """

    name: str
    columns: tuple[AuditSettings, ...]
    accept_errors: bool = False


@dataclass(frozen=True, slots=True)
class SetCell:
    """What one column says of one prompt; numbers are of the session's main chain.

    Attributes:
        state: How far it is.
        session_id: Its session; None if there is none.
        text: The continuation so far.
        steps: Number of tokens.
        parted_at: First step (0-based) with another token than the first column, the shorter chain's end included;
            None where both are equal, where one is not finished, and in the first column.
        parted: Whether it parts from the first column; None where that cannot be said yet.
        mean_kl_factual: Mean over its steps of the divergence from vanilla, nats; infinite where a step forbids
            nothing less; None where it was not computed, or says nothing of the audited model.
        mean_tv_factual: The same as total variation.
        mean_log_ratio: Mean absolute log-ratio of the tokens' factual to masked probability; None without tokens.
        fallbacks: Steps at which no token was certified; None where nothing is thresholded.
        certified_share: Share of certified tokens; None where the session is uncertified.
        seconds_per_token: Median time of a step after the first, in seconds, waiting excluded; None if unmeasured.
        key_value_bytes: Computed memory of keys and values of all branches at its end; None if unknown.
        peak_bytes: Most memory that the device held during its steps; None if unmeasured.
        error: Why it could not be run; empty if it could.
    """

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
    """One column of a comparison.

    Attributes:
        batch_id: The batch that runs it.
        settings: Its settings.
        job: The job that ran it last; None if it is not known any more.
        finished: Prompts whose chain is at its end.
        failed: Prompts that could not be run.
        means: Means over the finished prompts, one a measure, with 95 % intervals.
        footprint: Memory of its longest prompt's branches and of its models, as computed; None if unknown.
        peak_bytes: Most memory that the device held during any of its steps; None if unmeasured.
        own_model: True where it decodes a checkpoint of its own, so that nothing is said of the audited model.
    """

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
    """Every prompt of a set under several settings.

    Attributes:
        id: Its id.
        name: Its name.
        created_at: When it was submitted.
        filename: Name of the file with its prompts.
        columns: Its columns; the others are compared with the first.
        rows: Its rows, sorted as asked.
        running: Whether a column is being run or waits for its turn.
        resumable: Whether it stands still with rows left to run.
        notes: Sentences that must be shown with it.
    """

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
