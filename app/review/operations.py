"""Verdicts: given, reviewed blind, decided, compared and checked."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from app.review.agreement import TeamAgreement
from app.review.assignments import (
    Assigned,
    AssignedReview,
    AssignmentRequest,
    AssignmentService,
    Workload,
    assigned_json,
    due_date,
    workloads,
    write_assignments,
)
from app.review.log import VerdictRequest, standing_json
from app.review.service import (
    CurrentVerdicts,
    DisputedTarget,
    DisputeQueue,
    ReviewerAgreement,
    TeamFinding,
    VerdictService,
    verdicts_json,
)
from app.shared.needs import LEAD, READ, WORK
from app.shared.operations import Json, command, operation
from app.shared.verdicts import LogCheck, ReviewView, entry_json
from app.shared.wiring import Services
from db.verdicts import AnnotationRecord, Tombstone

Standing = tuple[CurrentVerdicts, tuple[AnnotationRecord, ...]]
"""What stands of a session's verdicts, and the log."""


def _standing(current: CurrentVerdicts) -> list[str]:
    lines = [f"{item.target.label}: {item.in_words}. {item.notes}".strip() for item in current.targets]
    if current.hidden:
        entries = "1 entry is" if current.hidden == 1 else f"{current.hidden} entries are"
        lines.append(f"{entries} hidden until the blind review is finished.")
    return lines or ["No verdict has been given."]


def _line(entry: AnnotationRecord) -> str:
    what = {
        "verdict": entry.verdict or "withdrawn",
        "adjudication": f"decides {entry.verdict}",
        "review_started": "starts a review",
        "review_finished": "finishes the review",
        "comment": "comments",
    }[entry.kind]
    about = f" on {entry.target.label}" if entry.speaks else ""
    blind = ", blind" if entry.blind else ""
    note = f": {entry.note}" if entry.note else ""
    head = f"{entry.entry:>4}  {entry.created_at:%Y-%m-%d %H:%M}  {entry.digest[:12]}"
    return f"{head}  {entry.reviewer}: {what}{about}{blind}{note}"


def _with_sentence(result: Assigned | ReviewerAgreement | Workload) -> Json:
    return {**asdict(result), "sentence": result.sentence}


def _print_sentence(result: Assigned | ReviewerAgreement | TeamFinding) -> None:
    print(result.sentence)


@dataclass(frozen=True, kw_only=True)
class VerdictOptions:
    """What a verdict is about.

    Attributes:
        reviewer: who says so
        branch: the branch; default: the whole session
        first: first step, from 1
        last: last step; default: the first alone
        note: why
        tag: a short label
    """

    reviewer: str
    branch: int | None = None
    first: int | None = None
    last: int | None = None
    note: str = ""
    tag: str = ""

    def request(self, session: int, verdict: str | None) -> VerdictRequest:
        """A verdict on it; None withdraws."""
        first, last = (None if step is None else step - 1 for step in (self.first, self.last))
        return VerdictRequest(session, self.reviewer, verdict, self.branch, first, last, self.note, self.tag)


@operation(need=WORK, json=entry_json)
def add_verdict(
    wired: Services,
    session_id: int,
    reviewer: str,
    verdict: str | None,
    branch_id: int | None = None,
    first_step: int | None = None,
    last_step: int | None = None,
    note: str = "",
    tag: str = "",
) -> AnnotationRecord:
    """Write a verdict into a session's log, from which nothing can be taken out.

    Args:
        session_id: The session.
        reviewer: The reviewer's name.
        verdict: fair, unfair or unclear; null withdraws the reviewer's own.
        branch_id: The branch; without one it is about the session.
        first_step: The step, counted from 1; without one it is about the branch or the session.
        last_step: The last step of a span; without one it is about one token.
        note: A note.
        tag: A word that such notes share.

    Returns:
        The entry as the log has it: entry, reviewer, verdict, first_step, last_step, digest, previous and others.
    """
    options = VerdictOptions(reviewer=reviewer, branch=branch_id, first=first_step, last=last_step, note=note, tag=tag)
    return wired[VerdictService].add(options.request(session_id, verdict or None))


