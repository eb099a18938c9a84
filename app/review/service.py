"""Verdicts of reviewers: an append-only log, blind second reviews, decisions of disagreements, and agreement.

Blindness is a rule of the program between people who use their own names; it is no access control.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from app.review.agreement import Agreement, cohen_kappa
from app.review.log import (
    VERDICTS,
    VerdictRequest,
    disagreements,
    is_blind,
    may_have_seen_others,
    open_review,
    paired,
    standing_json,
    target_of,
    visible,
    words_of,
)
from app.shared.errors import ServiceError
from app.shared.files import write_text
from app.shared.verdicts import LogCheck, ReviewView, StandingVerdict, check_log, entry_json, log_csv, reviews, standing
from app.shared.wiring import Services
from db.sessions import SessionsRepository
from db.verdicts import AnnotationFields, AnnotationRecord, AnnotationsRepository, LogKind, Target, Verdict

LONGEST_NAME = 200
LONGEST_TAG = 100
LONGEST_NOTE = 20_000


@dataclass(frozen=True, slots=True)
class CurrentVerdicts:
    """The verdicts of a session as one reader may see them.

    Attributes:
        session_id: The session.
        targets: How each target stands, the whole session first, then by position.
        reviews: All reviews that were opened.
        review: The reader's own newest review; None if she opened none, or if the reader is not named.
        hidden: Entries of others that she may not see before she finishes her blind review.
        newest: Number of the newest entry that the reader may see; 0 without any. It tells an older reading of the
            same reader from a newer one.
    """

    session_id: int
    targets: tuple[StandingVerdict, ...]
    reviews: tuple[ReviewView, ...] = ()
    review: ReviewView | None = None
    hidden: int = 0
    newest: int = 0


@dataclass(frozen=True, slots=True)
class ReviewSheet:
    """Everything that a reviewer needs to go through a session's verdicts.

    Attributes:
        session_id: The session.
        name: Its name.
        prompt: Its prompt.
        current: How the targets stand, as far as the reader may see it.
        log: The entries that the reader may see, oldest first.
        check: Whether the whole log holds together.
        words: The text of each target that is a step or a span, by the target's key.
        branches: Name of each branch, by its id.
        reviewers: All who have written into the log, sorted.
        may_be_blind: Whether the reader could still review it blind: as far as the log knows, she has seen nothing.
    """

    session_id: int
    name: str
    prompt: str
    current: CurrentVerdicts
    log: tuple[AnnotationRecord, ...]
    check: LogCheck
    words: dict[tuple[str, int, int], str]
    branches: dict[int, str]
    reviewers: tuple[str, ...]
    may_be_blind: bool = True


@dataclass(frozen=True, slots=True)
class ReviewerAgreement:
    """How far two reviewers agree, on one session or on all that both judged.

    Attributes:
        first: A reviewer.
        second: Another one.
        result: Kappa with its interval and the table of counts.
        blind_pairs: Targets that the later of the two judged in a blind review, so without seeing the other's verdict.
        sessions: Sessions with targets that both judged.
        waiting: Sessions left out because a blind review of one of them is still open.
    """

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
        if self.waiting:
            open_reviews = "session is" if self.waiting == 1 else "sessions are"
            text += f" {self.waiting} {open_reviews} left out until the blind review there is finished."
        return text


def verdicts_json(current: CurrentVerdicts, log: tuple[AnnotationRecord, ...]) -> dict[str, Any]:
    """How the targets of a session stand, and the log, as far as the reader may see both."""
    return {
        "session_id": current.session_id,
        "targets": [standing_json(item) for item in current.targets],
        "log": [entry_json(entry) for entry in log],
        "hidden": current.hidden,
        "reviews": [
            {
                "reviewer": item.reviewer,
                "blind": item.blind,
                "started_at": item.started_at.isoformat(),
                "finished_at": None if item.finished_at is None else item.finished_at.isoformat(),
            }
            for item in current.reviews
        ],
    }


class VerdictService:
    """What reviewers say of sessions, spans and tokens."""

    def __init__(self, sessions: SessionsRepository, log: AnnotationsRepository) -> None:
        """Wire the service to the store."""
        self._sessions = sessions
        self._log = log

    @classmethod
    def wired(cls, services: Services) -> VerdictService:
        """Built from the program's services."""
        return cls(services[SessionsRepository], services[AnnotationsRepository])

    def add(self, request: VerdictRequest) -> AnnotationRecord:
        """Write a verdict into the log; it takes the place of the reviewer's earlier one on the same target.

        Raises:
            ServiceError: The reviewer has no name, there is no such verdict, or a step is not in the branch's chain.
            NotFoundError: There is no such session or branch.
        """
        reviewer = _name(request.reviewer)
        blind = is_blind(self._entries(request.session_id), reviewer)
        return self._write(request, reviewer, target_of(self._sessions, request), "verdict", blind)

    def history(self, session_id: int, reviewer: str | None = None) -> tuple[AnnotationRecord, ...]:
        """The whole log, oldest entry first; to a reviewer in her blind review only what she wrote herself.

        Args:
            session_id: The session.
            reviewer: Who reads; None reads everything, as a report does.
        """
        return visible(self._entries(session_id), None if reviewer is None else _name(reviewer))

    def current(self, session_id: int, reviewer: str | None = None) -> CurrentVerdicts:
        """How every target stands, as far as the reader may see it.

        Args:
            session_id: The session.
            reviewer: Who reads; None reads everything, as a report does.
        """
        entries = self._entries(session_id)
        name = None if reviewer is None else _name(reviewer)
        shown = visible(entries, name)
        opened = reviews(entries)
        reviews_given = [review for review in opened if review.reviewer == name]
        hidden = sum(entry.judges for entry in entries)
        hidden -= sum(entry.judges for entry in shown)
        newest = shown[-1].entry if shown else 0
        return CurrentVerdicts(
            session_id, standing(shown), opened, reviews_given[-1] if reviews_given else None, hidden, newest
        )

    def sheet(self, session_id: int, reviewer: str | None = None) -> ReviewSheet:
        """Everything that a reviewer (or with None anybody) needs to go through a session's verdicts."""
        current, entries = self.current(session_id, reviewer), self._entries(session_id)
        record, branches = self._sessions.get(session_id), self._sessions.branches(session_id)
        return ReviewSheet(
            session_id=session_id,
            name=record.name,
            prompt=record.prompt,
            current=current,
            log=self.history(session_id, reviewer),
            check=self.verify_log(session_id),
            words=words_of([item.target for item in current.targets], self._sessions.chain),
            branches={branch.id: branch.name for branch in branches},
            reviewers=tuple(sorted({entry.reviewer for entry in entries})),
            may_be_blind=reviewer is None or not may_have_seen_others(entries, _name(reviewer)),
        )

    def reviewers(self) -> tuple[str, ...]:
        """Everybody who has written into a log, sorted."""
        return tuple(self._log.reviewers())

    def write_csv(self, session_id: int, folder: Path, reviewer: str | None = None) -> Path:
        """Write the log, as far as the reader may see it, as a CSV file into a folder, and return its path."""
        path = Path(folder) / f"verdict-log-{session_id}.csv"
        return write_text(path, log_csv(session_id, self.history(session_id, reviewer)))

    def start_review(self, session_id: int, reviewer: str, blind: bool = True) -> ReviewView:
        """Open a review; in a blind one the verdicts of others stay hidden from the reviewer until she finishes it.

        Raises:
            ServiceError: The reviewer has an open review here, or it should be blind and she may have seen the verdicts
                of others already.
        """
        name, entries = _name(reviewer), self._entries(session_id)
        if open_review(entries, name) is not None:
            raise ServiceError(f"{name} has an open review of session {session_id}; finish that one first.")
        if blind and may_have_seen_others(entries, name):
            raise ServiceError(
                f"{name} may have seen the verdicts of others on session {session_id}, so a review of it cannot be "
                "blind any more; open it as a review that is not blind, or let someone else review it."
            )
        entry = self._log.add(
            AnnotationFields(session_id=session_id, reviewer=name, kind="review_started", blind=blind)
        )
        return ReviewView(name, blind, entry.created_at)

    def finish_review(self, session_id: int, reviewer: str) -> ReviewView:
        """Submit a review; from here on the reviewer sees the verdicts of others.

        Raises:
            ServiceError: The reviewer has no open review here.
        """
        name, entries = _name(reviewer), self._entries(session_id)
        review = open_review(entries, name)
        if review is None:
            raise ServiceError(f"{name} has no open review of session {session_id}; start one first.")
        entry = self._log.add(
            AnnotationFields(session_id=session_id, reviewer=name, kind="review_finished", blind=review.blind)
        )
        return ReviewView(name, review.blind, review.started_at, entry.created_at)

    def adjudicate(self, request: VerdictRequest) -> AnnotationRecord:
        """Decide a disagreement by a third reviewer's verdict; a later verdict on the target opens it again.

        Raises:
            ServiceError: The reviewers do not disagree there, the adjudicator is one of them, is in the middle of a
                blind review, or gives no verdict.
        """
        name, entries = _name(request.reviewer), self._entries(request.session_id)
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
        """Cohen's kappa of two reviewers over targets that both judged.

        Args:
            first: A reviewer.
            second: Another one.
            session_id: Only this session; None takes all sessions that both judged.

        Raises:
            ServiceError: Both are the same.
        """
        names = _name(first), _name(second)
        if names[0] == names[1]:
            raise ServiceError(f"{names[0]} always agrees with {names[0]}; name two reviewers.")
        sessions = self._log.sessions_of(names) if session_id is None else [session_id]
        pairs, judged, waiting = [], 0, 0
        for number in sessions:
            entries = self._entries(number)
            if any(is_blind(entries, name) for name in names):
                waiting += 1
                continue
            paired_verdicts = paired(entries, *names)
            judged += bool(paired_verdicts)
            pairs += paired_verdicts
        result = cohen_kappa([(one, other) for one, other, _ in pairs], VERDICTS)
        return ReviewerAgreement(*names, result, sum(blind for *_, blind in pairs), judged, waiting)

    def verify_log(self, session_id: int) -> LogCheck:
        """Whether every entry of a session's log follows from the one before and says what it was written as."""
        return check_log(self._log.history(session_id))

    def _entries(self, session_id: int) -> tuple[AnnotationRecord, ...]:
        return tuple(self._log.history(session_id))

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


def _name(reviewer: str) -> str:
    name = " ".join(reviewer.split())
    if not name:
        raise ServiceError("The reviewer has no name; verdicts are signed, so type one.")
    if len(name) > LONGEST_NAME:
        raise ServiceError(f"The reviewer's name has {len(name)} characters; write at most {LONGEST_NAME}.")
    return name
