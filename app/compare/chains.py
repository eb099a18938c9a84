"""Chains put beside each other: what each is, how each differs from the first, and what to know of both."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from difflib import SequenceMatcher
from itertools import groupby, zip_longest
from operator import attrgetter
from statistics import fmean, median
from typing import Literal, get_args

from app.jobs.service import JobView
from app.prompts.rows import BatchRowView, MeanInterval, RowState, mean_over
from app.shared.audits import AuditSettings, AuditView
from app.shared.errors import ServiceError
from app.shared.policies import KNOWN_POLICIES, fitted, info_of, policy_name
from app.shared.step_words import fused_overruled
from app.shared.thinking import stored_thinking
from coft_core.decode.cost import Footprint
from coft_core.fingerprint import same_digests
from coft_core.text.thinking import ChainThinking
from coft_core.types import Certificate, Step
from db.audits import SessionRecord
from db.batches import BatchRowRecord
from db.chains import BranchOutline
from db.comparisons import MeasuredStepRecord
from db.types import JsonObject

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
    """A place of all compared chains; see :func:`beside`."""

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
            return f"Both texts have the same {self.counts['same']} tokens."
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
    """A prompt of the set with the result of each column."""

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


def align(first: Sequence[Hashable], other: Sequence[Hashable]) -> tuple[AlignedRow, ...]:
    """The tokens of two chains in rows, each in exactly one, so that equal runs stand beside each other.

    Where both have something else between two equal runs, the tokens there stand beside each other one by one, and what
    is left over stands alone.
    """
    rows: list[AlignedRow] = []
    # A token that is frequent, such as a space, is no junk here.
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, first, other, autojunk=False).get_opcodes():
        for left, right in zip_longest(range(i1, i2), range(j1, j2)):
            if left is None:
                rows.append(AlignedRow("added", None, right))
            elif right is None:
                rows.append(AlignedRow("removed", left, None))
            else:
                rows.append(AlignedRow("same" if tag == "equal" else "changed", left, right))
    return tuple(rows)


def beside(length: int, pairs: Sequence[Sequence[AlignedRow]]) -> tuple[ComparedRow, ...]:
    """Several alignments with the same first chain, of so many tokens, as one table with each token in one row.

    What other chains have between two tokens of the first one stands there in rows of its own, each chain's next token
    in the next of them; tokens beside each other there are not aligned, since neither is in the first chain.
    """
    added: list[list[list[int]]] = [[[] for _ in range(length + 1)] for _ in pairs]
    facing: list[list[AlignedRow | None]] = [[None] * length for _ in pairs]
    for place, rows in enumerate(pairs):
        seen = 0
        for row in rows:
            if row.first is not None:
                facing[place][row.first] = row
                seen = row.first + 1
            elif row.other is not None:
                added[place][seen].append(row.other)
    facing_rows: list[ComparedRow] = []
    for index in range(length + 1):
        for number in range(max((len(steps[index]) for steps in added), default=0)):
            extra = [steps[index][number] if number < len(steps[index]) else None for steps in added]
            facing_rows.append(ComparedRow((None, *extra), (False, *(step is not None for step in extra))))
        if index < length:
            facing_rows.append(_facing_row(index, [steps[index] for steps in facing]))
    return tuple(facing_rows)


def _facing_row(index: int, rows: Sequence[AlignedRow | None]) -> ComparedRow:
    others = tuple(None if row is None else row.other for row in rows)
    differs = tuple(row is None or row.kind != "same" for row in rows)
    return ComparedRow((index, *others), (bool(rows) and all(differs), *differs))


def first_divergence(first: Sequence[Hashable], other: Sequence[Hashable]) -> int | None:
    """The first place at which two chains differ, the shorter one's end included; None if they are equal."""
    for index, (left, right) in enumerate(zip(first, other, strict=False)):
        if left != right:
            return index
    return None if len(first) == len(other) else min(len(first), len(other))


MOST_CHAINS = 8


def checked_columns(columns: Sequence[AuditSettings]) -> list[AuditSettings]:
    """The settings of each column with what its policy has not left out."""
    wanted = [fitted(settings, settings.policy) for settings in columns]
    if not 2 <= len(wanted) <= MOST_CHAINS:
        raise ServiceError(f"{len(wanted)} columns cannot be run beside each other; choose 2 to {MOST_CHAINS}.")
    if len(set(wanted)) < len(wanted):
        raise ServiceError("Two columns have the same policy and settings; change or remove one of them.")
    return wanted


def labels_of(columns: Sequence[AuditSettings]) -> list[str]:
    """What sessions and batches of one run are told apart by in their names."""
    twice = {policy for policy, times in Counter(column.policy for column in columns).items() if times > 1}
    titles = [policy_name(column.policy) for column in columns]
    return [
        f"{title} {place}" if column.policy in twice else title
        for place, (column, title) in enumerate(zip(columns, titles, strict=True), 1)
    ]


def own_model(settings: AuditSettings) -> bool:
    """Whether a policy decodes a checkpoint of its own: its factual view is then not the audited model's."""
    return any(item.key == settings.policy and item.kind == "training" for item in KNOWN_POLICIES)


