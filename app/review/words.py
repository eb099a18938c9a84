"""What the review page says of a session's verdicts, as markup and messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from urllib.parse import urlencode

from app.review.log import (
    CurrentVerdicts,
    LogEntry,
    ReviewerAgreement,
    ReviewSheet,
    ReviewView,
    StandingVerdict,
    Target,
)
from app.sessions.service import LibraryPage
from app.sessions.words import beginning
from app.shared.markup import icon, table
from app.shared.step_words import clock, count, day, plural, shown_token, signed
from db.library import SessionEntryRecord

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


def signed_verdict(reviewer: object) -> str:
    """A reviewer's name as verdicts are signed with it; empty for none."""
    return " ".join(str(reviewer or "").split())


def agreement_message(names: tuple[str, ...], found: ReviewerAgreement | None) -> Message:
    """Reviewers to choose from, and how far the chosen two agree.

    Args:
        names: Everybody who has written into a log.
        found: The two; None while they are not chosen.
    """
    return {"kind": "agreement", "names": list(names), "html": agreement(found) if found else nobody(names)}


def nobody(names: tuple[str, ...]) -> str:
    """What is missing for an agreement."""
    if len(names) < 2:
        who = "nobody has" if not names else f"only {escape(names[0])} has"
        return (
            f'<p class="sub">Agreement needs two reviewers who judged the same targets; so far {who} judged anything. '
            "Ask a second person to review a session blind.</p>"
        )
    return '<p class="sub">Choose two reviewers to see how far they agree.</p>'


def agreement(found: ReviewerAgreement) -> str:
    """Kappa on its scale, the table of counts, and the result in words."""
    if not found.result.pairs:
        waiting = (
            " One of them has a blind review open, which is left out until it is finished." if found.waiting else ""
        )
        return (
            f'<p class="sub">{escape(found.first)} and {escape(found.second)} have not judged the same token, span, '
            f"branch or session.{waiting}</p>"
        )
    return (
        f'<div class="agree"><div>{_scale(found)}<p class="sub says">{escape(found.sentence)}</p></div>'
        f"{matrix(found)}</div>"
    )


def _scale(found: ReviewerAgreement) -> str:
    result = found.result
    if result.kappa is None or result.low is None or result.high is None:
        return '<p class="kappa-value"><strong>κ</strong> <span class="badge uninformative">unscored</span></p>'
    low, high, at = (_percent(value) for value in (result.low, result.high, result.kappa))
    interval = f"{signed(result.low)} to {signed(result.high)}"
    return (
        f'<p class="kappa-value tnum"><strong>κ {result.kappa:.2f}</strong> <span class="hint">{result.level:.0%} '
        f"interval {interval}</span></p>"
        f'<div class="kappa" aria-hidden="true"><i style="left:{low:.1f}%;width:{high - low:.1f}%"></i>'
        f'<b style="left:{at:.1f}%"></b><u></u></div>'
        '<div class="kappa-ends hint" aria-hidden="true"><span>−1</span><span>0, chance</span>'
        "<span>1, full agreement</span></div>"
    )


def matrix(found: ReviewerAgreement) -> str:
    """How often the first said the row's and the second the column's verdict."""
    result = found.result
    heads = "".join(f'<th scope="col" class="n">{escape(name)}</th>' for name in result.categories)
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        + "".join(_cell(row, column, result.table[row][column]) for column in range(len(result.categories)))
        + f'<td class="n total">{count(sum(result.table[row]))}</td></tr>'
        for row, name in enumerate(result.categories)
    )
    sums = "".join(f'<td class="n total">{count(sum(column))}</td>' for column in zip(*result.table, strict=True))
    return (
        f'<table class="matrix-counts"><caption>Rows: {escape(found.first)}. Columns: {escape(found.second)}.</caption>'
        f'<thead><tr><td></td>{heads}<th scope="col" class="n">all</th></tr></thead><tbody>{rows}'
        f'<tr><th scope="row">all</th>{sums}<td class="n total">{count(result.pairs)}</td></tr></tbody></table>'
    )


def _cell(row: int, column: int, number: int) -> str:
    same = " same" if row == column else ""
    none = " none" if number == 0 else ""
    return f'<td class="n{same}{none}">{count(number)}</td>'


def _percent(kappa: float) -> float:
    """Place on a scale from -1 to 1, in percent."""
    return (kappa + 1) * 50


