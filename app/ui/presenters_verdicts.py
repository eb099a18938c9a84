"""What the pages say of verdicts: pure functions from what stands to plain values and sentences."""

from __future__ import annotations

from app.services.views.verdicts import CurrentVerdicts, LogEntry, ReviewView, StandingVerdict, Target
from app.ui.presenters_format import clock, count, day, plural

Message = dict[str, object]


def verdicts_message(current: CurrentVerdicts, reviewer: str) -> Message:
    """How all targets of a session stand, for the page to look up what it shows.

    Args:
        current: What the reviewer may see.
        reviewer: Who looks; her own opinion can be changed. Empty if she gave no name.
    """
    return {
        "kind": "verdicts",
        "session": current.session_id,
        "reviewer": reviewer,
        "newest": current.newest,
        "targets": [target_message(item, reviewer) for item in current.targets],
        "review": blind_sentence(current.review),
    }


def target_message(item: StandingVerdict, reviewer: str) -> Message:
    """One target: where it is, how it stands, who said what, and the reader's own opinion."""
    own = next((entry for entry in item.opinions if entry.reviewer == reviewer), None)
    decision = () if item.adjudication is None else (item.adjudication,)
    return {
        "b": item.target.branch_id,
        "f": item.target.first_step,
        "l": item.target.last_step,
        "status": item.status,
        "mark": verdict_mark(item),
        "words": item.in_words,
        "sentence": standing_sentence(item),
        "says": [opinion_message(entry) for entry in (*item.opinions, *decision)],
        "own": None if own is None else own_message(own),
    }


def opinion_message(entry: LogEntry) -> Message:
    """What one reviewer says."""
    decides = entry.kind == "adjudication"
    blind = ", blind" if entry.blind else ""
    return {
        "who": entry.reviewer,
        "v": entry.verdict,
        "words": f"decides {entry.verdict}" if decides else f"says {entry.verdict}",
        "note": entry.note,
        "tag": entry.tag,
        "when": f"{day(entry.at)}{blind}",
        "decides": decides,
    }


def own_message(entry: LogEntry) -> Message:
    """The reader's own opinion, as the form shows it."""
    return {
        "v": entry.verdict,
        "note": entry.note,
        "tag": entry.tag,
        "saved": f"saved {clock(entry.at)}, log entry {count(entry.entry)}",
    }


def verdict_mark(item: StandingVerdict) -> str:
    """The shape that stands for a target; empty where nobody says anything any more."""
    if item.status == "withdrawn":
        return ""
    return item.verdict or "disputed"


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


def blind_sentence(review: ReviewView | None) -> str:
    """What a reviewer in the middle of a blind review is told; empty for everybody else."""
    if review is None or not review.open or not review.blind:
        return ""
    return (
        f"Your blind review is open since {day(review.started_at)}: what others say of this session is hidden until "
        "you finish it."
    )


def where(target: Target) -> str:
    """A target in a sentence about a shown session: the branch goes without saying."""
    if target.kind == "branch":
        return "the whole branch"
    return target.named("")


def given_sentence(entry: LogEntry) -> str:
    """What was just written into the log."""
    number = f"log entry {count(entry.entry)}"
    if entry.verdict is None:
        return f"Withdrawn on {where(entry.target)}, {number}."
    return f"Saved: {entry.verdict} on {where(entry.target)}, {number}."


def signed(reviewer: object) -> str:
    """A reviewer's name as verdicts are signed with it; empty for none."""
    return " ".join(str(reviewer or "").split())
