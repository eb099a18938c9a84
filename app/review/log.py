"""The verdict log of a session: what its entries say, who may see them, and what stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any, Literal

from app.shared.errors import ServiceError
from app.shared.files import to_csv
from coft_core.types import Step
from db.audits import BranchRecord
from db.sessions import SessionsRepository
from db.verdicts import AnnotationRecord, first_break

VERDICTS: tuple[str, ...] = ("fair", "unfair", "unclear")
"""What a reviewer can say, in the order in which pages list it."""

VerdictStatus = Literal["withdrawn", "single", "agreed", "disputed", "adjudicated"]
"""How a target stands: nobody says anything any more, one reviewer does, several agree or differ, or it was decided."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a verdict is about.

    Attributes:
        branch: Path of the branch; None is the whole session.
        branch_id: Its database id; None where only the path is known, or for the whole session.
        first_step: First step, 0-based; None is the whole branch.
        last_step: Last step, inclusive; the same as the first for a token.
    """

    branch: str | None = None
    branch_id: int | None = None
    first_step: int | None = None
    last_step: int | None = None

    @property
    def kind(self) -> str:
        """``session``, ``branch``, ``token`` or ``span``."""
        if self.branch is None:
            return "session"
        if self.first_step is None:
            return "branch"
        return "token" if self.first_step == self.last_step else "span"

    @property
    def key(self) -> tuple[str, int, int]:
        """What tells targets of one session apart; sorts from the whole to its parts, then by position."""
        return (
            self.branch or "",
            -1 if self.first_step is None else self.first_step,
            -1 if self.last_step is None else self.last_step,
        )

    @property
    def label(self) -> str:
        """The target in words; steps count from 1."""
        return self.named(f"branch {self.branch}")

    def named(self, branch: str) -> str:
        """The target in words with another name for its branch; no name leaves the branch out."""
        if self.kind == "session":
            return "the whole session"
        if self.first_step is None or self.last_step is None:
            return branch or "the whole chain"
        steps = f"step {self.first_step + 1}"
        if self.kind == "span":
            steps = f"steps {self.first_step + 1}\N{EN DASH}{self.last_step + 1}"
        return f"{steps} of {branch}" if branch else steps

    def covers(self, branch: str, step: int) -> bool:
        """Whether it is about a step of a branch, alone or among others."""
        if self.branch != branch or self.first_step is None or self.last_step is None:
            return False
        return self.first_step <= step <= self.last_step


@dataclass(frozen=True, slots=True)
class VerdictRequest:
    """A verdict to be given.

    Attributes:
        session_id: The session.
        reviewer: Who gives it.
        verdict: One of :data:`VERDICTS`; None withdraws the reviewer's verdict, or leaves a note alone.
        branch_id: The branch that the reviewer looks at; None speaks of the whole session.
        first_step: First step of that branch's chain, 0-based; None speaks of the whole branch.
        last_step: Last step, inclusive; None is a single token.
        note: Why, in free text.
        tag: A short label, such as ``pronoun``.
    """

    session_id: int
    reviewer: str
    verdict: str | None
    branch_id: int | None = None
    first_step: int | None = None
    last_step: int | None = None
    note: str = ""
    tag: str = ""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of a session's verdict log.

    Attributes:
        entry: Its number, 1-based.
        kind: ``verdict``, ``adjudication``, ``review_started`` or ``review_finished``.
        reviewer: Who wrote it.
        target: What it is about.
        verdict: The verdict; None withdraws one, or says nothing.
        note: Free text.
        tag: A short label.
        blind: Whether its writer could not see the verdicts of others.
        at: When it was written.
        previous: Digest of the entry before it.
        digest: Its own digest.
    """

    entry: int
    kind: str
    reviewer: str
    target: Target
    verdict: str | None
    note: str
    tag: str
    blind: bool
    at: datetime
    previous: str
    digest: str


@dataclass(frozen=True, slots=True)
class ReviewView:
    """A review that was opened; ``finished_at`` is None while it is open."""

    reviewer: str
    blind: bool
    started_at: datetime
    finished_at: datetime | None = None

    @property
    def open(self) -> bool:
        """Whether it is not finished."""
        return self.finished_at is None