@operation(need=READ, json=lambda current: verdicts_json(*current))
def list_verdicts(wired: Services, session_id: int, reviewer: str = "") -> Standing:
    """List the verdicts of a session.

    Args:
        session_id: The session.
        reviewer: Who asks; a reviewer in her blind review gets only what is hers, and whoever gives no name gets no
            verdict while anybody reviews the session blind. A review that a reviewer begins after she got the verdicts
            of others cannot be blind.

    Returns:
        targets with how they stand, and the log.
    """
    return wired[VerdictService].current(session_id, reviewer), wired[VerdictService].history(session_id, reviewer)


def _entry_fields(entry: AnnotationRecord) -> Json:
    """An entry as the commands give it."""
    names = ("entry", "kind", "reviewer", "verdict", "note", "tag", "blind", "previous", "digest")
    plain = {name: getattr(entry, name) for name in names}
    return {**plain, "target": asdict(entry.target), "at": entry.created_at}


def _print_entry(entry: AnnotationRecord) -> None:
    print(_line(entry))


@command("verdicts add", json=_entry_fields, text=_print_entry)
def give_verdict(
    wired: Services,
    session: int,
    verdict: Literal["fair", "unfair", "unclear", "withdraw"],
    *,
    options: VerdictOptions,
) -> AnnotationRecord:
    """Give a verdict.

    Args:
        session: session number
        verdict: the verdict
    """
    return wired[VerdictService].add(options.request(session, None if verdict == "withdraw" else verdict))


@command("verdicts decide", json=_entry_fields, text=_print_entry)
def decide_verdict(
    wired: Services, session: int, verdict: Literal["fair", "unfair", "unclear"], *, options: VerdictOptions
) -> AnnotationRecord:
    """Decide a disagreement as a third person.

    Args:
        session: session number
        verdict: the decision
    """
    return wired[VerdictService].adjudicate(options.request(session, verdict))


def _standing_json(standing: Standing) -> Json:
    current, log = standing
    targets = [
        {
            "target": asdict(item.target),
            "status": item.status,
            "verdict": item.verdict,
            "opinions": [_entry_fields(entry) for entry in item.opinions],
            "adjudication": None if item.adjudication is None else _entry_fields(item.adjudication),
        }
        for item in current.targets
    ]
    comments = [_entry_fields(entry) for entry in current.comments]
    return {**asdict(current), "targets": targets, "comments": comments, "log": [_entry_fields(entry) for entry in log]}


def _print_standing(standing: Standing) -> None:
    current, log = standing
    print("\n".join([*_standing(current), "", *(_line(entry) for entry in log)]).strip())


@command("verdicts show", json=_standing_json, text=_print_standing)
def show_verdicts(wired: Services, session: int, *, reviewer: str | None = None) -> Standing:
    """What stands, and the log.

    Args:
        session: session number
        reviewer: as this reviewer may see it, which is written down; default: as a visitor without a name
    """
    name = reviewer or ""
    return wired[VerdictService].current(session, name), wired[VerdictService].history(session, name)


Reviewed = tuple[int, ReviewView]
"""A session, and a review of it."""


def _review_json(reviewed: Reviewed) -> Json:
    return asdict(reviewed[1])


def _print_review(reviewed: Reviewed) -> None:
    session, review = reviewed
    kind = "blind review" if review.blind else "review"
    does = f"begins a {kind} of" if review.open else "has finished the review of"
    print(f"{review.reviewer} {does} session {session}.")


@command("verdicts start", json=_review_json, text=_print_review)
def start_review(wired: Services, session: int, *, reviewer: str, open: bool = False) -> Reviewed:
    """Open a review, blind to the verdicts of others.

    Args:
        session: session number
        reviewer: who reviews
        open: not blind
    """
    return session, wired[VerdictService].start_review(session, reviewer, blind=not open)


@command("verdicts finish", json=_review_json, text=_print_review)
def finish_review(wired: Services, session: int, *, reviewer: str) -> Reviewed:
    """Submit a review.

    Args:
        session: session number
        reviewer: who reviewed
    """
    return session, wired[VerdictService].finish_review(session, reviewer)


@command("verdicts check", json=asdict, code=lambda check: 0 if check.whole else 1,
         text=lambda check: print(f"{check.sentence}\nHead: {check.head or 'none'}"))  # fmt: skip
