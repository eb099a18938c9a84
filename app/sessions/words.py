"""What the sessions page says, as markup and messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from html import escape
from typing import Any, cast, get_args

from app.sessions.service import (
    BulkExport,
    CertificateState,
    LibraryChoices,
    LibraryEntry,
    LibraryOrder,
    LibraryPage,
    LibraryQuery,
)
from app.shared.errors import ServiceError
from app.shared.markup import badge, icon
from app.shared.policies import policy_about, policy_name
from app.shared.step_words import count, day, plural

SIZES = (25, 50, 100)
YES_NO: Mapping[str, bool | None] = {"yes": True, "no": False, "any": None}

CERTIFICATES = (
    ("", "Any"),
    ("certified", "Certified"),
    ("uncertified", "Uncertified"),
    ("mismatch", "Uncertified: other settings than calibrated"),
)
ARCHIVED = (("no", "Without archived"), ("yes", "Only archived"), ("any", "All"))
JUDGED = (("any", "With or without"), ("yes", "With a verdict"), ("no", "Without a verdict"))


def library_query(given: Mapping[str, Any]) -> LibraryQuery:
    """What the page asks for; an empty filter does not matter.

    Args:
        given: By name: ``text``, ``policy``, ``model``, ``certificate``, ``tag``, ``archived``, ``judged`` (yes, no or
            any), ``since``, ``until`` (ISO days), ``batch``, ``order``, ``down``, ``page`` and ``size``.

    Raises:
        ServiceError: A value is none of those that there are.
    """
    return LibraryQuery(
        text=str(given.get("text") or ""),
        policy=_text(given, "policy"),
        model=_text(given, "model"),
        certificate=cast(CertificateState | None, _one_of(given, "certificate", get_args(CertificateState))),
        tag=_text(given, "tag"),
        archived=YES_NO[_one_of(given, "archived", tuple(YES_NO)) or "no"],
        judged=YES_NO[_one_of(given, "judged", tuple(YES_NO)) or "any"],
        since=_day(given, "since"),
        until=_day(given, "until"),
        batch_id=_number(given, "batch", 0) or None,
        order=cast(LibraryOrder, _one_of(given, "order", get_args(LibraryOrder)) or "updated"),
        descending=bool(given.get("down", True)),
        page=_number(given, "page", 1),
        page_size=_number(given, "size", SIZES[0]),
    )


def filters() -> str:
    """The fields; menus of policies, models and tags are filled with what the store holds."""
    stored = "".join(_menu(name, label, (("", "Any"),)) for name, label in (("policy", "Policy"), ("model", "Model")))
    return (
        '<div class="field wide"><label for="search">Search</label><input class="input" id="search" type="search" '
        'name="text" autocomplete="off" spellcheck="false" placeholder="Name, prompt, tag, or the note of a verdict">'
        f"</div>{_menu('certificate', 'Certificate', CERTIFICATES)}{_menu('judged', 'Verdicts', JUDGED)}"
        f"{_menu('tag', 'Tag', (('', 'Any'),))}{stored}{_menu('archived', 'Archive', ARCHIVED)}"
        f"{_date('since', 'Changed from')}{_date('until', 'Changed until')}"
        '<div class="field"><button type="button" class="btn" data-do="reset">Clear filters</button></div>'
    )


def page_sizes() -> str:
    """The menu of page sizes."""
    options = "".join(f'<option value="{size}">{size} a page</option>' for size in SIZES)
    return f'<select class="select small" name="size" aria-label="Sessions a page">{options}</select>'


def _menu(name: str, label: str, options: Sequence[tuple[str, str]]) -> str:
    rows = "".join(f'<option value="{value}">{text}</option>' for value, text in options)
    return (
        f'<div class="field"><label for="f-{name}">{label}</label>'
        f'<select class="select" id="f-{name}" name="{name}">{rows}</select></div>'
    )


def _date(name: str, label: str) -> str:
    return (
        f'<div class="field"><label for="f-{name}">{label}</label>'
        f'<input class="input" id="f-{name}" name="{name}" type="date"></div>'
    )


def _text(given: Mapping[str, Any], name: str) -> str | None:
    return str(given.get(name) or "") or None


def _one_of(given: Mapping[str, Any], name: str, allowed: Sequence[str]) -> str | None:
    value = _text(given, name)
    if value is not None and value not in allowed:
        raise ServiceError(f"There is no {name} {value!r} to choose; choose {', '.join(allowed)}.")
    return value


def _day(given: Mapping[str, Any], name: str) -> date | None:
    value = _text(given, name)
    try:
        return None if value is None else date.fromisoformat(value)
    except ValueError as error:
        raise ServiceError(f"{value!r} is not a day; write it as year-month-day, such as 2026-05-04.") from error


def _number(given: Mapping[str, Any], name: str, usual: int) -> int:
    value = given.get(name)
    try:
        return usual if value in (None, "") else int(str(value))
    except ValueError as error:
        raise ServiceError(f"The {name} {value!r} is not a whole number; write one.") from error


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
