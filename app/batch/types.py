"""Batch audits as the services take and give them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from app.shared.audits import AuditSettings
from app.shared.jobs import JobView

BatchOrder = Literal[
    "line", "prompt", "group", "steps", "certified_share", "fallbacks", "overruled", "mean_log_ratio", "max_log_ratio",
    "min_margin", "certificate", "verdict", "state",
]  # fmt: skip
"""What the rows of a batch are sorted by."""

RowState = Literal["waiting", "unfinished", "finished", "failed", "deleted"]
"""Not begun; begun and not at its end; at its end; could not be run; its session has been deleted since."""


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """A request to audit every prompt of a set with the same settings.

    Attributes:
        name: Name of the batch.
        settings: Settings of every session.
        accept_errors: Go on with the good rows although others cannot be used.
        same_seed: Give every session the settings' seed. Otherwise rows of one context share a seed and contexts have
            different ones, so that chance does not tie contexts to each other.
        group_thresholds: Audit each row under the thresholds of its own group, with a calibration by group.
    """

    name: str
    settings: AuditSettings = field(default_factory=AuditSettings)
    accept_errors: bool = False
    same_seed: bool = False
    group_thresholds: bool = False


@dataclass(frozen=True, slots=True)
class BatchEstimate:
    """What a batch will take, from a few steps of one of its own prompts.

    Attributes:
        prompts: Prompts that can be used.
        contexts: Independent contexts among them.
        groups: Groups that they name.
        tokens: Tokens at most, if every chain runs to its last step.
        seconds: Time that the model takes for them, in seconds.
    """

    prompts: int
    contexts: int
    groups: int
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """A batch in a list.

    Attributes:
        id: Its id.
        name: Its name.
        created_at: When it was submitted.
        rows: Number of its prompts.
        job: The job that ran it last; None if it is not known any more.
    """

    id: int
    name: str
    created_at: datetime
    rows: int
    job: JobView | None


@dataclass(frozen=True, slots=True)
class BatchRowView:
    """One prompt of a batch and what its session says; numbers are of the session's main branch.

    Attributes:
        line: Line in the file.
        state: How far it is.
        session_id: Its session; None if there is none.
        prompt: Its prompt.
        reference: Its reference, if it has one.
        group: Its group.
        context: Its context.
        text: The continuation so far.
        error: Why it could not be run; empty if it could.
        certificate: What may be claimed of the session; empty without one.
        verdict: How the verdict on the whole session stands: ``fair``, ``unfair``, ``unclear``, ``disputed`` or empty.
        verdicts: Tokens, spans, branches and sessions on which a verdict stands.
        steps: Number of tokens.
        certified_share: Share of them that are certified; None without tokens, or where the session is uncertified.
        fallbacks: Steps at which no token was certified; None where nothing is thresholded.
        overruled: Steps at which certification refused the token that the fused view finds likeliest, others being
            certified; None where nothing is thresholded.
        mean_log_ratio: Mean absolute log-ratio of the tokens' factual to masked probability; None without tokens.
        max_log_ratio: Largest of them.
        min_margin: Smallest margin by which a token's support clears the threshold, in nats; None without tokens
            or where nothing is thresholded; infinite where the thresholds certify everything.
        archived: Whether the session is archived.
    """

    line: int
    state: RowState
    session_id: int | None
    prompt: str
    reference: str | None
    group: str | None
    context: str | None
    text: str
    error: str
    certificate: str
    verdict: str
    verdicts: int
    steps: int
    certified_share: float | None
    fallbacks: int | None
    overruled: int | None
    mean_log_ratio: float | None
    max_log_ratio: float | None
    min_margin: float | None
    archived: bool


@dataclass(frozen=True, slots=True)
class MeanInterval:
    """The mean of a measure over a group's contexts.

    Attributes:
        measure: Field of :class:`BatchRowView`.
        mean: Mean of the contexts' means; None if no row has a finite value.
        low: Lower end of the 95 % interval of the mean; None where fewer than two contexts differ, which tells nothing
            of its spread.
        high: Upper end.
        contexts: Contexts that it rests on.
        left_out: Finished rows without a finite value, which it leaves out.
    """

    measure: str
    mean: float | None
    low: float | None
    high: float | None
    contexts: int
    left_out: int


@dataclass(frozen=True, slots=True)
class GroupTotals:
    """What the finished rows of a group come to.

    Attributes:
        group: Its name; None for rows without a group.
        rows: Finished rows.
        contexts: Independent contexts among them; rows that share one count once.
        means: One a measure, in the order in which tables show them.
    """

    group: str | None
    rows: int
    contexts: int
    means: tuple[MeanInterval, ...]


@dataclass(frozen=True, slots=True)
class BatchView:
    """A batch as a page shows it.

    Attributes:
        id: Its id.
        name: Its name.
        request: What was asked.
        filename: Name of the file with its prompts.
        created_at: When it was submitted.
        rows: Its rows, sorted as asked.
        counts: Number of rows in each state that occurs.
        groups: Totals by group, in the order in which groups first appear in the file.
        job: The job that ran it last; None if it is not known any more.
        resumable: Whether it stands still with rows left to run.
        notes: Sentences that must be shown with it.
    """

    id: int
    name: str
    request: BatchRequest
    filename: str
    created_at: datetime
    rows: tuple[BatchRowView, ...]
    counts: dict[RowState, int]
    groups: tuple[GroupTotals, ...]
    job: JobView | None
    resumable: bool
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OutcomeRule:
    """How a continuation is read as an outcome.

    Attributes:
        selected: A word or phrase, or a regular expression: whoever's continuation has it is selected.
        other: A second one; with it, the one that stands first decides, and where neither does nothing is decided.
        regex: Whether they are regular expressions instead of words.
        match_case: Whether letter case matters.
    """

    selected: str
    other: str = ""
    regex: bool = False
    match_case: bool = False


@dataclass(frozen=True, slots=True)
class RowOutcome:
    """The outcome of one row."""

    line: int
    group: str | None
    selected: bool


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcomes of a batch's finished rows.

    Attributes:
        rows: Those that are decided, in the order of the rows.
        undecided: Lines of finished rows in which neither of the two words stands.
        unfinished: Lines of rows without a finished continuation.
    """

    rows: tuple[RowOutcome, ...]
    undecided: tuple[int, ...]
    unfinished: tuple[int, ...]

    @property
    def pairs(self) -> list[tuple[str | None, bool]]:
        """Group and outcome of each decided row, as impact tables take them."""
        return [(row.group, row.selected) for row in self.rows]

    @property
    def notes(self) -> tuple[str, ...]:
        """What is left out and must be said with a table of them."""
        found = []
        if self.undecided:
            found.append(f"{_rows(len(self.undecided))} with neither word in the continuation: in no rate.")
        if self.unfinished:
            found.append(f"{_rows(len(self.unfinished))} without a finished continuation: in no rate.")
        return tuple(found)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"
