"""Verdicts: given, reviewed blind, decided, compared and checked."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from app.review.log import VerdictRequest
from app.review.service import CurrentVerdicts, ReviewerAgreement, VerdictService, verdicts_json
from app.shared.operations import Json, command, operation
from app.shared.verdicts import LogCheck, ReviewView, entry_json
from app.shared.wiring import Services
from db.verdicts import AnnotationRecord

Standing = tuple[CurrentVerdicts, tuple[AnnotationRecord, ...]]
"""What stands of a session's verdicts, and the log."""


def _standing(current: CurrentVerdicts) -> list[str]:
    lines = [f"{item.target.label}: {item.in_words}. {item.notes}".strip() for item in current.targets]
    if current.hidden:
        others = "1 entry of others is" if current.hidden == 1 else f"{current.hidden} entries of others are"
        lines.append(f"{others} hidden until the blind review is finished.")
    return lines or ["No verdict has been given."]


def _line(entry: AnnotationRecord) -> str:
    what = {
        "verdict": entry.verdict or "withdrawn",
        "adjudication": f"decides {entry.verdict}",
        "review_started": "starts a review",
        "review_finished": "finishes the review",
    }[entry.kind]
    about = f" on {entry.target.label}" if entry.judges else ""
    blind = ", blind" if entry.blind else ""
    note = f": {entry.note}" if entry.note else ""
    head = f"{entry.entry:>4}  {entry.created_at:%Y-%m-%d %H:%M}  {entry.digest[:12]}"
    return f"{head}  {entry.reviewer}: {what}{about}{blind}{note}"


@operation(json=entry_json)
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
    first, last = (None if step is None else step - 1 for step in (first_step, last_step))
    return wired[VerdictService].add(
        VerdictRequest(session_id, reviewer, verdict or None, branch_id, first, last, note, tag)
    )


@operation(json=lambda current: verdicts_json(*current))
def list_verdicts(wired: Services, session_id: int, reviewer: str = "") -> Standing:
    """List the verdicts of a session.

    Args:
        session_id: The session.
        reviewer: Who asks; a reviewer in her blind review gets only what is hers.

    Returns:
        targets with how they stand, and the log.
    """
    name = reviewer.strip() or None
    return wired[VerdictService].current(session_id, name), wired[VerdictService].history(session_id, name)


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
    return {**asdict(current), "targets": targets, "log": [_entry_fields(entry) for entry in log]}


def _print_standing(standing: Standing) -> None:
    current, log = standing
    print("\n".join([*_standing(current), "", *(_line(entry) for entry in log)]).strip())


@command("verdicts show", json=_standing_json, text=_print_standing)
def show_verdicts(wired: Services, session: int, *, reviewer: str | None = None) -> Standing:
    """What stands, and the log.

    Args:
        session: session number
        reviewer: as this reviewer sees it during a blind review
    """
    return wired[VerdictService].current(session, reviewer), wired[VerdictService].history(session, reviewer)


Reviewed = tuple[int, ReviewView]
"""A session, and a review of it."""


def _review_json(reviewed: Reviewed) -> Json:
    return asdict(reviewed[1])


def _print_begun(reviewed: Reviewed) -> None:
    session, review = reviewed
    print(f"{review.reviewer} begins a {'blind review' if review.blind else 'review'} of session {session}.")


def _print_finished(reviewed: Reviewed) -> None:
    session, review = reviewed
    print(f"{review.reviewer} has finished the review of session {session}.")


@command("verdicts start", json=_review_json, text=_print_begun)
def start_review(wired: Services, session: int, *, reviewer: str, open: bool = False) -> Reviewed:
    """Open a review, blind to the verdicts of others.

    Args:
        session: session number
        reviewer: who reviews
        open: not blind
    """
    return session, wired[VerdictService].start_review(session, reviewer, blind=not open)


@command("verdicts finish", json=_review_json, text=_print_finished)
def finish_review(wired: Services, session: int, *, reviewer: str) -> Reviewed:
    """Submit a review.

    Args:
        session: session number
        reviewer: who reviewed
    """
    return session, wired[VerdictService].finish_review(session, reviewer)


@command("verdicts check", json=asdict, holds=lambda check: check.whole,
         text=lambda check: print(f"{check.sentence}\nHead: {check.head or 'none'}"))  # fmt: skip
def check_verdicts(wired: Services, session: int) -> LogCheck:
    """Check the chain of the verdict log.

    Args:
        session: session number
    """
    return wired[VerdictService].verify_log(session)


@command("verdicts agreement", json=lambda agreement: {**asdict(agreement), "sentence": agreement.sentence},
         text=lambda agreement: print(agreement.sentence))  # fmt: skip
def show_agreement(wired: Services, first: str, second: str, *, session: int | None = None) -> ReviewerAgreement:
    """Cohen's kappa of two reviewers.

    Args:
        first: a reviewer
        second: another one
        session: only this session; default: all
    """
    return wired[VerdictService].agreement(first, second, session)