STATUSES = {
    "disputed": "Disputed",
    "single": "One opinion",
    "agreed": "Agreed",
    "adjudicated": "Decided",
    "withdrawn": "Withdrawn",
}
LONGEST_WORDS = 80
NOTHING = (
    '<div class="empty-list"><p class="sub">{who} judged {what} of this session yet. Open it on the audit page, '
    "select a token, and press <kbd>C</kbd> for fair, <kbd>U</kbd> for unfair or <kbd>X</kbd> for unclear.</p></div>"
)


def is_blind(sheet: ReviewSheet) -> bool:
    """Whether the reader is in the middle of a blind review."""
    review = sheet.current.review
    return review is not None and review.open and review.blind


def status_choices(sheet: ReviewSheet) -> list[tuple[str, str]]:
    """What the targets can be filtered by, with how many there are."""
    found = Counter(str(item.status) for item in sheet.current.targets)
    every = [("", f"All ({count(len(sheet.current.targets))})")]
    return every + [(key, f"{name} ({count(found[key])})") for key, name in STATUSES.items() if found[key]]


def targets(sheet: ReviewSheet, reviewer: str) -> str:
    """Everything that was judged: where, the words, how it stands, and the opinions side by side."""
    if not sheet.current.targets:
        who, what = ("You have", "nothing") if is_blind(sheet) else ("Nobody has", "anything")
        return NOTHING.format(who=who, what=what)
    rows = "".join(_target(item, sheet, reviewer) for item in sheet.current.targets)
    heads = "".join(f'<th scope="col">{title}</th>' for title in ("Where", "Words", "Stands", "Opinions"))
    return (
        '<table class="targets"><caption class="vh">What was judged</caption><thead><tr>'
        f'{heads}<th scope="col"><span class="vh">Decide</span></th></tr></thead><tbody>{rows}</tbody></table>'
    )


def _target(item: StandingVerdict, sheet: ReviewSheet, reviewer: str) -> str:
    words = sheet.words.get(item.target.key, "")
    branch = sheet.branches.get(item.target.branch_id or 0, "")
    place = f'<span class="hint cut">branch {escape(shown_token(branch))}</span>' if branch else ""
    shown = f'<span class="mono words">{escape(_short(words))}</span>' if words else '<span class="hint">all</span>'
    mark = verdict_mark(item)
    entries = (*item.opinions, *(() if item.adjudication is None else (item.adjudication,)))
    return (
        f'<tr data-status="{item.status}"><th scope="row"><a href="{link(sheet.session_id, item.target)}">'
        f"{escape(place_name(item.target))}</a>{place}</th><td>{shown}</td>"
        f'<td class="stands"><span class="stand">{icon(mark) if mark else ""}{STATUSES[item.status]}'
        f"{f': {item.verdict}' if item.verdict else ''}</span></td>"
        f'<td><ul class="sides">{"".join(_side(entry) for entry in entries)}</ul></td>'
        f"<td>{_decide(item, reviewer)}</td></tr>"
    )


def place_name(target: Target) -> str:
    """A target's name in the sheet, which names the branch apart."""
    names = {"session": "Whole session", "branch": "Whole branch"}
    return names.get(target.kind) or target.named("").capitalize()


def link(session_id: int, target: Target) -> str:
    """The audit page at a target."""
    asked: dict[str, object] = {"session": session_id}
    if target.branch_id is not None:
        asked["branch"] = target.branch_id
    if target.first_step is None or target.last_step is None:
        asked["on"] = target.kind
    else:
        asked["step"] = target.first_step + 1
        if target.kind == "span":
            asked["last"] = target.last_step + 1
    return f"./?{escape(urlencode(asked))}"


def _side(entry: LogEntry) -> str:
    decides = entry.kind == "adjudication"
    note = f'<span class="judge-note">{escape(entry.note)}</span>' if entry.note else ""
    tag = f'<span class="judge-tag">{escape(entry.tag)}</span>' if entry.tag else ""
    return (
        f"<li{' class=decision' if decides else ''}>{icon(str(entry.verdict))}<span><strong>{escape(entry.reviewer)}"
        f"</strong> {'decides' if decides else 'says'} {entry.verdict}{' <small>blind</small>' if entry.blind else ''}"
        f"{tag}{note}</span></li>"
    )


