"""What the sessions page says, as markup and messages."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from app.services.policy_words import policy_about, policy_name
from app.services.views.library import BulkExport, LibraryChoices, LibraryEntry, LibraryPage, LibraryQuery
from app.ui.components.markup import badge, icon
from app.ui.presenters_format import count, day, plural

Message = dict[str, object]

PROMPT_BEGINNING = 160
"""Characters of a prompt in its row; the rest is on the session's own page."""

EXPORTS = (
    ("csv", "CSV", "One table, one row a token. For a spreadsheet."),
    ("zip", "CSV bundle (zip)", "Steps, candidate words and the verdict log as three tables. For your own analysis."),
    ("html", "HTML report", "To read, print or hand on: one file that needs nothing else."),
    ("json", "JSON", "Everything in the report as data with a fixed form. For other programs."),
    ("bundle", "Evidence bundle", "The report with all that a third party needs to recompute and check it."),
    (
        "bundle-with-prompts",
        "Evidence bundle with calibration prompts",
        "The same with the prompts of its calibration, so that this can be made again. They may be confidential.",
    ),
)
"""Kinds of reports, their names, and what each is for."""

COLUMNS = (
    ("Session", "name", "session"),
    ("Tags", "", "tagged"),
    ("Policy, model", "model", "method"),
    ("Certificate", "certificate", "claim"),
    ("Steps", "steps", "n"),
    ("Branches", "", "n branches"),
    ("Verdicts", "", "n"),
    ("Changed", "updated", "n"),
)
"""Title, what a click sorts by (empty for nothing), and classes."""

FIRST_DOWN = ("updated", "steps")
"""Orders that begin with the largest or latest."""

NO_SESSION = (
    '<div class="empty-list"><p class="sub">No audit yet. Every audit that you start is kept here, with each '
    'token, as soon as the page shows it.</p><p><a class="btn primary" href="./">Start an audit</a></p></div>'
)


def page_message(page: LibraryPage, choices: LibraryChoices, query: LibraryQuery, said: str = "") -> Message:
    """A page of the library: its rows, where it stands among the others, and what the filters can be set to.

    Args:
        page: The sessions that were found.
        choices: What the store holds.
        query: What was asked for.
        said: What an action has done, in words.
    """
    return {
        "kind": "page",
        "html": _results(page, choices, query),
        "where": _where(page, query.page_size),
        "page": page.page,
        "pages": page.pages,
        "total": page.total,
        "ids": [item.id for item in page.entries],
        "choices": {
            "policy": [(name, f"{policy_name(name)} ({count(n)})") for name, n in choices.policies],
            "model": [(name, f"{name} ({count(n)})") for name, n in choices.models],
            "tag": [(name, f"{name} ({count(n)})") for name, n in choices.tags],
        },
        "said": said,
    }


def export_sentence(made: BulkExport) -> str:
    """What a ZIP file of reports holds."""
    gone = f"; {count(made.missing)} no longer {'exists' if made.missing == 1 else 'exist'}" if made.missing else ""
    return f"{plural(made.sessions, 'session')} in one ZIP file, with an index{gone}."


def _where(page: LibraryPage, size: int) -> str:
    if not page.total:
        return "0 sessions"
    first = (page.page - 1) * size + 1
    if page.pages == 1:
        return plural(page.total, "session")
    return f"{count(first)}–{count(first + len(page.entries) - 1)} of {plural(page.total, 'session')}"


def _results(page: LibraryPage, choices: LibraryChoices, query: LibraryQuery) -> str:
    if page.entries:
        return _table(page.entries, query)
    return _nothing_found(query) if choices.models else NO_SESSION


def _nothing_found(query: LibraryQuery) -> str:
    """What was not found, and how to find more."""
    what = f"No session matches “{escape(query.text.strip())}”" if query.text.strip() else "No session is shown here"
    others = [query.policy, query.model, query.certificate, query.tag, query.judged, query.since, query.until]
    why = " with these filters" if any(item is not None for item in others) else ""
    hidden = " Archived ones are left out." if query.archived is False else ""
    return (
        f'<div class="empty-list"><p class="sub">{what}{why}.{hidden}</p>'
        '<p><button type="button" class="btn" data-do="everything">Show all sessions</button></p></div>'
    )


