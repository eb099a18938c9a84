"""What the page of word lists says, as markup."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from app.services.views import FAMILY_NAMES, ParsedUserList, UserListSummary, UserListView, UserTerm
from app.ui.components.markup import icon, table
from app.ui.presenters_format import abbreviated, count, day, plural

SHOWN_ERRORS = 12
SHOWN_TERMS = 500
WHAT = "The list goes for good. Audits that used it keep what they show, and can no longer be continued."
EMPTY = (
    '<section><div class="bar"><h2>Terms</h2></div><p class="sub">No word list yet. The terms of the first one that '
    "you store stand here.</p></section>"
)


def parsed_list(parsed: ParsedUserList) -> str:
    """An uploaded word list: how many terms it has, and what is wrong with which lines."""
    kept = sum(term.keep for _, term in parsed.terms)
    ignored = (
        f'<p class="hint">Not read: {escape(", ".join(parsed.ignored_columns))}.</p>' if parsed.ignored_columns else ""
    )
    return (
        f'<p class="sub tnum"><strong>{escape(parsed.filename)}</strong>, {plural(parsed.total, "term")}: '
        f"{count(len(parsed.terms) - kept)} to mask, {count(kept)} to keep</p>{ignored}{_errors(parsed)}"
    )


def _errors(parsed: ParsedUserList) -> str:
    if not parsed.errors:
        return ""
    rows = [[str(error.line), escape(error.column), escape(error.message)] for error in parsed.errors[:SHOWN_ERRORS]]
    rest = len(parsed.errors) - len(rows)
    more = f'<p class="hint">{count(rest)} more.</p>' if rest else ""
    head = [("Line", "n"), ("Column", ""), ("What is wrong", "")]
    return (
        f'<div class="bar"><h3>Lines that can’t be used</h3><span class="hint tnum">{count(len(parsed.errors))} of '
        f"{count(parsed.total)}; correct them and upload the file again</span></div>"
        f"{table(head, rows, 'errors', 'Lines that cannot be used')}{more}"
    )


def stored_lists(found: Sequence[UserListSummary], shown: int | None) -> str:
    """The word lists, with what can be done with each."""
    if not found:
        return '<p class="sub">No word list yet.</p>'
    rows = []
    for item in found:
        name = escape(item.name)
        current = ' aria-current="true"' if item.id == shown else ""
        rows.append(
            f'<li{current}><button type="button" class="link" data-do="show" data-id="{item.id}">{name}</button>'
            f'<span><button type="button" class="btn small quiet" data-do="export" data-id="{item.id}" '
            f'aria-label="Download {name} as CSV">{icon("down")}CSV</button>'
            f'<button type="button" class="btn small quiet" data-do="delete" data-id="{item.id}" data-name="{name}" '
            f'data-what="{WHAT}" aria-label="Delete {name}">Delete</button></span>'
            f'<span class="hint tnum">{plural(item.terms, "term")}, {day(item.created_at)}, '
            f'<span class="mono">{escape(abbreviated(item.digest))}</span></span></li>'
        )
    return f'<ul class="runlist">{"".join(rows)}</ul>'


def shown_list(view: UserListView) -> str:
    """The terms of a word list."""
    rows = [_row(term) for term in view.terms[:SHOWN_TERMS]]
    rest = len(view.terms) - len(rows)
    more = f'<p class="hint">{count(rest)} more: download the list to see them.</p>' if rest else ""
    head = [("Term", ""), ("Family", ""), ("Action", "")]
    return (
        f'<section><div class="bar"><h2>{escape(view.summary.name)}</h2><span class="hint tnum">'
        f"{count(view.masked)} to mask, {count(view.kept)} to keep</span></div>"
        f"{table(head, rows, 'terms', 'Terms')}{more}</section>"
    )


def _row(term: UserTerm) -> list[str]:
    word = f'<span class="word{" white" if term.keep else ""}">{escape(term.term)}</span>'
    family = f'<span class="sw f-{escape(term.family)}"></span>{escape(FAMILY_NAMES.get(term.family, term.family))}'
    return [word, "–" if term.keep else family, "keep visible" if term.keep else "mask"]