def _decide(item: StandingVerdict, reviewer: str) -> str:
    if item.status != "disputed":
        return ""
    if reviewer in {entry.reviewer for entry in item.opinions}:
        return '<span class="hint">You are one of those who differ; a third person decides.</span>'
    target = item.target
    places = {"branch": target.branch_id, "first": target.first_step, "last": target.last_step}
    given = "".join(f' data-{name}="{value}"' for name, value in places.items() if value is not None)
    name = escape(place_name(target))
    return (
        f'<button type="button" class="btn small" data-do="decide"{given} data-name="{name}" '
        f'aria-label="Decide on {name}">Decide</button>'
    )


def _short(words: str) -> str:
    text = " ".join(words.split()) or shown_token(words)
    return text if len(text) <= LONGEST_WORDS else f"{text[:LONGEST_WORDS].rstrip()} …"


SHOWN_ENTRIES = 25
"""Entries of the log that are shown before the rest is asked for."""


def log_table(sheet: ReviewSheet) -> str:
    """The log, newest entry first."""
    if not sheet.log:
        return '<p class="sub">The log is empty. Every verdict and every review is written down here, in order.</p>'
    rows = [_log_row(entry) for entry in reversed(sheet.log)]
    heads = [("Entry", "n"), ("When", ""), ("Who", ""), ("What", ""), ("On", ""), ("Note", ""), ("Digest", "")]
    made = table(heads, rows, "log", "Verdict log, newest entry first")
    hidden = len(rows) - SHOWN_ENTRIES
    if hidden <= 0:
        return made
    more = (
        f'<button type="button" class="btn small quiet" data-do="whole">Show {plural(hidden, "older entry")}</button>'
    )
    return made + more.replace("older entrys", "older entries")


def _log_row(entry: LogEntry) -> list[str]:
    what = {
        "verdict": entry.verdict or "withdraws",
        "adjudication": f"decides {entry.verdict}",
        "review_started": f"begins {'a blind' if entry.blind else 'an open'} review",
        "review_finished": "finishes the review",
    }[entry.kind]
    about = place_name(entry.target) if entry.kind in ("verdict", "adjudication") else ""
    tag = f'<span class="judge-tag">{escape(entry.tag)}</span>' if entry.tag else ""
    blind = ", blind" if entry.blind and entry.kind == "verdict" else ""
    note = f'<span class="judge-note">{escape(entry.note)}</span>' if entry.note else ""
    return [
        count(entry.entry), f'<span class="nowrap tnum">{day(entry.at)}</span>', escape(entry.reviewer),
        f"{what}{blind}{tag}", escape(about), note, f'<span class="mono">{entry.digest[:12]}</span>',
    ]  # fmt: skip


def check(sheet: ReviewSheet) -> str:
    """Whether the log holds together, with its newest digest."""
    found = sheet.check
    if not found.entries:
        return ""
    state = "calibrated" if found.whole else "uninformative"
    entries = "1 entry" if found.entries == 1 else f"{count(found.entries)} entries"
    says = f"The chain of {entries} holds." if found.whole else f"The chain breaks. {escape(found.sentence)}"
    return f'<span class="badge {state}">{says}</span>'


def sheet_message(sheet: ReviewSheet, reviewer: str, reveal: bool = False, said: str = "") -> Message:
    """A session's verdicts as one reviewer may and wants to see them.

    Args:
        sheet: What the service gives to this reviewer.
        reviewer: Who looks; empty if she gave no name.
        reveal: She chose to see what others said although she has said nothing yet.
        said: What an action has done, in words.
    """
    closed = is_closed(sheet, reviewer, reveal)
    return {
        "kind": "sheet",
        "session": sheet.session_id,
        "reviewer": reviewer,
        "head": head(sheet),
        "review": review_box(sheet, reviewer),
        "targets": CLOSED if closed else targets(sheet, reviewer),
        "statuses": [] if closed else status_choices(sheet),
        "log": "" if closed else log_table(sheet),
        "check": check(sheet),
        "reviewers": busiest_first(sheet),
        "closed": closed,
        "blind": is_blind(sheet),
        "said": said,
    }


def is_closed(sheet: ReviewSheet, reviewer: str, reveal: bool) -> bool:
    """Whether the verdicts stay closed until the reader chose between a blind review and looking at them."""
    others = any(entry.kind in ("verdict", "adjudication") and entry.reviewer != reviewer for entry in sheet.log)
    return others and not reveal and reviewer not in sheet.reviewers