@dataclass(frozen=True, slots=True)
class StandingVerdict:
    """How a target stands.

    Attributes:
        target: The target.
        status: How the reviewers' opinions add up.
        verdict: The verdict that stands; None while it is disputed or withdrawn.
        opinions: The newest entry of each reviewer on it, oldest first; withdrawn ones are left out.
        adjudication: The decision, if there is one that is newer than all opinions.
    """

    target: Target
    status: VerdictStatus
    verdict: str | None
    opinions: tuple[LogEntry, ...]
    adjudication: LogEntry | None = None

    @property
    def in_words(self) -> str:
        """The verdict in a word; ``disputed`` and ``withdrawn`` are words too."""
        return self.verdict or self.status

    @property
    def entries(self) -> tuple[LogEntry, ...]:
        """The opinions, and the decision if there is one."""
        return self.opinions if self.adjudication is None else (*self.opinions, self.adjudication)

    @property
    def notes(self) -> str:
        """All notes in one line, each with its reviewer where there are several."""
        entries = self.entries
        return entries[0].note if len(entries) == 1 else "; ".join(_signed(entry) for entry in entries)


@dataclass(frozen=True, slots=True)
class LogCheck:
    """Whether a verdict log holds together.

    Attributes:
        entries: Number of its entries.
        head: Digest of the newest one; empty without entries.
        broken_entry: Number of the first entry that does not fit; None if all do.
        sentence: The finding in words.
    """

    entries: int
    head: str
    broken_entry: int | None
    sentence: str

    @property
    def whole(self) -> bool:
        """Whether every entry fits."""
        return self.broken_entry is None


def _signed(entry: LogEntry) -> str:
    says = f"decides {entry.verdict}" if entry.kind == "adjudication" else str(entry.verdict)
    return f"{entry.reviewer} ({says}): {entry.note}" if entry.note else f"{entry.reviewer} ({says})"


def target_of(sessions: SessionsRepository, request: VerdictRequest) -> Target:
    """The target as the log names it: on the branch that made its last step, whichever branch is looked at.

    Args:
        sessions: The store of sessions.
        request: What the verdict is said on.

    Raises:
        ServiceError: The branch is another session's, or the steps are not in its chain.
    """
    first, last = request.first_step, request.last_step
    if request.branch_id is None:
        if first is not None or last is not None:
            raise ServiceError("A verdict on steps needs the branch that they are on; name it.")
        return Target()
    branches = {branch.id: branch for branch in sessions.branches(request.session_id)}
    branch = branches.get(request.branch_id)
    if branch is None:
        raise ServiceError(f"Branch {request.branch_id} does not belong to session {request.session_id}.")
    if first is None:
        if last is not None:
            raise ServiceError("A verdict on a span needs its first step; name both ends.")
        return Target(branch.path, branch.id)
    last = first if last is None else last
    length = len(sessions.chain(branch.id))
    if not 0 <= first <= last < length:
        raise ServiceError(
            f"Steps {first + 1} to {last + 1} are not in the chain of branch {branch.path}, which has {length} "
            "steps; choose a first step that is not after the last."
        )
    owner = owner_of(branches, branch, last)
    return Target(owner.path, owner.id, first, last)


def owner_of(branches: dict[int, BranchRecord], branch: BranchRecord, step: int) -> BranchRecord:
    """The branch that made a step of a branch's chain."""
    while branch.parent_id is not None and step < (branch.fork_step or 0):
        branch = branches[branch.parent_id]
    return branch


def check_log(records: Sequence[AnnotationRecord]) -> LogCheck:
    """Whether a log, oldest entry first, holds together."""
    broken = first_break([(record.content, record.previous, record.digest) for record in records])
    head = records[-1].digest if records else ""
    if broken is not None:
        return LogCheck(len(records), head, broken.entry, broken.reason)
    if not records:
        return LogCheck(0, "", None, "The verdict log is empty.")
    entries = "its entry is" if len(records) == 1 else f"all {len(records)} entries are"
    return LogCheck(len(records), head, None, f"The verdict log is whole: {entries} as written.")


