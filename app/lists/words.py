"""What the page of word lists says, as markup."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from app.lists.service import UserListView
from app.lists.upload import ParsedUserList
from app.shared.audits import FAMILY_NAMES
from app.shared.markup import html
from db.user_lists import UserListRecord

SHOWN_ERRORS = 12
SHOWN_TERMS = 500
EMPTY = html("""
    <section><div class="bar"><h2>Terms</h2></div>
      <p class="sub">No word list yet. The terms of the first one that you store stand here.</p></section>""")


def parsed_list(parsed: ParsedUserList) -> Markup:
    """An uploaded word list: how many terms it has, and what is wrong with which lines."""
    return html(
        """
        <p class="sub tnum"><strong>{{ parsed.filename }}</strong>, {{ parsed.total|plural("term") }}:
          {{ (parsed.terms|length - kept)|count }} to mask, {{ kept|count }} to keep</p>
        {% if parsed.ignored_columns %}
          <p class="hint">Not read: {{ parsed.ignored_columns|join(", ") }}.</p>
        {% endif %}
        {% if parsed.errors %}
          <div class="bar"><h3>Lines that can’t be used</h3><span class="hint tnum">
            {{ parsed.errors|length|count }} of {{ parsed.total|count }};
            correct them and upload the file again</span></div>
          <table class="errors"><caption class="vh">Lines that cannot be used</caption>
            <thead><tr><th scope="col" class="n">Line</th><th scope="col">Column</th>
              <th scope="col">What is wrong</th></tr></thead>
            <tbody>{% for error in parsed.errors[:shown] %}
              <tr><td class="n">{{ error.line }}</td><td>{{ error.column }}</td>
                <td>{{ error.message }}</td></tr>
            {% endfor %}</tbody></table>
          {% if parsed.errors|length > shown %}
            <p class="hint">{{ (parsed.errors|length - shown)|count }} more.</p>
          {% endif %}
        {% endif %}""",
        parsed=parsed,
        kept=sum(term.keep for _, term in parsed.terms),
        shown=SHOWN_ERRORS,
    )


def stored_lists(lists: Sequence[UserListRecord], shown: int | None) -> Markup:
    """The word lists, with what can be done with each."""
    return html(
        """
        {% if not lists %}<p class="sub">No word list yet.</p>{% else %}
        <ul class="runlist">{% for item in lists %}
          <li{% if item.id == shown %} aria-current="true"{% endif %}>
            <button type="button" class="link" data-do="show" data-id="{{ item.id }}">{{ item.name }}</button>
            <span><button type="button" class="btn small quiet" data-do="export" data-id="{{ item.id }}"
                aria-label="Download {{ item.name }} as CSV">{{ icon("down") }}CSV</button>
              <button type="button" class="btn small quiet" data-do="delete" data-id="{{ item.id }}"
                data-name="{{ item.name }}" data-what="The list goes for good. Audits that used it keep what they show,
                and can no longer be continued." aria-label="Delete {{ item.name }}">Delete</button></span>
            <span class="hint tnum">
              {{ item.term_count|plural("term") }}, {{ item.created_at|day }}, <span class="mono">
              {{ item.digest|abbreviated }}</span></span></li>
        {% endfor %}</ul>{% endif %}""",
        lists=lists,
        shown=shown,
    )


def shown_list(view: UserListView) -> Markup:
    """The terms of a word list."""
    return html(
        """
        <section><div class="bar"><h2>{{ view.summary.name }}</h2><span class="hint tnum">
            {{ view.masked|count }} to mask, {{ view.kept|count }} to keep</span></div>
          <table class="terms"><caption class="vh">Terms</caption>
            <thead><tr><th scope="col">Term</th><th scope="col">Family</th>
              <th scope="col">Action</th></tr></thead>
            <tbody>{% for term in view.terms[:shown] %}
              <tr><td><span class="word{{ " white" if term.keep }}">{{ term.term }}</span></td>
                <td>{% if term.keep %}–{% else %}<span class="sw f-{{ term.family }}"></span>
                  {{ families.get(term.family, term.family) }}{% endif %}</td>
                <td>{{ "keep visible" if term.keep else "mask" }}</td></tr>
            {% endfor %}</tbody></table>
          {% if view.terms|length > shown %}
            <p class="hint">{{ (view.terms|length - shown)|count }} more: download the list to see them.</p>
          {% endif %}</section>""",
        view=view,
        shown=SHOWN_TERMS,
        families=FAMILY_NAMES,
    )
