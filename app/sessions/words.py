"""What the sessions page says, as markup and messages."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from app.sessions.archive import BulkExport
from app.sessions.service import BatchFold, FoldedPage, LibraryQuery
from app.shared.audits import SENSITIVE
from app.shared.events import Reply
from app.shared.format import count, plural
from app.shared.glossary import explained_titles
from app.shared.markup import html, scrolled
from app.shared.policies import policy_about, policy_name
from app.shared.prompt_words import beginning
from coft_core.types import Certificate
from db.library import BatchFoldRecord, LibraryChoicesRecord, SessionEntryRecord
from db.projects import ProjectRecord

SIZES = (25, 50, 100)
ANY = (("", "Any"),)
FILTERS = (
    (
        "certificate",
        "Thresholds",
        (
            *ANY,
            ("certified", "Under thresholds"),
            ("uncertified", "Without thresholds"),
            ("mismatch", "Without: other settings than calibrated"),
        ),
    ),
    ("judged", "Verdicts", (("any", "With or without"), ("yes", "With a verdict"), ("no", "Without a verdict"))),
    ("tag", "Tag", ANY),
    ("policy", "Policy", ANY),
    ("model", "Model", ANY),
    ("archived", "Archive", (("no", "Without archived"), ("yes", "Only archived"), ("any", "All"))),
)
"""Name, label and choices of each menu; those of tags, policies and models are filled with what the store holds."""

BULK = (
    ("tag", "Add a tag", ""),
    ("untag", "Remove a tag", ""),
    ("compare", "Compare", ""),
    ("archive", "Archive", ""),
    ("unarchive", "Take out of the archive", ""),
    ("move", "Move to a project", ""),
    ("gather", "Export reports", "down"),
)
"""What can be done with several sessions at once, deleting apart."""

COLUMNS = (
    ("Session", "name", "session"),
    ("Tags", "", "tagged"),
    ("Policy, model", "model", "method"),
    ("Strongest sensitivity", "strongest", "n strongest"),
    ("Thresholds", "certificate", "claim"),
    ("Steps", "steps", "n"),
    ("Branches", "", "n branches"),
    ("Verdicts", "", "n"),
    ("Changed", "updated", "n"),
)
"""Title, what a click sorts by (empty for nothing), and classes."""

EXPLAINED = explained_titles(title for title, _, _ in COLUMNS)

FIRST_DOWN = ("updated", "steps", "strongest")
"""Orders that begin with the largest or latest."""

NO_SESSION = html("""
    <div class="empty-list"><p class="sub">No audit yet. Every audit that you start is kept here, with each token,
        as soon as the page shows it.</p>
      <p><a class="btn primary" href="./">Start an audit</a></p></div>""")


def browser() -> Markup:
    """The frame of the library: filters, paging, actions, menus and questions."""
    return html(
        """
        <section aria-labelledby="h-sessions">
        <form class="filters" role="search" aria-label="Filters">
          <div class="field wide"><label for="search">Search</label>
            <input class="input" id="search" type="search" name="text" autocomplete="off" spellcheck="false"
              placeholder="Name, prompt, tag, or the note of a verdict"></div>
          {% for name, label, options in filters %}
            <div class="field"><label for="f-{{ name }}">{{ label }}</label>
              <select class="select" id="f-{{ name }}" name="{{ name }}">{% for value, text in options %}
                <option value="{{ value }}">{{ text }}</option>{% endfor %}</select></div>
          {% endfor %}
          {% for name, label in [("since", "Changed from"), ("until", "Changed until")] %}
            <div class="field"><label for="f-{{ name }}">{{ label }}</label>
              <input class="input" id="f-{{ name }}" name="{{ name }}" type="date"></div>
          {% endfor %}
          <div class="field"><button type="button" class="btn" data-do="reset">Clear filters</button></div></form>
        <div class="bar foundbar"><h2 id="h-sessions" class="vh">Results</h2>
          <span class="sub tnum where" role="status"></span><span class="sub told" role="status"></span>
          <div class="end pager">
            <select class="select small" name="size" aria-label="Sessions a page">{% for size in sizes %}
              <option value="{{ size }}">{{ size }} a page</option>{% endfor %}</select>
            <button type="button" class="btn small" data-do="page" data-by="-1" disabled>
              {{ icon("back") }}Previous</button>
            <span class="hint tnum leaf"></span>
            <button type="button" class="btn small" data-do="page" data-by="1" disabled>Next{{ icon("step") }}</button>
          </div></div>
        <div class="bulk" role="toolbar" aria-label="Chosen sessions" hidden>
          <strong class="tnum chosen" role="status"></strong>
          <button type="button" class="btn small quiet" data-do="pick-found" hidden></button>
          <span class="acts">
            {% for action, text, mark in bulk %}
              <button type="button" class="btn small" data-do="bulk" data-action="{{ action }}"
                {%- if action != "gather" %} data-takes="act"{% endif %}>
                {% if mark %}{{ icon(mark) }}{% endif %}{{ text }}</button>
            {% endfor %}
            <button type="button" class="btn small danger" data-do="bulk" data-action="delete"
              data-takes="act">Delete</button></span>
          <button type="button" class="btn small quiet" data-do="pick-none">Choose none</button></div>
        <div id="sessions" class="results" tabindex="-1" aria-busy="true"><p class="sub">Loading …</p></div>
        {% macro item(action, text, classes="") %}
          <button type="button" role="menuitem" tabindex="-1" class="{{ classes }}" data-do="one"
            data-takes="act" data-action="{{ action }}"><span class="title">{{ text }}</span></button>
        {% endmacro %}
        <div class="menu" id="menu-more" popover role="menu" aria-label="More actions">
          {% for action, text in [("rename", "Rename"), ("tag", "Add a tag")] %}{{ item(action, text) }}{% endfor %}
          <a role="menuitem" tabindex="-1" data-do="duplicate" href="./">
            <span class="title">Duplicate with other settings</span>
            <span class="hint">Opens the audit page with this prompt, its spans and settings.</span></a>
          {% for action, text in [
              ("archive", "Archive"), ("unarchive", "Take out of the archive"), ("move", "Move to a project")] %}
            {{ item(action, text) }}
          {% endfor %}
          {{ item("delete", "Delete", "danger") }}</div>
        <dialog id="ask" class="sheet coft" aria-labelledby="ask-title"><form method="dialog">
          <h2 id="ask-title"></h2>
          <div class="field"><label for="ask-text"></label>
            <input class="input" id="ask-text" autocomplete="off" required></div>
          <datalist id="known-tags"></datalist>
          <div class="row"><button type="button" class="btn" data-do="cancel">Cancel</button>
            <button class="btn primary" value="yes"></button></div></form></dialog></section>""",
        filters=FILTERS,
        sizes=SIZES,
        bulk=BULK,
    )


def page_message(
    page: FoldedPage,
    choices: LibraryChoicesRecord,
    query: LibraryQuery,
    said: str = "",
    projects: Sequence[ProjectRecord] = (),
) -> Reply:
    """A page of the library."""
    nothing = _nothing_found(query) if choices.models else NO_SESSION
    return {
        "kind": "page",
        "html": _table(page, query) + EXPLAINED if page.rows else nothing,
        "where": _where(page, query.page_size),
        "page": page.page,
        "pages": page.pages,
        "total": page.total,
        "ids": [entry.id for row in page.rows for entry in (row.entries if isinstance(row, BatchFold) else (row,))],
        "batches": [row.counted.id for row in page.rows if isinstance(row, BatchFold)],
        "choices": {
            "policy": [(name, f"{policy_name(name)} ({count(n)})") for name, n in choices.policies],
            "model": [(name, f"{name} ({count(n)})") for name, n in choices.models],
            "tag": [(name, f"{name} ({count(n)})") for name, n in choices.tags],
        },
        "projects": [project.name for project in projects],
        "said": said,
    }


def export_sentence(export: BulkExport) -> str:
    """What a ZIP file of reports holds."""
    gone = "" if not export.missing else f"; {count(export.missing)} no longer exist{'s' * (export.missing == 1)}"
    return f"{plural(export.sessions, 'session')} in one ZIP file, with an index{gone}."


def _where(page: FoldedPage, size: int) -> str:
    if page.pages == 1:
        return plural(page.total, "session")
    first = (page.page - 1) * size + 1
    shown = f"{count(first)}–{count(first + len(page.rows) - 1)}"
    if page.row_total == page.total:
        return f"{shown} of {plural(page.total, 'session')}"
    return f"{shown} of {plural(page.row_total, 'row')}, {plural(page.total, 'session')}"


def _nothing_found(query: LibraryQuery) -> Markup:
    others = (query.policy, query.model, query.certificate, query.tag, query.judged, query.since, query.before)
    return html(
        """
        <div class="empty-list"><p class="sub">
          {{- "No session matches “" ~ text ~ "”" if text else "No session is shown here" }}
          {{- " with these filters" if filtered }}.{{ " Archived ones are left out." if archived == false }}</p>
        <p><button type="button" class="btn" data-do="everything">Show all sessions</button></p></div>""",
        text=query.text.strip(),
        filtered=any(item is not None for item in others),
        archived=query.archived,
    )


def _table(page: FoldedPage, query: LibraryQuery) -> Markup:
    return scrolled(
        "Sessions",
        html(
            """
            <table class="sessions"><caption class="vh">Sessions</caption><thead><tr><th scope="col" class="pick">
              <input type="checkbox" data-do="pick-all" aria-label="Choose all on this page"></th>
            {% for title, order, classes in columns %}
              {% set sorted = order == query.order %}
              <th scope="col" class="{{ classes }}"
                {%- if sorted %} aria-sort="{{ "descending" if query.descending else "ascending" }}"{% endif %}>
              {% if order %}
                <button type="button" class="sort" data-do="sort" data-order="{{ order }}"
                  data-down="{{ (not query.descending if sorted else order in first_down)|tojson }}">{{ title }}
                  <span aria-hidden="true">{{ ("↓" if query.descending else "↑") if sorted }}</span></button>
              {% else %}{{ title }}{% endif %}</th>
            {% endfor %}
            <th scope="col" class="n actions"><span class="vh">Actions</span></th></tr></thead>
            <tbody>{% for row in rows %}{{ row }}{% endfor %}</tbody></table>""",
            columns=COLUMNS,
            first_down=FIRST_DOWN,
            query=query,
            rows=[_rows(row) for row in page.rows],
        ),
    )


def _rows(row: SessionEntryRecord | BatchFold) -> Markup:
    return _fold(row) if isinstance(row, BatchFold) else _session(row)


def _fold(fold: BatchFold) -> Markup:
    """A batch as one row, and under it its sessions where it is opened."""
    counted = fold.counted
    return html(
        """
        <tr class="fold" data-id="{{ batch.id }}" data-name="{{ batch.name }}">
        <td class="pick"><input type="checkbox" data-do="pick-batch" data-id="{{ batch.id }}"
          aria-label="Choose all sessions of {{ batch.name }}"></td>
        <th scope="row" class="session"><button type="button" class="unfold" data-do="unfold" data-id="{{ batch.id }}"
          aria-expanded="{{ (inside|length > 0)|tojson }}">{{ icon("chev", "chev") }}
          <span>{{ batch.name }}</span></button>
          <span class="sub prompt">{{ batch.session_count|plural("session") }} of a batch.
            {{ finding(batch) }}</span></th>
        <td class="tagged"><a class="btn small quiet" href="./batches?batch={{ batch.id }}"
          aria-label="Open the batch {{ batch.name }}">Open batch</a></td>
        <td class="method"></td>
        {{ figures }}
        <td class="claim">{{ badge(*held) }}</td>
        <td class="n">{{ batch.step_count|count }}</td>
        <td class="n branches">{{ batch.branch_count|count }}</td>
        <td class="n">{{ batch.judged_count|count }}<span class="hint folded-note">of {{ batch.session_count|count }}
          judged{% if batch.hidden_count %}, {{ batch.hidden_count|count }} hidden{% endif %}</span></td>
        <td class="n changed">{{ batch.updated_at|day }}</td>
        <td class="n actions"></td></tr>
        {% for entry in inside %}{{ entry }}{% endfor %}
        {% if rest > 0 %}<tr class="within"><td class="pick"></td><th scope="row" class="session"
          colspan="10"><a href="./sessions?batch={{ batch.id }}">{{ rest|count }} more in this batch</a></th></tr>
        {% endif %}""",
        batch=counted,
        inside=[_session(entry, within=True) for entry in fold.entries],
        rest=counted.session_count - len(fold.entries) if fold.entries else 0,
        finding=_finding,
        figures=_strongest(counted.strongest),
        held=_held_by(counted),
    )


def _finding(batch: BatchFoldRecord) -> str:
    """In how many sessions of a batch a token differs between the two readings, in one sentence."""
    if batch.strongest is None:
        return "No token yet."
    if not batch.sensitive_count:
        return "No token differs strongly between shown and masked."
    return (
        f"A token differs strongly between shown and masked in {count(batch.sensitive_count)} of "
        f"{count(batch.session_count)}."
    )


def _strongest(value: float | None) -> Markup:
    return html(
        """<td class="n strongest{{ " signal" if value is not none and value >= sensitive }}">
            {{- "–" if value is none else value|signed|replace("+", "") }}</td>""",
        value=value,
        sensitive=SENSITIVE,
    )


def _session(item: SessionEntryRecord, within: bool = False) -> Markup:
    """A session's row; its prompt is left out where its name says it already."""
    prompt = beginning(item.prompt)
    return html(
        """
        <tr data-id="{{ item.id }}" data-name="{{ item.name }}"{% if within %} class="within"{% endif %}>
        <td class="pick"><input type="checkbox" data-do="pick" data-id="{{ item.id }}"
          aria-label="Choose {{ item.name }}"></td>
        <th scope="row" class="session"><a href="./?session={{ item.id }}">{{ item.name }}</a>
          {% if item.archived_at %}<span class="mark">archived</span>{% endif %}
          {% if prompt %}<span class="sub prompt">{{ prompt }}</span>{% endif %}</th>
        <td class="tagged"><ul class="chips">
          {% for tag in item.tags %}
            <li class="chip"><button type="button" data-do="by-tag" data-tag="{{ tag }}"
                title="Show sessions tagged {{ tag }}">{{ tag }}</button>
              <button type="button" data-do="untag" data-takes="act" data-id="{{ item.id }}" data-tag="{{ tag }}"
                aria-label="Remove tag {{ tag }} from {{ item.name }}">{{ icon("cross") }}</button></li>
          {% endfor %}
          <li><button type="button" class="btn small quiet" data-do="tag" data-takes="act" data-id="{{ item.id }}"
            aria-label="Add a tag to {{ item.name }}">+ tag</button></li></ul></td>
        <td class="method"><span title="{{ policy_about(item.policy) }}">{{ policy_name(item.policy) }}</span>
          <span class="hint">{{ item.model }}</span></td>
        {{ figures }}
        <td class="claim">{{ badge(*held) }}</td>
        <td class="n">{{ item.step_count|count }}</td>
        <td class="n branches">{{ item.branch_count|count }}</td>
        <td class="n">{{ "hidden" if item.verdict_count is none else item.verdict_count|count }}<a class="to-review"
          href="./review?session={{ item.id }}" aria-label="Review session {{ item.id }}">Review</a></td>
        <td class="n changed">{{ item.updated_at|day }}</td>
        <td class="n actions">
          {% for menu, text, spoken in menus %}
            <button type="button" class="btn small quiet" data-do="menu" data-menu="{{ menu }}"
              data-id="{{ item.id }}" data-archived="{{ (item.archived_at is not none)|tojson }}" aria-haspopup="menu"
              aria-expanded="false" aria-label="{{ spoken }} {{ item.name }}">
              {% if menu == "download" %}{{ icon("down") }}{% endif %}{{ text }}</button>
          {% endfor %}</td></tr>""",
        item=item,
        within=within,
        prompt="" if prompt == beginning(item.name) else prompt,
        menus=(("download", "Download", "Download"), ("more", "More", "More actions for")),
        policy_about=policy_about,
        policy_name=policy_name,
        figures=_strongest(item.strongest),
        held=_held(item),
    )


def _held(item: SessionEntryRecord) -> tuple[str, str]:
    """State and words of whether the tokens of a session held their thresholds."""
    if not Certificate.read(item.certificate).certified:
        return "uninformative", item.certificate
    return _tokens_held(item)


def _held_by(batch: BatchFoldRecord) -> tuple[str, str]:
    """The same of all sessions of a batch together."""
    if batch.uncertified_count:
        return "uninformative", f"{plural(batch.uncertified_count, 'session')} without thresholds"
    return _tokens_held(batch)


def _tokens_held(item: SessionEntryRecord | BatchFoldRecord) -> tuple[str, str]:
    tokens = item.held_count + item.missed_count + item.weak_count
    if not tokens:
        return "uninformative", "no token yet"
    counted = f"certified at {count(item.held_count)} of {plural(tokens, 'token')}"
    if item.missed_count:
        return "missed", f"{counted}, missed at {count(item.missed_count)}"
    return "calibrated" if item.held_count else "uninformative", counted
