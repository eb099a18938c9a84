"""What the review page says of a session's verdicts, as markup and messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape

from app.services.views.library import LibraryEntry, LibraryPage
from app.services.views.verdicts import ReviewSheet, ReviewView
from app.ui.components.markup import icon
from app.ui.presenters_format import day, plural
from app.ui.presenters_library import beginning
from app.ui.presenters_review_log import check, log_table
from app.ui.presenters_review_targets import is_blind, status_choices, targets

Message = dict[str, object]


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


def _session(item: LibraryEntry) -> str:
    judged = f"{plural(item.verdicts, 'verdict')}" if item.verdicts else "not judged"
    return (
        f'<li><button type="button" data-do="choose" data-id="{item.id}"><span class="title cut">{escape(item.name)}'
        f'</span><span class="hint tnum">{judged}, changed {day(item.updated_at)}</span>'
        f'<span class="sub cut">{escape(beginning(item.prompt))}</span></button></li>'
    )