SETTING_COLUMNS = ("policy", "lam", "alpha", "calibration_id", "mask_layout", "parameters", "model", "seed")


def setting_columns(settings: AuditSettings) -> dict[str, object]:
    """Settings in the columns of a table; what the policy makes nothing of is empty."""
    return {name: getattr(settings, name) for name in SETTING_COLUMNS} | {
        "lam": settings.lam if info_of(settings.policy).fuses else None,
        "alpha": None if settings.calibration_id is None else settings.alpha,
        "parameters": json.dumps(dict(settings.parameters)) if settings.parameters else None,
    }


MEASURES = (
    "parted", "mean_tv_factual", "mean_kl_factual", "mean_log_ratio", "certified_share", "fallbacks",
    "seconds_per_token", "key_value_bytes", "steps",
)  # fmt: skip
"""What is averaged over the prompts, in the order of the tables."""

NONE = "–"
"""Where there is nothing to say."""


def memory(size: int | None) -> str:
    """A number of bytes in a unit that suits it; a dash for none."""
    if not size:
        return NONE
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size / 1e3:.0f} kB"


MEANS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("parted", "Prompts with another text than column 1", lambda v: f"{100 * v:.0f} %"),
    ("mean_tv_factual", "From vanilla, total variation", lambda v: f"{v:.3f}"),
    ("mean_kl_factual", "From vanilla, KL in nats", lambda v: f"{v:.3f}"),
    ("mean_log_ratio", "Mean sensitivity, size only", lambda v: f"{v:.3f}"),
    ("certified_share", "Certified share", lambda v: f"{100 * v:.1f} %"),
    ("fallbacks", "Fallback steps a text", lambda v: f"{v:.2f}"),
    ("seconds_per_token", "Time per token, ms", lambda v: f"{1000 * v:.1f}"),
    ("key_value_bytes", "Keys and values, computed", lambda v: memory(round(v))),
)
"""Measure, its words, and how a value is written."""


def interval_words(item: MeanInterval, shown: Callable[[float], str]) -> str:
    """What a mean rests on: its 95 % interval and the number of contexts."""
    within = "" if item.low is None or item.high is None else f"{shown(item.low)} to {shown(item.high)}, "
    left = f", {item.left_out} left out" if item.left_out else ""
    return f"{within}n = {item.contexts}{left}"


Chain = Sequence[MeasuredStepRecord]


def footprint_from(data: JsonObject | None) -> Footprint | None:
    """A stored footprint; None for sessions that were stored without."""
    if data is None:
        return None
    rows = {name: tuple(int(size) for size in data[name]) for name in ("prompt_tokens", "token_bytes")}
    return Footprint(**rows, model_bytes=int(data["model_bytes"]), further_bytes=int(data["further_bytes"]))


def chains_of(steps: Iterable[MeasuredStepRecord]) -> dict[int, list[MeasuredStepRecord]]:
    """Steps by branch; they come chain after chain."""
    return {branch: list(grouped) for branch, grouped in groupby(steps, key=attrgetter("branch_id"))}


def cell_of(row: BatchRowView, chain: Chain, footprint: Footprint | None, own_model: bool) -> SetCell:
    """What a column says of one prompt; a checkpoint of its own has a factual view that is not vanilla's."""
    known = footprint is not None and footprint.known
    return SetCell(
        state=row.state,
        session_id=row.session_id,
        text=row.text,
        steps=row.steps,
        mean_kl_factual=None if own_model else mean_of(step.kl_fused_factual for step in chain),
        mean_tv_factual=None if own_model else mean_of(step.tv_fused_factual for step in chain),
        mean_log_ratio=row.mean_log_ratio,
        fallbacks=row.fallbacks,
        certified_share=row.certified_share,
        seconds_per_token=seconds_per_token(chain),
        key_value_bytes=footprint.key_value_bytes(len(chain)) if footprint and known and chain else None,
        peak_bytes=peak_bytes(chain),
        error=row.error,
    )


def mean_of(values: Iterable[float | None]) -> float | None:
    """Mean of a number over a chain; None where a step was stored without it, or there is no step."""
    numbers = list(values)
    known = [value for value in numbers if value is not None]
    return fmean(known) if known and len(known) == len(numbers) else None


def seconds_per_token(chain: Chain) -> float | None:
    """Median time of a step after the first, which also reads the prompt; None where none was measured."""
    seconds = [step.seconds for step in chain if step.index and step.seconds is not None]
    return median(seconds) if seconds else None


def peak_bytes(chain: Chain) -> int | None:
    """Most memory that the device held during any step; None where none was measured."""
    return max((step.peak_bytes for step in chain if step.peak_bytes is not None), default=None)


