"""What reviewers said of a session: the verdict on each target, the reviews, and whether the log is whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Any, Literal

from app.shared.files import to_csv
from db.audits import BranchRecord
from db.verdicts import AnnotationRecord, Target, first_break

VerdictStatus = Literal["withdrawn", "single", "agreed", "disputed", "adjudicated"]
"""The state of a target: no reviewer judges it any more, one does, several agree or differ, or it was decided."""


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
    """The verdict on a target, with the opinions that it follows from."""

    target: Target
    status: VerdictStatus
    verdict: str | None
    opinions: tuple[AnnotationRecord, ...]
    adjudication: AnnotationRecord | None = None

    @property
    def in_words(self) -> str:
        """The verdict in a word; ``disputed`` and ``withdrawn`` are words too."""
        return self.verdict or self.status

    @property
    def entries(self) -> tuple[AnnotationRecord, ...]:
        """The opinions, and the decision if there is one."""
        return self.opinions if self.adjudication is None else (*self.opinions, self.adjudication)

    @property
    def notes(self) -> str:
        """All notes in one line, each with its reviewer where there are several."""
        entries = self.entries
        return entries[0].note if len(entries) == 1 else "; ".join(_signed(entry) for entry in entries)


@dataclass(frozen=True, slots=True)
class LogCheck:
    """Whether a verdict log holds together."""

    entries: int
    head: str
    broken_entry: int | None
    sentence: str

    @property
    def whole(self) -> bool:
        """Whether every entry fits."""
        return self.broken_entry is None


def _signed(entry: AnnotationRecord) -> str:
    says = f"decides {entry.verdict}" if entry.kind == "adjudication" else str(entry.verdict)
    return f"{entry.reviewer} ({says}): {entry.note}" if entry.note else f"{entry.reviewer} ({says})"


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


def reviews(entries: Iterable[AnnotationRecord]) -> tuple[ReviewView, ...]:
    """All reviews that were opened, in the order of their beginnings."""
    views: list[ReviewView] = []
    for entry in entries:
        if entry.kind == "review_started":
            views.append(ReviewView(entry.reviewer, entry.blind, entry.created_at))
        elif entry.kind == "review_finished":
            opened = (place for place, view in enumerate(views) if view.reviewer == entry.reviewer and view.open)
            if (place := next(opened, None)) is not None:
                views[place] = replace(views[place], finished_at=entry.created_at)
    return tuple(views)


def under_blind_review(entries: Iterable[AnnotationRecord]) -> bool:
    """Whether anybody has begun a blind review and not finished it."""
    return any(review.blind and review.open for review in reviews(entries))


def published(entries: Sequence[AnnotationRecord]) -> tuple[AnnotationRecord, ...]:
    """What a visitor without a name may see: during a blind review only when reviews begin and end."""
    hidden = under_blind_review(entries)
    return tuple(entry for entry in entries if not (hidden and entry.speaks))


def standing(entries: Iterable[AnnotationRecord]) -> tuple[StandingVerdict, ...]:
    """The verdict on every target that somebody spoke about, the whole session first, then by position."""
    spoken = [entry for entry in entries if entry.judges]
    ordered = sorted(spoken, key=lambda entry: (entry.target.key, entry.entry))
    return tuple(_standing(list(group)) for _, group in groupby(ordered, key=lambda entry: entry.target.key))


def verdict_at(verdicts: Iterable[StandingVerdict], branch: str, step: int) -> StandingVerdict | None:
    """The verdict on a step: its own, or that of the shortest span around it."""
    covering = [item for item in verdicts if item.target.covers(branch, step) and item.status != "withdrawn"]
    return min(covering, key=lambda item: item.target.key[2] - item.target.key[1], default=None)


def _standing(entries: list[AnnotationRecord]) -> StandingVerdict:
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


def log_csv(session_id: int, entries: Iterable[AnnotationRecord]) -> str:
    """One row an entry of the verdict log; steps count from 1."""
    rows = [{**entry_json(entry), "session_id": session_id, "target": entry.target.label} for entry in entries]
    return to_csv(LOG_COLUMNS, rows)


def entry_json(entry: AnnotationRecord) -> dict[str, Any]:
    """One entry of the log."""
    return {
        "entry": entry.entry,
        "at": entry.created_at.isoformat(),
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
