"""Reading a verdict log: who may see which entries, where reviewers differ, and what they say of the same targets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, get_args

from app.shared.errors import ServiceError
from app.shared.verdicts import (
    ReviewView,
    StandingVerdict,
    entry_json,
    owner_of,
    published,
    reviews,
    standing,
    target_json,
)
from coft_core.types import Step
from db.audits import SessionRecord
from db.sessions import SessionsRepository
from db.verdicts import AnnotationRecord, Target, Verdict

VERDICTS: tuple[str, ...] = get_args(Verdict)
"""What a reviewer can say, in the order in which pages list it."""
NEIGHBOURS, LONGEST_PASSAGE = 60, 400
"""Characters that are shown on either side of what is judged, and of a whole text."""


@dataclass(frozen=True, slots=True)
class VerdictRequest:
    """A verdict to be given."""

    session_id: int
    reviewer: str
    verdict: str | None
    branch_id: int | None = None
    first_step: int | None = None
    last_step: int | None = None
    note: str = ""
    tag: str = ""


def target_of(sessions: SessionsRepository, request: VerdictRequest) -> Target:
    """The target as the log names it: on the branch that made its last step, whichever branch is looked at."""
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
            f"Steps {first + 1} to {last + 1} are not in the text of branch {branch.path}, which has {length} "
            "steps; choose a first step that is not after the last."
        )
    owner = owner_of(branches, branch, last)
    return Target(owner.path, owner.id, first, last)


def open_review(entries: Sequence[AnnotationRecord], reviewer: str) -> ReviewView | None:
    """A reviewer's review that is not finished."""
    return next((review for review in reviews(entries) if review.reviewer == reviewer and review.open), None)


def is_blind(entries: Sequence[AnnotationRecord], reviewer: str) -> bool:
    """Whether a reviewer is in the middle of a blind review."""
    review = open_review(entries, reviewer)
    return review is not None and review.blind


def may_have_seen_others(entries: Sequence[AnnotationRecord], reviewer: str) -> bool:
    """Whether the verdicts of others were open to a reviewer at any moment at which they worked here."""
    others = False
    for entry in entries:
        if entry.reviewer != reviewer:
            others = others or entry.speaks
        elif others and (not entry.blind or entry.kind == "review_finished"):
            return True
        elif entry.kind == "review_finished":
            # From here on they are shown everything, also what others say later.
            return True
    return False


def visible(entries: Sequence[AnnotationRecord], reviewer: str | None) -> tuple[AnnotationRecord, ...]:
    """The entries that a reader may see."""
    if reviewer is None:
        return tuple(entries)
    if not reviewer:
        return published(entries)
    if not is_blind(entries, reviewer):
        return tuple(entries)
    return tuple(entry for entry in entries if entry.reviewer == reviewer)


def newest_of_others(entries: Iterable[AnnotationRecord], reviewer: str) -> int:
    """Number of the newest entry in which somebody else says something; 0 without any."""
    return max((entry.entry for entry in entries if entry.speaks and entry.reviewer != reviewer), default=0)


def is_closed(entries: Iterable[AnnotationRecord], reviewer: str, reviewers: Collection[str], reveal: bool) -> bool:
    """Whether verdicts stay closed until the reader chose between a blind review and looking at them."""
    return not reveal and reviewer not in reviewers and newest_of_others(entries, reviewer) > 0


def disagreements(entries: Iterable[AnnotationRecord]) -> tuple[StandingVerdict, ...]:
    """Targets on which reviewers differ, decided or not."""
    return tuple(item for item in standing(entries) if len({o.verdict for o in item.opinions}) > 1)


def paired(entries: Sequence[AnnotationRecord], first: str, second: str) -> list[tuple[str, str, bool]]:
    """What two reviewers said of every target that both judged, and whether the later of them judged it blind."""
    said = [independent_verdicts(entries, name) for name in (first, second)]
    pairs = []
    for key in sorted(said[0].keys() & said[1].keys()):
        one, other = said[0][key], said[1][key]
        pairs.append((str(one.verdict), str(other.verdict), max(one, other, key=lambda entry: entry.entry).blind))
    return pairs


def independent_verdicts(
    entries: Sequence[AnnotationRecord], reviewer: str
) -> dict[tuple[str, int, int], AnnotationRecord]:
    """A reviewer's verdicts by the keys of their targets, withdrawn ones left out.

    The last blind verdict counts where there is one: what is said after the others were seen is not an independent
    judgement. Otherwise the last verdict counts.
    """
    latest: dict[tuple[str, int, int], AnnotationRecord] = {}
    for entry in entries:
        if entry.reviewer != reviewer or entry.kind != "verdict":
            continue
        earlier = latest.get(entry.target.key)
        if earlier is None or entry.blind or not earlier.blind:
            latest[entry.target.key] = entry
    return {key: entry for key, entry in latest.items() if entry.verdict is not None}


def standing_json(item: StandingVerdict) -> dict[str, Any]:
    """How one target stands."""
    return {
        **target_json(item.target),
        "status": item.status,
        "verdict": item.verdict,
        "opinions": [entry_json(entry) for entry in item.opinions],
        "adjudication": None if item.adjudication is None else entry_json(item.adjudication),
    }


@dataclass(frozen=True, slots=True)
class Passage:
    """What a verdict is about, with the text around it; a whole session or branch has no words of its own."""

    before: str
    words: str = ""
    after: str = ""


def passages_of(
    targets: Iterable[Target], record: SessionRecord, chain: Callable[[int], Sequence[Step]]
) -> dict[tuple[str, int, int], Passage]:
    """The passage of each target by the target's key; a session is shown by its active branch."""
    steps_of = cache(chain)
    found = {}
    for target in targets:
        tokens = [step.token for step in steps_of(target.branch_id or record.active_branch_id)]
        if target.first_step is None or target.last_step is None:
            found[target.key] = Passage((record.prompt + "".join(tokens))[:LONGEST_PASSAGE])
            continue
        first, end = target.first_step, target.last_step + 1
        before = (record.prompt + "".join(tokens[:first]))[-NEIGHBOURS:]
        found[target.key] = Passage(before, "".join(tokens[first:end]), "".join(tokens[end:])[:NEIGHBOURS])
    return found


def opinions_by_target(entries: Sequence[AnnotationRecord]) -> list[dict[str, str]]:
    """What each reviewer said of each target, by independent verdicts; targets in the order of their keys."""
    by_target: dict[tuple[str, int, int], dict[str, str]] = {}
    for reviewer in sorted({entry.reviewer for entry in entries if entry.kind == "verdict"}):
        for key, entry in independent_verdicts(entries, reviewer).items():
            by_target.setdefault(key, {})[reviewer] = str(entry.verdict)
    return [by_target[key] for key in sorted(by_target)]


def disputed_since(item: StandingVerdict) -> datetime:
    """When the opinions on a disputed target began to differ: the first of those that stand which says otherwise."""
    first, *others = item.opinions
    return next(entry.created_at for entry in others if entry.verdict != first.verdict)


def comments_of(entries: Iterable[AnnotationRecord]) -> dict[tuple[str, int, int], tuple[AnnotationRecord, ...]]:
    """The thread on each target, oldest comment first, by the target's key."""
    threads: dict[tuple[str, int, int], tuple[AnnotationRecord, ...]] = {}
    for entry in entries:
        if entry.kind == "comment":
            threads[entry.target.key] = (*threads.get(entry.target.key, ()), entry)
    return threads
