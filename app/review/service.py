"""Verdicts of reviewers: an append-only log, blind second reviews, decisions of disagreements, and agreement.

On a server with accounts the account signs and reads, whatever name a request gives, so that nobody reads past a
blind review of their own. Without accounts blindness is a rule between people who use their own names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from app.review.agreement import Agreement, TeamAgreement, cohen_kappa, krippendorff_alpha
from app.review.log import (
    VERDICTS,
    Passage,
    VerdictRequest,
    disagreements,
    disputed_since,
    is_blind,
    is_closed,
    may_have_seen_others,
    newest_of_others,
    open_review,
    opinions_by_target,
    paired,
    passages_of,
    standing_json,
    target_of,
    visible,
)
from app.shared.errors import ServiceError
from app.shared.files import write_text
from app.shared.verdicts import (
    LogCheck,
    ReviewView,
    StandingVerdict,
    check_log,
    entry_json,
    log_csv,
    reviews,
    standing,
    under_blind_review,
)
from app.shared.visitors import present_account
from app.shared.wiring import Services
from db.assignments import AssignmentsRepository, ReadingsRepository
from db.sessions import SessionsRepository
from db.verdicts import AnnotationFields, AnnotationRecord, AnnotationsRepository, LogKind, Target, Tombstone, Verdict

LONGEST_NAME = 200
LONGEST_TAG = 100
LONGEST_NOTE = 20_000


@dataclass(frozen=True, slots=True)
class CurrentVerdicts:
    """The verdicts of a session as one reader may see them."""

    session_id: int
    targets: tuple[StandingVerdict, ...]
    reviews: tuple[ReviewView, ...] = ()
    review: ReviewView | None = None
    hidden: int = 0
    newest: int = 0
    comments: tuple[AnnotationRecord, ...] = ()

    @property
    def in_blind_review(self) -> bool:
        """Whether the reader is in the middle of a blind review."""
        return self.review is not None and self.review.open and self.review.blind


@dataclass(frozen=True, slots=True)
class ReviewSheet:
    """Everything that a reviewer needs to go through a session's verdicts."""

    session_id: int
    name: str
    prompt: str
    current: CurrentVerdicts
    log: tuple[AnnotationRecord, ...]
    check: LogCheck
    passages: dict[tuple[str, int, int], Passage]
    branches: dict[int, str]
    reviewers: tuple[str, ...]
    may_be_blind: bool = True


@dataclass(frozen=True, slots=True)
class ReviewerAgreement:
    """How far two reviewers agree, on one session or on all that both judged."""

    first: str
    second: str
    result: Agreement
    blind_pairs: int
    sessions: int
    waiting: int = 0

    @property
    def sentence(self) -> str:
        """The result in words, with how far it rests on blind judgements."""
        text = f"{self.first} and {self.second}: {self.result.sentence}"
        if self.result.pairs:
            text += f" {self.blind_pairs} of the {self.result.pairs} were judged blind by the later of the two."
        return f"{text} {waiting_sentence(self.waiting)}".strip()


@dataclass(frozen=True, slots=True)
class DisputedTarget:
    """A target on which reviewers differ, and nobody has decided."""

    session_id: int
    session: str
    item: StandingVerdict
    since: datetime
    passage: Passage


@dataclass(frozen=True, slots=True)
class DisputeQueue:
    """What waits for a decision, as far as a reader may see it."""

    targets: tuple[DisputedTarget, ...]
    waiting: int = 0
    assigned: int = 0

    @property
    def sentence(self) -> str:
        """The counts in words."""
        targets = "1 target waits" if len(self.targets) == 1 else f"{len(self.targets)} targets wait"
        parts = [f"{targets} for a decision." if self.targets else "Nothing waits for a decision."]
        parts.append(waiting_sentence(self.waiting))
        if self.assigned:
            sessions = "1 session is" if self.assigned == 1 else f"{self.assigned} sessions are"
            parts.append(f"{sessions} left out until you finish the review that is assigned to you.")
        return " ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class TeamFinding:
    """How far all reviewers agree, on one session or on all."""

    reviewers: tuple[str, ...]
    result: ReviewerAgreement | TeamAgreement | None
    sessions: int = 0
    waiting: int = 0

    @property
    def sentence(self) -> str:
        """The finding in words, with its number and interval or why there is none."""
        if isinstance(self.result, ReviewerAgreement):
            return self.result.sentence
        if self.result is None:
            who = f"only {self.reviewers[0]} has" if self.reviewers else "nobody has"
            text = f"Agreement needs two reviewers who judged the same targets; so far {who} judged anything."
        else:
            text = self.result.sentence
        return f"{text} {waiting_sentence(self.waiting)}".strip()