def log_entry(record: AnnotationRecord) -> LogEntry:
    """A stored entry as pages and reports see it."""
    return LogEntry(
        entry=record.entry,
        kind=record.kind,
        reviewer=record.reviewer,
        target=Target(record.branch_path, record.branch_id, record.step_index, record.last_step_index),
        verdict=record.verdict,
        note=record.note,
        tag=record.tag,
        blind=record.blind,
        at=record.created_at,
        previous=record.previous,
        digest=record.digest,
    )


def reviews(entries: Iterable[LogEntry]) -> tuple[ReviewView, ...]:
    """All reviews that were opened, in the order of their beginnings."""
    found: list[ReviewView] = []
    for entry in entries:
        if entry.kind == "review_started":
            found.append(ReviewView(entry.reviewer, entry.blind, entry.at))
        elif entry.kind == "review_finished":
            for index in reversed(range(len(found))):
                if found[index].reviewer == entry.reviewer and found[index].open:
                    found[index] = ReviewView(entry.reviewer, found[index].blind, found[index].started_at, entry.at)
                    break
    return tuple(found)


def open_review(entries: Sequence[LogEntry], reviewer: str) -> ReviewView | None:
    """A reviewer's review that is not finished."""
    return next((review for review in reviews(entries) if review.reviewer == reviewer and review.open), None)


def is_blind(entries: Sequence[LogEntry], reviewer: str) -> bool:
    """Whether a reviewer is in the middle of a blind review."""
    review = open_review(entries, reviewer)
    return review is not None and review.blind


def may_have_seen_others(entries: Sequence[LogEntry], reviewer: str) -> bool:
    """Whether the verdicts of others were open to a reviewer at any moment at which she was at work here."""
    others = False
    for entry in entries:
        if entry.reviewer != reviewer:
            others = others or entry.kind in ("verdict", "adjudication")
        elif others and (not entry.blind or entry.kind == "review_finished"):
            return True
        elif entry.kind == "review_finished":
            # From here on everything is shown to her, also what others are yet to say.
            return True
    return False


def visible(entries: Sequence[LogEntry], reviewer: str | None) -> tuple[LogEntry, ...]:
    """The entries that a reader may see: all, or during her own blind review only hers."""
    if reviewer is None or not is_blind(entries, reviewer):
        return tuple(entries)
    return tuple(entry for entry in entries if entry.reviewer == reviewer)


def standing(entries: Iterable[LogEntry]) -> tuple[StandingVerdict, ...]:
    """How every target stands that somebody spoke about, the whole session first, then by position."""
    spoken = [entry for entry in entries if entry.kind in ("verdict", "adjudication")]
    ordered = sorted(spoken, key=lambda entry: (entry.target.key, entry.entry))
    return tuple(_standing(list(group)) for _, group in groupby(ordered, key=lambda entry: entry.target.key))


def disagreements(entries: Iterable[LogEntry]) -> tuple[StandingVerdict, ...]:
    """Targets on which reviewers differ, decided or not."""
    return tuple(item for item in standing(entries) if len({o.verdict for o in item.opinions}) > 1)


def verdict_at(verdicts: Iterable[StandingVerdict], branch: str, step: int) -> StandingVerdict | None:
    """The verdict on a step: its own, or that of the shortest span around it."""
    covering = [item for item in verdicts if item.target.covers(branch, step) and item.status != "withdrawn"]
    return min(covering, key=lambda item: item.target.key[2] - item.target.key[1], default=None)


def paired(entries: Sequence[LogEntry], first: str, second: str) -> list[tuple[str, str, bool]]:
    """What two reviewers said of every target that both judged, and whether the later of them judged it blind.

    A reviewer's last blind verdict counts where there is one: what she says after she saw the others is no independent
    judgement any more. Otherwise her last verdict counts.
    """
    own = [_independent(entries, name) for name in (first, second)]
    pairs = []
    for key in sorted(own[0].keys() & own[1].keys()):
        one, other = own[0][key], own[1][key]
        pairs.append((str(one.verdict), str(other.verdict), max(one, other, key=lambda entry: entry.entry).blind))
    return pairs


