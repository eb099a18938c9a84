"""Comparisons of sessions as the services take and give them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from app.shared.audits import AuditSettings, CalibrationSummary
from app.shared.jobs import JobView
from app.shared.prompt_rows import MeanInterval, RowState
from coft_core.decode.cost import Footprint
from coft_core.types import Span, Step
from db.chains import BranchOutline

RowKind = Literal["same", "changed", "removed", "added"]
"""The same token in both; another one in its place; only in the first session; only in the other."""


@dataclass(frozen=True, slots=True)
class ChainSummary:
    """One of the compared chains.

    Attributes:
        session_id: Its session.
        branch_id: Its branch.
        name: Name of the session.
        branch: Name of the branch.
        policy: Its policy.
        model: Its model.
        certificate: What may be claimed of it.
        text: Its text without the end token.
        steps: Its steps.
        finished: Why it ended; None while it can go on.
        prompt: Its prompt.
        spans: Its spans, kept and suggested ones included.
        settings: What it was started with.
        calibration: Its calibration; None without, or if it is gone.
        branches: All branches of its session.
        warnings: Sentences to show with it.
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
    """

    session_id: int
    branch_id: int
    name: str
    branch: str
    policy: str
    model: str
    certificate: str
    text: str
    steps: tuple[Step, ...]
    finished: str | None
    prompt: str
    spans: tuple[Span, ...]
    settings: AuditSettings
    calibration: CalibrationSummary | None
    branches: tuple[BranchOutline, ...]
    warnings: tuple[str, ...]
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

    @property
    def key_value_bytes(self) -> int | None:
        """Computed memory of keys and values of all branches with all tokens; None where it is unknown."""
        own = self.footprint
        return own.key_value_bytes(len(self.steps)) if own is not None and own.known else None


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
class StepDivergence:
    """How far a step's fused view is from its masked and its factual view, as stored with it, in each chain.

    Attributes:
        step: The step, 0-based.
        kl: ``KL(fused || masked)`` in nats, one a chain; None where the chain is shorter.
        tv: Total variation of both on the certified set, one a chain; None where there is no set.
        log_ratio: Log-ratio of the token's factual to masked probability, one a chain.
        kl_factual: ``KL(fused || factual)`` in nats, the divergence from vanilla after the same prefix, one a chain;
            None where the step was stored without it, or where it says nothing of the audited model.
        tv_factual: Total variation of the same two, one a chain.
    """

    step: int
    kl: tuple[float | None, ...]
    tv: tuple[float | None, ...]
    log_ratio: tuple[float | None, ...]
    kl_factual: tuple[float | None, ...]
    tv_factual: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class PairComparison:
    """The first chain beside another one.

    Attributes:
        other: Place of the other chain among the compared ones.
        rows: Both chains aligned, in reading order.
        first_divergence: First step at which they have different tokens, or only one has any; None if they are equal.
        same: Rows with the same token.
        changed: Rows with another token in its place.
        removed: Rows of the first chain alone.
        added: Rows of the other chain alone.
        by_text: Whether tokens were compared by their text, since the models have different vocabularies.
        differences: (setting, value of the first, value of the other) for all that the sessions do not share.
    """

    other: int
    rows: tuple[AlignedRow, ...]
    first_divergence: int | None
    same: int
    changed: int
    removed: int
    added: int
    by_text: bool
    differences: tuple[tuple[str, str, str], ...]

    @property
    def sentence(self) -> str:
        """The comparison in words."""
        if self.first_divergence is None:
            return f"Both chains have the same {self.same} tokens."
        parts = [f"They part at token {self.first_divergence + 1}"]
        parts += [
            f"{count} {word}"
            for count, word in ((self.changed, "changed"), (self.removed, "left out"), (self.added, "added"))
            if count
        ]
        return f"{'; '.join(parts)}; {self.same} tokens are shared."


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two or more chains beside each other.

    Attributes:
        chains: The chains; the others are compared with the first.
        pairs: One a further chain.
        divergence: What is stored of each step, to the end of the longest chain.
        notes: Sentences that must be shown with it.
        rows: All chains aligned with the first, in reading order.
    """

    chains: tuple[ChainSummary, ...]
    pairs: tuple[PairComparison, ...]
    divergence: tuple[StepDivergence, ...]
    notes: tuple[str, ...]
    rows: tuple[ComparedRow, ...] = ()


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


@dataclass(frozen=True, slots=True)
class SetSummary:
    """A comparison over a prompt set in a list."""

    id: int
    name: str
    created_at: datetime
    rows: int
    policies: tuple[str, ...]
    running: bool


@dataclass(frozen=True, slots=True)
class StoredPromptSet:
    """A prompt set of an earlier upload in a menu."""

    id: int
    name: str
    filename: str
    rows: int
    created_at: datetime
