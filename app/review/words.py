"""What the review page says of a session's verdicts, as markup and messages."""

from __future__ import annotations

from collections import Counter
from urllib.parse import urlencode

from markupsafe import Markup

from app.prompts.words import beginning
from app.review.log import comments_of, is_closed
from app.review.service import CurrentVerdicts, ReviewSheet
from app.shared.events import Reply
from app.shared.format import clock, count, day, plural
from app.shared.markup import badge, laid_out
from app.shared.verdicts import StandingVerdict
from app.shared.visitors import present_account
from db.verdicts import AnnotationRecord, Target


def verdicts_message(current: CurrentVerdicts, reviewer: str) -> Reply:
    """How all targets of a session stand, for the page to look up what it shows."""
    blind = ""
    if current.review is not None and current.in_blind_review:
        since = day(current.review.started_at)
        blind = f"Your blind review is open since {since}: what others say is hidden until you finish it."
    return {
        "kind": "verdicts",
        "session": current.session_id,
        "reviewer": reviewer,
        "newest": current.newest,
        "targets": [target_message(item, reviewer) for item in current.targets],
        "threads": [
            {
                **_place(thread[0].target),
                "says": [{"who": it.reviewer, "when": day(it.created_at), "text": it.note} for it in thread],
            }
            for thread in comments_of(current.comments).values()
        ],
        "review": blind,
    }


def target_message(item: StandingVerdict, reviewer: str) -> Reply:
    """One target: where it is, how it stands, who said what, and the reader's own opinion."""
    opinion = next((entry for entry in item.opinions if entry.reviewer == reviewer), None)
    own = opinion and {
        "v": opinion.verdict,
        "note": opinion.note,
        "tag": opinion.tag,
        "saved": f"saved {clock(opinion.created_at)}, log entry {count(opinion.entry)}",
    }
    return {
        **_place(item.target),
        "status": item.status,
        "mark": verdict_mark(item),
        "words": item.in_words,
        "sentence": standing_sentence(item),
        "says": [_said(entry) for entry in item.entries],
        "own": own,
    }


def _place(target: Target) -> Reply:
    return {"b": target.branch_id, "f": target.first_step, "l": target.last_step}


def _said(entry: AnnotationRecord) -> Reply:
    decides = entry.kind == "adjudication"
    return {
        "who": entry.reviewer,
        "v": entry.verdict,
        "words": f"{'decides' if decides else 'says'} {entry.verdict}",
        "note": entry.note,
        "tag": entry.tag,
        "when": f"{day(entry.created_at)}{', blind' if entry.blind else ''}",
        "decides": decides,
    }


def verdict_mark(item: StandingVerdict) -> str:
    """The shape that stands for a target; empty where nobody says anything any more."""
    return "" if item.status == "withdrawn" else item.verdict or "disputed"


def standing_sentence(item: StandingVerdict) -> str:
    """How a target stands, in words."""
    if item.status == "withdrawn":
        return "Withdrawn: nobody says anything of this any more."
    if item.adjudication is not None:
        return f"Decided by {item.adjudication.reviewer}: {item.verdict}. A new verdict opens the question again."
    if item.status == "disputed":
        said = [entry.verdict for entry in item.opinions]
        parts = [f"{count(said.count(verdict))} {verdict}" for verdict in dict.fromkeys(said)]
        return f"Disputed: {', '.join(parts)}."
    if item.status == "agreed":
        return f"Agreed: {plural(len(item.opinions), 'reviewer')} say {item.verdict}."
    return f"One opinion: {item.opinions[0].reviewer} says {item.verdict}."


def where(target: Target) -> str:
    """A target in a sentence about a shown session: the branch goes without saying."""
    return "the whole branch" if target.kind == "branch" else target.named("")


def given_sentence(entry: AnnotationRecord) -> str:
    """What was just written into the log."""
    number = f"log entry {count(entry.entry)}"
    if entry.verdict is None:
        return f"Withdrawn on {where(entry.target)}, {number}."
    return f"Saved: {entry.verdict} on {where(entry.target)}, {number}."


def commented_sentence(entry: AnnotationRecord) -> str:
    """What comment was just written into the log."""
    return f"Commented on {where(entry.target)}, log entry {count(entry.entry)}."


def signed_verdict(reviewer: object) -> str:
    """A reviewer's name as verdicts are signed with it: the account's, or else what was typed; empty for none."""
    if (account := present_account()) is not None:
        return account.name
    return " ".join(str(reviewer or "").split())


STATUSES = {
    "disputed": "Disputed",
    "single": "One opinion",
    "agreed": "Agreed",
    "adjudicated": "Decided",
    "withdrawn": "Withdrawn",
}
SHOWN_ENTRIES = 25
"""Entries of the log that are shown before the rest is asked for."""


def _status_choices(sheet: ReviewSheet) -> list[tuple[str, str]]:
    """What the targets can be filtered by, with how many there are."""
    counts = Counter(str(item.status) for item in sheet.current.targets)
    every = [("", f"All ({count(len(sheet.current.targets))})")]
    return every + [(key, f"{name} ({count(counts[key])})") for key, name in STATUSES.items() if counts[key]]


def place_name(target: Target) -> str:
    """A target's name in the sheet, which names the branch apart."""
    names = {"session": "Whole session", "branch": "Whole branch"}
    return names.get(target.kind) or target.named("").capitalize()


def link(session_id: int, target: Target) -> str:
    """The audit page at a target."""
    places: dict[str, object] = {"session": session_id}
    if target.branch_id is not None:
        places["branch"] = target.branch_id
    if target.first_step is None or target.last_step is None:
        places["on"] = target.kind
    else:
        places["step"] = target.first_step + 1
        if target.kind == "span":
            places["last"] = target.last_step + 1
    return f"./?{urlencode(places)}"


def _check(sheet: ReviewSheet) -> Markup:
    check = sheet.check
    if check.whole and not check.entries:
        return Markup("")
    entries = "1 entry" if check.entries == 1 else f"{count(check.entries)} entries"
    says = f"The log of {entries} holds." if check.whole else f"The log breaks. {check.sentence}"
    return Markup(badge("calibrated" if check.whole else "uninformative", says))


def sheet_message(sheet: ReviewSheet, reviewer: str, reveal: bool = False, said: str = "") -> Reply:
    """A session's verdicts as one reviewer may and wants to see them."""
    closed = is_closed(sheet.log, reviewer, sheet.reviewers, reveal)
    blind = sheet.current.in_blind_review

    def part(name: str, **values: object) -> Markup:
        return laid_out(f"review/{name}.html", sheet=sheet, reviewer=reviewer, place_name=place_name, **values)

    told = {"blind": blind, "threads": comments_of(sheet.log), "statuses": STATUSES, "link": link}
    targets = part("closed") if closed else part("targets", verdict_mark=verdict_mark, **told)
    return {
        "kind": "sheet",
        "session": sheet.session_id,
        "reviewer": reviewer,
        "head": part("head", prompt=beginning(sheet.prompt), hidden=closed or blind),
        "review": part("reviews", review=sheet.current.review),
        "targets": targets,
        "statuses": [] if closed else _status_choices(sheet),
        "log": "" if closed else part("log", shown=SHOWN_ENTRIES),
        "check": _check(sheet),
        "reviewers": _busiest_first(sheet),
        "closed": closed,
        "blind": blind,
        "said": said,
    }


def _busiest_first(sheet: ReviewSheet) -> list[str]:
    """All who wrote into the log, those with most opinions first."""
    said = Counter(entry.reviewer for item in sheet.current.targets for entry in item.opinions)
    return sorted(sheet.reviewers, key=lambda name: -said[name])