def waiting_sentence(waiting: int) -> str:
    """How many sessions are left out until blind reviews of them are finished; empty for none."""
    if not waiting:
        return ""
    sessions = "session is" if waiting == 1 else "sessions are"
    return f"{waiting} {sessions} left out until the blind review there is finished."


def verdicts_json(current: CurrentVerdicts, log: tuple[AnnotationRecord, ...]) -> dict[str, Any]:
    """How the targets of a session stand, and the log, as far as the reader may see both."""
    return {
        "session_id": current.session_id,
        "targets": [standing_json(item) for item in current.targets],
        "log": [entry_json(entry) for entry in log],
        "hidden": current.hidden,
        "reviews": [
            {name: it.isoformat() if isinstance(it, datetime) else it for name, it in asdict(item).items()}
            for item in current.reviews
        ],
    }


class VerdictService:
    """What reviewers say of sessions, spans and tokens."""

    def __init__(self, services: Services) -> None:
        self._sessions = services[SessionsRepository]
        self._log = services[AnnotationsRepository]
        self._readings = services[ReadingsRepository]
        self._assignments = services[AssignmentsRepository]

    def add(self, request: VerdictRequest) -> AnnotationRecord:
        """Write a verdict into the log; it takes the place of the reviewer's earlier one on the same target."""
        reviewer = signature(request.reviewer)
        blind = is_blind(self._entries(request.session_id), reviewer)
        return self._write(request, reviewer, target_of(self._sessions, request), "verdict", blind)

    def comment(self, request: VerdictRequest) -> AnnotationRecord:
        """Add a comment to the thread on a target; it stays, and a blind review hides it too."""
        reviewer = signature(request.reviewer)
        if not request.note.strip():
            raise ServiceError("The comment says nothing; write a text.")
        if request.verdict is not None:
            raise ServiceError("A comment gives no verdict; give the verdict by itself.")
        blind = is_blind(self._entries(request.session_id), reviewer)
        return self._write(request, reviewer, target_of(self._sessions, request), "comment", blind)

    def history(self, session_id: int, reviewer: str | None = None) -> tuple[AnnotationRecord, ...]:
        """The log as far as a reader may see it, oldest entry first; see :meth:`current`."""
        return self._shown(session_id, self._entries(session_id), _reader(reviewer))

    def whole_history(self, session_id: int) -> tuple[AnnotationRecord, ...]:
        """The whole log, as a report tells it; an account that reads it is taken to have seen what others said."""
        entries = self._entries(session_id)
        shown = self._shown(session_id, entries, _reader(None))
        if len(shown) < len(entries):
            raise ServiceError(
                f"You review session {session_id} blind, and a report would show what others said of it; finish your "
                "review first."
            )
        return entries

    def current(self, session_id: int, reviewer: str | None = None) -> CurrentVerdicts:
        """How every target stands, as far as the reader may see it."""
        entries, name = self._entries(session_id), _reader(reviewer)
        return _current(session_id, entries, self._shown(session_id, entries, name), name)

    def sheet(self, session_id: int, reviewer: str | None = None, reveal: bool = True) -> ReviewSheet:
        """Everything that a reviewer needs to go through a session's verdicts."""
        entries, name = self._entries(session_id), _reader(reviewer)
        reviewers = tuple(sorted({entry.reviewer for entry in entries}))
        shown = visible(entries, name)
        if name is None or not is_closed(shown, name, reviewers, reveal):
            self._shown(session_id, entries, name)
        current = _current(session_id, entries, shown, name)
        record, branches = self._sessions.get(session_id), self._sessions.branches(session_id)
        return ReviewSheet(
            session_id=session_id,
            name=record.name,
            prompt=record.prompt,
            current=current,
            log=shown,
            check=self.verify_log(session_id),
            passages=passages_of([item.target for item in current.targets], record, self._sessions.chain),
            branches={branch.id: branch.name for branch in branches},
            reviewers=reviewers,
            may_be_blind=not name or not self._may_have_seen(session_id, entries, name),
        )

    def reviewers(self) -> tuple[str, ...]:
        """Everybody who has written into a log, sorted."""
        return tuple(self._log.reviewers())

    def write_csv(self, session_id: int, folder: Path, reviewer: str | None = None) -> Path:
        """Write the log, as far as the reader may see it, as a CSV file into a folder, and return its path."""
        path = Path(folder) / f"verdict-log-{session_id}.csv"
        return write_text(path, log_csv(session_id, self.history(session_id, reviewer)))

    def start_review(self, session_id: int, reviewer: str, blind: bool = True) -> ReviewView:
        """Open a review; in a blind one the verdicts of others stay hidden from the reviewer until it is finished."""
        name, entries = signature(reviewer), self._entries(session_id)
        if open_review(entries, name) is not None:
            raise ServiceError(f"{name} has an open review of session {session_id}; finish that one first.")
        if blind and self._may_have_seen(session_id, entries, name):
            raise ServiceError(
                f"{name} may have seen the verdicts of others on session {session_id}, so a review of it cannot be "
                "blind any more; open it as a review that is not blind, or let someone else review it."
            )
        entry = self._log.add(
            AnnotationFields(session_id=session_id, reviewer=name, kind="review_started", blind=blind)
        )
        return ReviewView(name, blind, entry.created_at)

    def finish_review(self, session_id: int, reviewer: str) -> ReviewView:
        """Submit a review; from here on the reviewer sees the verdicts of others."""
        name, entries = signature(reviewer), self._entries(session_id)
        review = open_review(entries, name)
        if review is None:
            raise ServiceError(f"{name} has no open review of session {session_id}; start one first.")
        entry = self._log.add(
            AnnotationFields(session_id=session_id, reviewer=name, kind="review_finished", blind=review.blind)
        )
        return ReviewView(name, review.blind, review.started_at, entry.created_at)

    def adjudicate(self, request: VerdictRequest) -> AnnotationRecord:
        """Decide a disagreement by a third reviewer's verdict; a later verdict on the target opens it again."""
        name, entries = signature(request.reviewer), self._entries(request.session_id)
        if is_blind(entries, name):
            raise ServiceError(f"{name} is in the middle of a blind review; finish it before deciding disagreements.")
        if request.verdict is None:
            raise ServiceError(f"A decision needs a verdict; choose {', '.join(VERDICTS)}.")
        target = target_of(self._sessions, request)
        dispute = next((item for item in disagreements(entries) if item.target.key == target.key), None)
        if dispute is None:
            raise ServiceError(f"The reviewers do not disagree on {target.label}; there is nothing to decide.")
        if name in {opinion.reviewer for opinion in dispute.opinions}:
            raise ServiceError(f"{name} is one of those who disagree on {target.label}; let a third person decide.")
        return self._write(request, name, target, "adjudication", False)

    def agreement(self, first: str, second: str, session_id: int | None = None) -> ReviewerAgreement:
        """Cohen's kappa of two reviewers over targets that both judged."""
        names = signed_name(first), signed_name(second)
        if names[0] == names[1]:
            raise ServiceError(f"{names[0]} always agrees with {names[0]}; name two reviewers.")
        return _agreement(names, self._logs(session_id, names))

    def _logs(self, session_id: int | None, names: Sequence[str] = ()) -> Mapping[int, Sequence[AnnotationRecord]]:
        """The log of one session, or those of all in which all of some reviewers have written."""
        if session_id is not None:
            return {session_id: self._entries(session_id)}
        logs = self._log.histories()
        return {number: log for number, log in logs.items() if {*names} <= {entry.reviewer for entry in log}}

    def disputes(self, reviewer: str | None = None) -> DisputeQueue:
        """Targets of all sessions on which reviewers differ and nobody has decided, the longest disputed first.

        Sessions that somebody reviews blind are left out until that review is finished, for every reader.
        """
        name = _reader(reviewer)
        own = set() if not name else {record.session_id for record in self._assignments.list(name)}
        targets: list[DisputedTarget] = []
        waiting = assigned = 0
        for session_id, entries in self._log.histories().items():
            open_disputes = [item for item in disagreements(entries) if item.status == "disputed"]
            if under_blind_review(entries):
                waiting += 1
            elif open_disputes and session_id in own and not _has_finished(entries, name):
                assigned += 1
            elif open_disputes:
                self._shown(session_id, tuple(entries), name)
                targets += self._disputed(session_id, open_disputes)
        return DisputeQueue(tuple(sorted(targets, key=lambda target: target.since)), waiting, assigned)

    def team_agreement(self, session_id: int | None = None, reviewers: Sequence[str] = ()) -> TeamFinding:
        """How far all reviewers agree: Cohen's kappa of two, Krippendorff's alpha of more.

        Sessions that somebody reviews blind are left out until that review is finished.
        """
        chosen = {signed_name(reviewer) for reviewer in reviewers}
        logs = self._logs(session_id)
        opinions, waiting, sessions = [], 0, 0
        for entries in logs.values():
            if under_blind_review(entries):
                waiting += 1
                continue
            targets = [_of(target, chosen) for target in opinions_by_target(entries)]
            sessions += any(len(target) > 1 for target in targets)
            opinions += targets
        names = tuple(sorted({reviewer for target in opinions for reviewer in target}))
        result: ReviewerAgreement | TeamAgreement | None = None
        if len(names) == 2:
            pair = names[0], names[1]
            result = _agreement(pair, self._logs(session_id, pair))
        elif len(names) > 2:
            result = krippendorff_alpha(opinions, VERDICTS)
        return TeamFinding(names, result, sessions, waiting)

    def verify_log(self, session_id: int) -> LogCheck:
        """Whether every entry of a session's log follows from the one before and says what it was written as."""
        return check_log(self._log.history(session_id))

    def tombstones(self) -> tuple[Tombstone, ...]:
        """What deleted sessions left of their logs, in the order of deletion."""
        return tuple(self._log.tombstones())

    def _entries(self, session_id: int) -> tuple[AnnotationRecord, ...]:
        return tuple(self._log.history(session_id))

    def _disputed(self, session_id: int, items: Sequence[StandingVerdict]) -> list[DisputedTarget]:
        record = self._sessions.get(session_id)
        passages = passages_of([item.target for item in items], record, self._sessions.chain)
        return [
            DisputedTarget(session_id, record.name, item, disputed_since(item), passages[item.target.key])
            for item in items
        ]

    def _shown(
        self, session_id: int, entries: tuple[AnnotationRecord, ...], name: str | None
    ) -> tuple[AnnotationRecord, ...]:
        """What a reader may see, which is written down where others say it."""
        shown = visible(entries, name)
        if name and (newest := newest_of_others(shown, name)):
            self._readings.note(session_id, name, newest)
        return shown

    def _may_have_seen(self, session_id: int, entries: tuple[AnnotationRecord, ...], name: str) -> bool:
        return may_have_seen_others(entries, name) or self._readings.of(session_id, name) is not None

    def _write(
        self, request: VerdictRequest, reviewer: str, target: Target, kind: LogKind, blind: bool
    ) -> AnnotationRecord:
        if request.verdict is not None and request.verdict not in VERDICTS:
            raise ServiceError(f"There is no verdict {request.verdict!r}; choose {', '.join(VERDICTS)}.")
        for text, longest, what in ((request.note, LONGEST_NOTE, "note"), (request.tag, LONGEST_TAG, "tag")):
            if len(text) > longest:
                raise ServiceError(f"The {what} has {len(text):,} characters; write at most {longest:,}.")
        return self._log.add(
            AnnotationFields(
                session_id=request.session_id,
                reviewer=reviewer,
                kind=kind,
                branch_id=target.branch_id,
                step_index=target.first_step,
                last_step_index=target.last_step,
                verdict=cast(Verdict | None, request.verdict),
                note=request.note.strip(),
                tag=request.tag.strip(),
                blind=blind,
            )
        )


