"""Assigning reviews: who is to review which session until when, and how far everybody is.

An assignment says what somebody asked for; whether it is done is in the session's verdict log, as the end of a
review by that reviewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Literal

from app.review.service import signature, signed_name
from app.shared.errors import ServiceError
from app.shared.files import to_csv, write_text
from app.shared.verdicts import ReviewView, reviews
from app.shared.wiring import Services
from db.assignments import AssignmentRecord, AssignmentsRepository
from db.library import LibraryRepository, SessionFilter
from db.sessions import SessionsRepository
from db.verdicts import AnnotationsRepository

MOST_AT_ONCE = 10_000
"""Assignments that one request may make."""

AssignmentState = Literal["done", "overdue", "begun", "open"]
"""How an assignment stands; one that is overdue may have been begun."""


@dataclass(frozen=True, slots=True)
class AssignedReview:
    """An assignment, and how it stands."""

    session_id: int
    session: str
    reviewer: str
    lead: str
    due_on: date | None
    state: AssignmentState
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """How far a reviewer is with what is assigned to them."""

    reviewer: str
    assigned: int
    done: int
    overdue: int

    @property
    def sentence(self) -> str:
        """The counts in words."""
        late = f", {self.overdue} overdue" if self.overdue else ""
        return f"{self.reviewer}: {self.done} of {self.assigned} done{late}"


@dataclass(frozen=True, slots=True)
class AssignmentRequest:
    """Reviews to be assigned: every session to every reviewer."""

    lead: str
    reviewers: tuple[str, ...]
    session_ids: tuple[int, ...] = ()
    text: str = ""
    tag: str = ""
    due_on: date | None = None


@dataclass(frozen=True, slots=True)
class Assigned:
    """What an assignment did: ``new`` of all ``sessions`` times ``reviewers`` were not assigned before."""

    sessions: int
    reviewers: tuple[str, ...]
    new: int

    @property
    def sentence(self) -> str:
        """What was done, in words."""
        sessions = "1 session is" if self.sessions == 1 else f"{self.sessions} sessions are"
        before = self.sessions * len(self.reviewers) - self.new
        known = f" {before} of these assignments {'was' if before == 1 else 'were'} there before." if before else ""
        return f"{sessions} assigned to {', '.join(self.reviewers)}.{known}"


def due_date(text: str) -> date | None:
    """A due date from ``YYYY-MM-DD``; empty is none."""
    if not text.strip():
        return None
    try:
        return date.fromisoformat(text.strip())
    except ValueError as error:
        raise ServiceError(f"The due date {text.strip()!r} is not a date; write it as 2026-12-31.") from error


def workloads(assigned: Iterable[AssignedReview]) -> tuple[Workload, ...]:
    """How far everybody is, those with most overdue first and then by name."""
    by_reviewer: dict[str, list[str]] = {}
    for item in assigned:
        by_reviewer.setdefault(item.reviewer, []).append(item.state)
    loads = (
        Workload(reviewer, len(states), states.count("done"), states.count("overdue"))
        for reviewer, states in by_reviewer.items()
    )
    return tuple(sorted(loads, key=lambda load: (-load.overdue, load.reviewer)))


def assigned_json(item: AssignedReview) -> dict[str, Any]:
    """One assignment and how it stands."""
    return {name: it.isoformat() if isinstance(it, date) else it for name, it in asdict(item).items()}


def write_assignments(assigned: Iterable[AssignedReview], path: Path) -> Path:
    """Write assignments as a CSV file, one row each, and return its path."""
    return write_text(
        path, to_csv([field.name for field in fields(AssignedReview)], [assigned_json(item) for item in assigned])
    )


class AssignmentService:
    """Who is to review what."""

    def __init__(self, services: Services) -> None:
        self._assignments = services[AssignmentsRepository]
        self._library = services[LibraryRepository]
        self._sessions = services[SessionsRepository]
        self._log = services[AnnotationsRepository]

    def assign(self, request: AssignmentRequest) -> Assigned:
        """Assign reviews; what is assigned already gets the new date and lead."""
        lead, reviewers = signature(request.lead), _names(request.reviewers)
        session_ids = self._found(request)
        if len(session_ids) * len(reviewers) > MOST_AT_ONCE:
            raise ServiceError(
                f"{len(session_ids)} sessions for {len(reviewers)} reviewers are more than {MOST_AT_ONCE:,} "
                "assignments; narrow the sessions down."
            )
        new = self._assignments.assign(session_ids, reviewers, lead, request.due_on)
        return Assigned(len(session_ids), reviewers, new)

    def withdraw(self, session_ids: Sequence[int], reviewers: Sequence[str]) -> int:
        """Take assignments back; what was said in the reviews stays. Returns how many there were."""
        return self._assignments.withdraw(set(session_ids), set(_names(reviewers)))

    def list(self, reviewer: str = "", today: date | None = None) -> tuple[AssignedReview, ...]:
        """Assignments, what is left first, then by the day on which they are due."""
        day = datetime.now(UTC).date() if today is None else today
        records = self._assignments.list(signed_name(reviewer) if reviewer.strip() else None)
        logs = {number: reviews(self._log.history(number)) for number in {record.session_id for record in records}}
        names = {number: self._sessions.get(number).name for number in logs}
        found = [_assigned(record, names[record.session_id], logs[record.session_id], day) for record in records]
        return tuple(sorted(found, key=lambda item: item.state == "done"))

    def _found(self, request: AssignmentRequest) -> tuple[int, ...]:
        text, tag = request.text.strip(), request.tag.strip()
        if not (request.session_ids or text or tag):
            raise ServiceError("No session is named; give their numbers, or a text or tag that finds them.")
        found = set(request.session_ids)
        if text or tag:
            found |= set(self._library.ids(SessionFilter(text=text, tag=tag or None)))
        if not found:
            raise ServiceError(f"No session matches {text or tag!r}; there is nothing to assign.")
        return tuple(sorted(found))


def _names(reviewers: Sequence[str]) -> tuple[str, ...]:
    """Reviewers' names, each once; one text may hold several, with commas between them."""
    parts = [part for reviewer in reviewers for part in reviewer.split(",")]
    names = tuple(dict.fromkeys(signed_name(part) for part in parts if part.strip()))
    if not names:
        raise ServiceError("No reviewer is named; name at least one.")
    return names


def _assigned(record: AssignmentRecord, session: str, opened: Sequence[ReviewView], day: date) -> AssignedReview:
    own = [review for review in opened if review.reviewer == record.reviewer]
    finished = max((review.finished_at for review in own if review.finished_at is not None), default=None)
    state: AssignmentState = "begun" if own else "open"
    if finished is not None:
        state = "done"
    elif record.due_on is not None and record.due_on < day:
        state = "overdue"
    return AssignedReview(record.session_id, session, record.reviewer, record.lead, record.due_on, state, finished)
