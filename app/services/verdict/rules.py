"""What follows from a verdict log: who may see what, which verdict stands, and what two reviewers said independently.

Pure functions of the log's entries, so that a report that left the program is read by the same rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from app.services.views.verdicts import LogEntry, ReviewView, StandingVerdict, Target
from db.records import AnnotationRecord


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