def signed_name(reviewer: str) -> str:
    """A reviewer's name as it is written down."""
    name = " ".join(reviewer.split())
    if not name:
        raise ServiceError("The reviewer has no name; verdicts are signed, so type one.")
    if len(name) > LONGEST_NAME:
        raise ServiceError(f"The reviewer's name has {len(name)} characters; write at most {LONGEST_NAME}.")
    return name


def signature(reviewer: str) -> str:
    """What signs something: the account that is being answered, whatever name is given, or else that name."""
    account = present_account()
    return signed_name(reviewer) if account is None else account.name


def _reader(reviewer: str | None) -> str | None:
    """Who reads: empty is a visitor without a name, None the program itself; an account reads as nobody else."""
    if (account := present_account()) is not None:
        return account.name
    if reviewer is None:
        return None
    return signed_name(reviewer) if reviewer.strip() else ""


def _current(
    session_id: int, entries: tuple[AnnotationRecord, ...], shown: tuple[AnnotationRecord, ...], name: str | None
) -> CurrentVerdicts:
    opened = reviews(entries)
    own = [review for review in opened if review.reviewer == name]
    hidden = sum(entry.speaks for entry in entries) - sum(entry.speaks for entry in shown)
    newest = shown[-1].entry if shown else 0
    comments = tuple(entry for entry in shown if entry.kind == "comment")
    return CurrentVerdicts(session_id, standing(shown), opened, own[-1] if own else None, hidden, newest, comments)


def _has_finished(entries: Sequence[AnnotationRecord], name: str | None) -> bool:
    return any(review.reviewer == name and not review.open for review in reviews(entries))


def _of(target: dict[str, str], chosen: set[str]) -> dict[str, str]:
    return {reviewer: verdict for reviewer, verdict in target.items() if not chosen or reviewer in chosen}


def _agreement(names: tuple[str, str], logs: Mapping[int, Sequence[AnnotationRecord]]) -> ReviewerAgreement:
    """How far two reviewers agree over the logs of some sessions."""
    pairs, judged, waiting = [], 0, 0
    for entries in logs.values():
        if under_blind_review(entries):
            waiting += 1
            continue
        paired_verdicts = paired(entries, *names)
        judged += bool(paired_verdicts)
        pairs += paired_verdicts
    result = cohen_kappa([(one, other) for one, other, _ in pairs], VERDICTS)
    return ReviewerAgreement(*names, result, sum(blind for *_, blind in pairs), judged, waiting)