def check_verdicts(wired: Services, session: int) -> LogCheck:
    """Check the chain of the verdict log.

    Args:
        session: session number
    """
    return wired[VerdictService].verify_log(session)


def _print_tombstones(found: tuple[Tombstone, ...]) -> None:
    print("\n".join(item.line for item in found) or "No session with verdicts has been deleted.")


@operation(
    need=READ, command="verdicts deleted", json=lambda found: [item.plain for item in found], text=_print_tombstones
)
def deleted_verdict_logs(wired: Services) -> tuple[Tombstone, ...]:
    """List what deleted sessions left of their verdict logs, in the order of deletion.

    Returns:
        id, session_id, entries (how many the log had), head (digest of its newest entry, which reports and bundles of
        the session name) and deleted_at of each
    """
    return wired[VerdictService].tombstones()


@command("verdicts agreement", json=_with_sentence, text=_print_sentence)
def show_agreement(wired: Services, first: str, second: str, *, session: int | None = None) -> ReviewerAgreement:
    """Cohen's kappa of two reviewers.

    Args:
        first: a reviewer
        second: another one
        session: only this session; default: all
    """
    return wired[VerdictService].agreement(first, second, session)


def _finding_json(finding: TeamFinding) -> Json:
    kind = {ReviewerAgreement: "kappa", TeamAgreement: "alpha", type(None): None}[type(finding.result)]
    return {**asdict(finding), "kind": kind, "sentence": finding.sentence}


@operation(need=READ, command="verdicts finding", json=_finding_json, text=_print_sentence)
def team_agreement(
    wired: Services,
    session_id: Annotated[int | None, typer.Option("--session")] = None,
    reviewers: Annotated[list[str] | None, typer.Option("--reviewer", metavar="NAME")] = None,
) -> TeamFinding:
    """Say how far all reviewers agree: Cohen's kappa of two, Krippendorff's alpha of more.

    Args:
        session_id: Only this session; null takes all.
        reviewers: Only these; null takes everybody who judged something.

    Returns:
        sentence, kind (kappa, alpha or null), reviewers, result (with its interval low to high, the number of targets
        and of resamples, and the reason where it is unscored), sessions, and waiting: sessions left out until blind
        reviews of them are finished.
    """
    return wired[VerdictService].team_agreement(session_id, reviewers or ())


@operation(need=LEAD, command="verdicts assign", json=_with_sentence, text=_print_sentence)
def assign_reviews(
    wired: Services,
    lead: Annotated[str, typer.Option("--lead")],
    reviewers: Annotated[list[str], typer.Option("--reviewer", metavar="NAME[,NAME]")],
    session_ids: Annotated[list[int] | None, typer.Option("--session", metavar="NUMBER")] = None,
    text: Annotated[str, typer.Option("--text")] = "",
    tag: Annotated[str, typer.Option("--tag")] = "",
    due: Annotated[str, typer.Option("--due")] = "",
) -> Assigned:
    """Assign sessions to reviewers, every session to each of them; what is assigned already gets the new due date.

    Args:
        lead: Who assigns them.
        reviewers: Who is to review.
        session_ids: The sessions.
        text: Also the sessions with this text in their name, prompt, tags or notes.
        tag: Also the sessions with this tag; with a text too, only those that have both.
        due: The last day on which a review is in time, as 2026-12-31; empty is whenever.

    Returns:
        sessions (how many), reviewers, new (assignments that were not there before), and a sentence.
    """
    request = AssignmentRequest(lead, tuple(reviewers), tuple(session_ids or ()), text, tag, due_date(due))
    return wired[AssignmentService].assign(request)


def _print_withdrawn(count: int) -> None:
    print(f"{'1 assignment is' if count == 1 else f'{count} assignments are'} taken back.")


@operation(need=LEAD, command="verdicts unassign", json=lambda count: {"withdrawn": count}, text=_print_withdrawn)
def withdraw_assignments(
    wired: Services,
    session_ids: Annotated[list[int], typer.Option("--session", metavar="NUMBER")],
    reviewers: Annotated[list[str], typer.Option("--reviewer", metavar="NAME[,NAME]")],
) -> int:
    """Take assignments back; what was said in the reviews stays.

    Args:
        session_ids: The sessions.
        reviewers: The reviewers.

    Returns:
        withdrawn, how many assignments there were.
    """
    return wired[AssignmentService].withdraw(session_ids, reviewers)