def busiest_first(sheet: ReviewSheet) -> list[str]:
    """All who wrote into the log, those with most opinions first."""
    said = Counter(entry.reviewer for item in sheet.current.targets for entry in item.opinions)
    return sorted(sheet.reviewers, key=lambda name: -said[name])


CLOSED = (
    '<div class="empty-list"><p class="sub">Others have judged this session. Judge it first without seeing what they '
    "said: start a blind review above. Whoever looks first can no longer give an independent opinion.</p>"
    '<p><button type="button" class="btn" data-do="reveal">Show the verdicts</button></p></div>'
)


def head(sheet: ReviewSheet) -> str:
    """Name, prompt, and the ways to the session's audit and to other sessions."""
    return (
        f'<div class="bar"><h2 tabindex="-1">{escape(sheet.name)}</h2><span class="end">'
        f'<a class="btn small" href="./?session={sheet.session_id}">Open on the audit page</a>'
        '<button type="button" class="btn small quiet" data-do="refresh">Refresh</button>'
        '<button type="button" class="btn small quiet" data-do="other">Another session</button></span></div>'
        f'<p class="sub">{escape(beginning(sheet.prompt))}</p>'
    )


def review_box(sheet: ReviewSheet, reviewer: str) -> str:
    """Where the reader's own review stands and what she can do, and the reviews of all."""
    return f'<div class="own-review">{_own_review(sheet, reviewer)}</div>{_reviews(sheet.current.reviews)}'


def _own_review(sheet: ReviewSheet, reviewer: str) -> str:
    if not reviewer:
        return '<p class="sub">Say who you are to review this session.</p>' + _button("rename", "Enter your name", True)
    review = sheet.current.review
    if review is not None and review.open:
        what = (
            "Your blind review is open: what others say is hidden until you finish it."
            if review.blind
            else "Your review is open."
        )
        return (
            f'<p class="sub">{icon("half") if review.blind else ""}{what} Begun {day(review.started_at)}.</p>'
            f'<a class="btn primary" href="./?session={sheet.session_id}">Judge on the audit page</a>'
            f"{_button('finish', 'Finish the review')}"
        )
    if sheet.may_be_blind:
        return (
            '<p class="sub">In a blind review you judge without seeing what others said; only such opinions count as '
            f"independent.</p>{_button('blind', 'Start a blind review', True)}{_button('open', 'Start an open review')}"
        )
    return (
        '<p class="sub">You have seen what others say of this session, or could have, so a review of it cannot be '
        f"blind any more.</p>{_button('open', 'Start an open review')}"
    )


def _button(action: str, text: str, primary: bool = False) -> str:
    return f'<button type="button" class="btn{" primary" if primary else ""}" data-do="{action}">{text}</button>'


def _reviews(reviews: Sequence[ReviewView]) -> str:
    if not reviews:
        return ""
    items = "".join(
        f"<li><strong>{escape(item.reviewer)}</strong> {'blind' if item.blind else 'open'}, begun "
        f"{day(item.started_at)}, {'not finished' if item.finished_at is None else f'finished {day(item.finished_at)}'}"
        "</li>"
        for item in reviews
    )
    return f'<ul class="reviews sub" aria-label="Reviews of this session">{items}</ul>'


def sessions_list(page: LibraryPage, text: str) -> str:
    """Sessions to choose from, those changed last first."""
    if page.entries:
        rows = "".join(_session(item) for item in page.entries)
        more = page.total - len(page.entries)
        rest = f'<p class="hint">{plural(more, "more session")}: search to find them.</p>' if more else ""
        return f'<ul class="session-choices">{rows}</ul>{rest}'
    if text.strip():
        return f'<p class="sub">No session matches “{escape(text.strip())}”.</p>'
    return (
        '<div class="empty-list"><p class="sub">No session to review yet. Start an audit, judge its tokens, and ask a '
        'second person to review it here.</p><p><a class="btn primary" href="./">Start an audit</a></p></div>'
    )


def _session(item: SessionEntryRecord) -> str:
    judged = f"{plural(item.verdict_count, 'verdict')}" if item.verdict_count else "not judged"
    return (
        f'<li><button type="button" data-do="choose" data-id="{item.id}"><span class="title cut">{escape(item.name)}'
        f'</span><span class="hint tnum">{judged}, changed {day(item.updated_at)}</span>'
        f'<span class="sub cut">{escape(beginning(item.prompt))}</span></button></li>'
    )