def _independent(entries: Sequence[LogEntry], reviewer: str) -> dict[tuple[str, int, int], LogEntry]:
    found: dict[tuple[str, int, int], LogEntry] = {}
    for entry in entries:
        if entry.reviewer != reviewer or entry.kind != "verdict":
            continue
        earlier = found.get(entry.target.key)
        if earlier is None or entry.blind or not earlier.blind:
            found[entry.target.key] = entry
    return {key: entry for key, entry in found.items() if entry.verdict is not None}


def _standing(entries: list[LogEntry]) -> StandingVerdict:
    """One target from its entries, oldest first."""
    newest = {entry.reviewer: entry for entry in entries if entry.kind == "verdict"}
    opinions = sorted((e for e in newest.values() if e.verdict is not None), key=lambda entry: entry.entry)
    said = {entry.verdict for entry in opinions}
    decision = next((entry for entry in reversed(entries) if entry.kind == "adjudication"), None)
    # A verdict that came after the decision opens the question again.
    if decision is not None and any(entry.entry > decision.entry for entry in newest.values()):
        decision = None
    target = entries[0].target
    if decision is not None:
        return StandingVerdict(target, "adjudicated", decision.verdict, tuple(opinions), decision)
    if len(said) > 1:
        return StandingVerdict(target, "disputed", None, tuple(opinions))
    if not opinions:
        return StandingVerdict(target, "withdrawn", None, ())
    return StandingVerdict(target, "single" if len(opinions) == 1 else "agreed", opinions[0].verdict, tuple(opinions))


LOG_COLUMNS = (
    "session_id", "entry", "at", "kind", "reviewer", "blind", "target", "branch", "first_step", "last_step", "verdict",
    "tag", "note", "previous", "digest",
)  # fmt: skip


def log_csv(session_id: int, entries: Iterable[LogEntry]) -> str:
    """One row an entry of the verdict log; steps count from 1."""
    rows = [{**entry_json(entry), "session_id": session_id, "target": entry.target.label} for entry in entries]
    return to_csv(LOG_COLUMNS, rows)


def standing_json(item: StandingVerdict) -> dict[str, Any]:
    """How one target stands."""
    return {
        **target_json(item.target),
        "status": item.status,
        "verdict": item.verdict,
        "opinions": [entry_json(entry) for entry in item.opinions],
        "adjudication": None if item.adjudication is None else entry_json(item.adjudication),
    }


def entry_json(entry: LogEntry) -> dict[str, Any]:
    """One entry of the log."""
    return {
        "entry": entry.entry,
        "at": entry.at.isoformat(),
        "kind": entry.kind,
        "reviewer": entry.reviewer,
        "blind": entry.blind,
        **target_json(entry.target),
        "verdict": entry.verdict,
        "tag": entry.tag,
        "note": entry.note,
        "previous": entry.previous,
        "digest": entry.digest,
    }


def target_json(target: Target) -> dict[str, Any]:
    """What a verdict is about."""
    return {
        "target": target.kind,
        "branch": target.branch,
        "branch_id": target.branch_id,
        "first_step": None if target.first_step is None else target.first_step + 1,
        "last_step": None if target.last_step is None else target.last_step + 1,
    }


def words_of(targets: Iterable[Target], chain: Callable[[int], Sequence[Step]]) -> dict[tuple[str, int, int], str]:
    """The text of each target that is a step or a span, by the target's key.

    Args:
        targets: What verdicts are about.
        chain: Reads the chain of a branch by the branch's id; called once a branch.
    """
    chains: dict[int, Sequence[Step]] = {}
    texts = {}
    for target in targets:
        if target.branch_id is not None and target.first_step is not None and target.last_step is not None:
            if target.branch_id not in chains:
                chains[target.branch_id] = chain(target.branch_id)
            steps = chains[target.branch_id][target.first_step : target.last_step + 1]
            texts[target.key] = "".join(step.token for step in steps)
    return texts