def _assignments_json(assigned: tuple[AssignedReview, ...]) -> Json:
    return {
        "assignments": [assigned_json(item) for item in assigned],
        "reviewers": [_with_sentence(load) for load in workloads(assigned)],
    }


def _print_assignments(assigned: tuple[AssignedReview, ...]) -> None:
    for item in assigned:
        due = "" if item.due_on is None else f", due {item.due_on.isoformat()}"
        print(f"{item.session_id:>6}  {item.state:<8} {item.reviewer}: {item.session}{due}")
    print("\n".join(load.sentence for load in workloads(assigned)) or "Nothing is assigned.")


def _write_assignments(wired: Services, assigned: tuple[AssignedReview, ...], file: Path) -> str:
    """Also write them as CSV to this file."""
    return f"Written: {write_assignments(assigned, file)}"


@operation(
    need=READ, command="verdicts assignments", json=_assignments_json, text=_print_assignments, write=_write_assignments
)
def list_assignments(wired: Services, *, reviewer: str = "") -> tuple[AssignedReview, ...]:
    """List who is to review which session until when, and how far everybody is.

    Args:
        reviewer: Only what is assigned to this reviewer; empty lists all.

    Returns:
        assignments (session_id, session, reviewer, lead, due_on, state: done, overdue, begun or open, finished_at),
        what is left first, and reviewers with assigned, done, overdue and a sentence.
    """
    return wired[AssignmentService].list(reviewer)


def _dispute_json(target: DisputedTarget) -> Json:
    return {
        "session_id": target.session_id,
        "session": target.session,
        "since": target.since.isoformat(),
        "words": target.passage.words,
        **standing_json(target.item),
    }


def _disputes_json(queue: DisputeQueue) -> Json:
    return {
        "targets": [_dispute_json(target) for target in queue.targets],
        "waiting": queue.waiting,
        "assigned": queue.assigned,
        "sentence": queue.sentence,
    }


def _print_disputes(queue: DisputeQueue) -> None:
    for target in queue.targets:
        said = "; ".join(f"{entry.reviewer} {entry.verdict}" for entry in target.item.opinions)
        place = f"session {target.session_id}, {target.item.target.label}"
        print(f"{target.since:%Y-%m-%d %H:%M}  {place} {target.passage.words!r}: {said}")
    print(queue.sentence)


@operation(need=READ, command="verdicts disputes", json=_disputes_json, text=_print_disputes)
def list_disagreements(wired: Services, *, reviewer: str = "") -> DisputeQueue:
    """List the targets of all sessions on which reviewers differ and nobody has decided, the longest disputed first.

    Args:
        reviewer: Who asks; sessions that are assigned to her are left out until she has reviewed them, and she is taken
            to have seen the others.

    Returns:
        targets (session_id, session, since, words, branch_id, first_step, last_step, opinions), waiting (sessions left
        out until blind reviews of them are finished), assigned, and a sentence.
    """
    return wired[VerdictService].disputes(reviewer)


@operation(need=WORK, json=entry_json)
def add_comment(
    wired: Services,
    session_id: int,
    reviewer: str,
    text: str,
    branch_id: int | None = None,
    first_step: int | None = None,
    last_step: int | None = None,
) -> AnnotationRecord:
    """Add a comment to the thread on a token, span, branch or session; it goes into the log and stays there.

    Args:
        session_id: The session.
        reviewer: Who comments.
        text: The comment.
        branch_id: The branch; without one it is about the session.
        first_step: The step, counted from 1; without one it is about the branch or the session.
        last_step: The last step of a span; without one it is about one token.

    Returns:
        The entry as the log has it; its note is the comment.
    """
    options = VerdictOptions(reviewer=reviewer, branch=branch_id, first=first_step, last=last_step, note=text)
    return wired[VerdictService].comment(options.request(session_id, None))


@command("verdicts comment", json=_entry_fields, text=_print_entry)
def give_comment(wired: Services, session: int, *, options: VerdictOptions) -> AnnotationRecord:
    """Add a comment, given with --note, to the thread on a target.

    Args:
        session: session number
    """
    return wired[VerdictService].comment(options.request(session, None))