def _table(entries: Sequence[LibraryEntry], query: LibraryQuery) -> str:
    head = "".join(_head(*column, query) for column in COLUMNS)
    rows = "".join(_row(item) for item in entries)
    return (
        '<table class="sessions"><caption class="vh">Sessions</caption><thead><tr><th scope="col" class="pick">'
        '<input type="checkbox" data-do="pick-all" aria-label="Choose all on this page"></th>'
        f'{head}<th scope="col" class="n"><span class="vh">Actions</span></th></tr></thead><tbody>{rows}</tbody>'
        "</table>"
    )


def _head(title: str, order: str, classes: str, query: LibraryQuery) -> str:
    if not order:
        return f'<th scope="col" class="{classes}">{title}</th>'
    state, arrow, turn = "", "", order in FIRST_DOWN
    if query.order == order:
        state = f' aria-sort="{"descending" if query.descending else "ascending"}"'
        arrow, turn = "↓" if query.descending else "↑", not query.descending
    return (
        f'<th scope="col" class="{classes}"{state}><button type="button" class="sort" data-do="sort" '
        f'data-order="{order}" data-down="{str(turn).lower()}">{title}<span aria-hidden="true">{arrow}</span>'
        "</button></th>"
    )


def _row(item: LibraryEntry) -> str:
    name, prompt = escape(item.name), escape(beginning(item.prompt))
    archived = '<span class="mark">archived</span>' if item.archived else ""
    state = "calibrated" if item.certificate == "certified" else "uninformative"
    method = f'<span title="{escape(policy_about(item.policy))}">{escape(policy_name(item.policy))}</span>'
    branches = f"{count(item.branches)} {'branch' if item.branches == 1 else 'branches'}"
    return (
        f'<tr data-id="{item.id}" data-name="{name}"><td class="pick"><input type="checkbox" data-do="pick" '
        f'data-id="{item.id}" aria-label="Choose {name}"></td>'
        f'<th scope="row" class="session"><a class="cut" href="./?session={item.id}">{name}</a>{archived}'
        f'<span class="cut sub prompt">{prompt}</span></th>'
        f'<td class="tagged">{_tags(item)}</td>'
        f'<td class="method">{method}<span class="cut hint">{escape(item.model)}</span></td>'
        f'<td class="claim">{badge(state, item.certificate)}</td>'
        f'<td class="n">{count(item.steps)}<span class="hint folded">{branches}</span></td>'
        f'<td class="n branches">{count(item.branches)}</td>'
        f'<td class="n">{count(item.verdicts)}<a class="to-review" href="./review?session={item.id}" '
        f'aria-label="Review session {item.id}">Review</a></td><td class="n changed">{day(item.updated_at)}</td>'
        f'<td class="n actions">{_menus(item, name)}</td></tr>'
    )


def beginning(prompt: str) -> str:
    """The first characters of a prompt in one line."""
    line = " ".join(prompt.split())
    return line if len(line) <= PROMPT_BEGINNING else f"{line[:PROMPT_BEGINNING].rstrip()} …"


def _tags(item: LibraryEntry) -> str:
    name = escape(item.name)
    chips = "".join(
        f'<li class="chip"><button type="button" data-do="by-tag" data-tag="{escape(tag)}" '
        f'title="Show sessions tagged {escape(tag)}">{escape(tag)}</button>'
        f'<button type="button" data-do="untag" data-id="{item.id}" data-tag="{escape(tag)}" '
        f'aria-label="Remove tag {escape(tag)} from {name}">{icon("cross")}</button></li>'
        for tag in item.tags
    )
    return (
        f'<ul class="chips">{chips}<li><button type="button" class="btn small quiet" data-do="tag" '
        f'data-id="{item.id}" aria-label="Add a tag to {name}">+ tag</button></li></ul>'
    )


def _menus(item: LibraryEntry, name: str) -> str:
    def opens(menu: str, text: str, spoken: str) -> str:
        return (
            f'<button type="button" class="btn small quiet" data-do="menu" data-menu="{menu}" data-id="{item.id}" '
            f'data-archived="{str(item.archived).lower()}" aria-haspopup="menu" aria-expanded="false" '
            f'aria-label="{spoken} {name}">{text}</button>'
        )

    return opens("download", f"{icon('down')}Download", "Download") + opens("more", "More", "More actions for")