def parted(cells: Sequence[SetCell], chains: Sequence[Chain], by_text: bool) -> tuple[SetCell, ...]:
    """The cells of a row with the place at which each chain leaves the first one.

    Tokens are compared by their text where the models have different vocabularies.
    """
    tokens = [[step.token if by_text else step.token_id for step in chain] for chain in chains]
    cells_shown = [cells[0]]
    for cell, token in zip(cells[1:], tokens[1:], strict=True):
        at = first_divergence(tokens[0], token)
        # An end that is only the present one says nothing; two different tokens say it for good.
        ended = at is None or at >= min(len(tokens[0]), len(token))
        open_ended = ended and not cells[0].state == cell.state == "finished"
        cells_shown.append(cell if open_ended else replace(cell, parted_at=at, parted=at is not None))
    return tuple(cells_shown)


def column_means(rows: Sequence[SetRow], place: int) -> tuple[MeanInterval, ...]:
    """Means of a column over its finished prompts; rows that share a context count once, by their mean."""
    finished = [row for row in rows if row.cells[place].state == "finished"]
    return tuple(
        mean_over(measure, [(row.unit, getattr(row.cells[place], measure)) for row in finished]) for measure in MEASURES
    )


def largest(footprints: Iterable[Footprint | None]) -> Footprint | None:
    """The footprint with the most key-value memory before the first token."""
    known = [item for item in footprints if item is not None]
    return max(known, key=lambda item: item.key_value_bytes(0), default=None)


def by_line(
    records: Sequence[BatchRowRecord], steps: Mapping[int, list[MeasuredStepRecord]]
) -> dict[int, list[MeasuredStepRecord]]:
    """The main chain of each line; empty where there is none yet."""
    return {row.line: [] if row.root_branch_id is None else steps.get(row.root_branch_id, []) for row in records}


def compared(
    views: Sequence[AuditView], records: Sequence[SessionRecord], measured: Sequence[Sequence[MeasuredStepRecord]]
) -> Comparison:
    """Chains with the first of them: each with its session as it is stored, and what its steps took."""
    tokenizers = [record.fingerprint["tokenizer"] for record in records]
    pairs = tuple(
        _pair(views[0], view, place, by_text=not same_digests(tokenizers[place], tokenizers[0]))
        for place, view in enumerate(views)
        if place
    )
    chains = tuple(
        _summary(view, steps, footprint_from(record.footprint), stored_thinking(record.policy_settings))
        for view, steps, record in zip(views, measured, records, strict=True)
    )
    return Comparison(
        chains=chains,
        pairs=pairs,
        notes=tuple(_notes(views, pairs)),
        rows=beside(len(chains[0].steps), [pair.rows for pair in pairs]),
    )


def _summary(
    view: AuditView,
    measured: Sequence[MeasuredStepRecord],
    footprint: Footprint | None,
    thinking: ChainThinking | None,
) -> ChainSummary:
    apart = own_model(view.settings)
    claim = Certificate.read(view.certificate)
    thresholded = claim.thresholded
    ratios = [abs(step.diagnostics.log_ratio) for step in view.steps]
    return ChainSummary(
        view=view,
        certified=sum(step.certified for step in view.steps) if claim.certified else None,
        fallbacks=sum(step.fallback for step in view.steps) if thresholded else None,
        overruled=sum(fused_overruled(step) for step in view.steps) if thresholded else None,
        mean_log_ratio=sum(ratios) / len(ratios) if ratios else None,
        seconds_per_token=seconds_per_token(measured),
        mean_kl_factual=None if apart else mean_of(step.diagnostics.kl_fused_factual for step in view.steps),
        mean_tv_factual=None if apart else mean_of(step.diagnostics.tv_fused_factual for step in view.steps),
        own_model=apart,
        footprint=footprint,
        peak_bytes=peak_bytes(measured),
        thinking=thinking,
    )


def _pair(first: AuditView, other: AuditView, place: int, by_text: bool) -> PairComparison:
    left, right = ([step.token if by_text else step.token_id for step in view.steps] for view in (first, other))
    return PairComparison(
        other=place,
        rows=align(left, right),
        first_divergence=first_divergence(left, right),
        by_text=by_text,
        differences=tuple(_differences(first, other)),
    )


def _differences(first: AuditView, other: AuditView) -> Iterator[tuple[str, str, str]]:
    """What the sessions do not share; a setting that makes no difference to either is compared all the same."""
    left, right = asdict(first.settings), asdict(other.settings)
    pairs = [("prompt", first.prompt, other.prompt), ("spans", _spans(first), _spans(other))]
    pairs += [(name, str(left[name]), str(right[name])) for name in left]
    yield from (pair for pair in pairs if pair[1] != pair[2])


def _spans(view: AuditView) -> str:
    return ", ".join(f"{view.prompt[s.start : s.end]} ({s.category})" for s in view.spans if s.masked)


def _notes(views: Sequence[AuditView], pairs: Sequence[PairComparison]) -> Iterator[str]:
    if len({view.prompt for view in views}) > 1:
        yield "The sessions have different prompts, so that tokens can differ just for that reason."
    if len({view.settings.seed for view in views}) > 1 and not all(view.settings.greedy for view in views):
        yield "The sessions have different seeds, so that tokens can differ just by chance."
    if any(pair.by_text for pair in pairs):
        yield "The models have different vocabularies, so that tokens are compared by their text."
    if any(view.finished is None for view in views):
        yield "A text is not finished; what comes after its last token is not compared."
