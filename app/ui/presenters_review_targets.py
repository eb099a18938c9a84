"""What was judged of a session, as the review page shows it: where, the words, how it stands, and who says what."""

from __future__ import annotations

from collections import Counter
from html import escape
from urllib.parse import urlencode

from app.services.views.verdicts import LogEntry, ReviewSheet, StandingVerdict, Target
from app.ui.components.markup import icon
from app.ui.presenters_format import count, shown_token
from app.ui.presenters_verdicts import verdict_mark

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
