"""What the page of accounts says, as markup."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from app.accounts.deletion import extent_words
from app.accounts.disk import AccountDisk, DiskUse, amount, disk_sentence, parts_words
from app.accounts.passwords import ONE_TIME, OneTimePassword
from app.accounts.projects import ProjectView
from app.shared.markup import html
from db.accounts import AccountRecord, TokenRecord
from db.project_contents import ProjectExtent
from db.projects import ProjectRecord
from db.scope import DEFAULT
from db.trail import TrailRecord

MAY = {
    "viewer": "read and export",
    "reviewer": "read, audit and judge",
    "lead": "audit, judge, start long work and assign reviews",
    "admin": "do everything, and manage accounts",
}
"""What a role may do, to go on after "may"."""


def listed_accounts(use: DiskUse, shown: int | None) -> Markup:
    """The accounts with their roles, when they signed in last and what they have made takes."""
    return html(
        """
        <ul class="runlist">{% for one in use.accounts %}{% set item = one.account %}
          <li{% if item.id == shown %} aria-current="true"{% endif %}>
            <button type="button" class="link" data-do="show" data-id="{{ item.id }}">{{ item.name }}</button>
            <span class="hint">{{ item.role }}{% if item.disabled_at %}, disabled{% endif %}</span>
            <span class="hint tnum">{{ signed_in(item) }}{% if one.total %}, has {{ amount(one.total) }}{% endif %}
            </span></li>
        {% endfor %}</ul>
        <p class="hint tnum">{{ said }}</p>""",
        use=use,
        shown=shown,
        signed_in=_signed_in,
        amount=amount,
        said=disk_sentence(use),
    )


def _signed_in(account: AccountRecord) -> str:
    if account.signed_in_at is not None:
        return f"signed in last on {account.signed_in_at:%Y-%m-%d at %H:%M} UTC"
    return "has never signed in"


def shown_account(
    disk: AccountDisk,
    limit: int,
    tokens: Sequence[TokenRecord],
    projects: Sequence[ProjectRecord],
    names: dict[int, str],
) -> Markup:
    """One account: who signs it in, what it sees, its tokens, and what can be done with it."""
    account = disk.account
    return html(
        """
        <section><div class="bar"><h2>{{ account.name }}</h2><span class="hint">{{ account.role }}</span></div>
          <dl class="facts"><dt>Signs in</dt><dd>{{ by }}</dd>
            <dt>Last sign-in</dt><dd class="tnum">{{ signed_in(account) }}</dd>
            <dt>May</dt><dd>{{ may }}</dd>
            <dt>Projects</dt><dd>{{ projects|map(attribute="name")|join(", ") or
              "none, so that it sees nothing; add it to one below" }}</dd>
            <dt>In the store</dt><dd class="tnum">{{ taken }}</dd>
            <dt>Since</dt><dd class="tnum">{{ "{:%Y-%m-%d}".format(account.created_at) }}</dd></dl>
          {% if account.disabled_at %}<p class="sub">Disabled on {{ "{:%Y-%m-%d}".format(account.disabled_at) }}:
            neither its browsers nor its programs are let in. What it wrote stays.</p>{% endif %}
          <p class="acts">
            {% if not account.issuer %}<button type="button" class="btn" data-do="reset" data-id="{{ account.id }}">
              Reset the password</button>{% endif %}
            {% if account.disabled_at %}<button type="button" class="btn" data-do="enable"
              data-id="{{ account.id }}">Let it in again</button>
            {% else %}<button type="button" class="btn danger" data-do="disable" data-id="{{ account.id }}">
              Disable</button>{% endif %}</p>
          <div class="bar"><h3>Tokens of programs</h3>
            {% if held %}<button type="button" class="btn small quiet" data-do="delete" data-id="{{ account.id }}"
              data-name="all tokens of {{ account.name }}"
              data-what="Programs that use them are refused at once.">Revoke all</button>{% endif %}</div>
          {% if not tokens %}<p class="sub">No token. One is made on the command line, where it is
            shown once: <span class="mono">python -m app accounts token "{{ account.name }}" --label …</span></p>
          {% else %}<ul class="runlist">{% for token in tokens %}<li><span>{{ token.label }}</span>
            <span>{% if token.revoked_at %}<span class="hint">revoked</span>{% else %}
              <button type="button" class="btn small quiet" data-do="revoke" data-id="{{ token.id }}"
                aria-label="Revoke {{ token.label }}">Revoke</button>{% endif %}</span>
            <span class="hint tnum">{% if token.used_at %}used last on {{ "{:%Y-%m-%d}".format(token.used_at) }}
              {%- else %}never used{% endif %}{% if token.expires_at %}, holds until
              {{ "{:%Y-%m-%d}".format(token.expires_at) }}{% endif %}{% if token.project_id %}, opens
              {{ names.get(token.project_id, "one project") }} alone{% endif %}</span></li>
          {% endfor %}</ul>{% endif %}</section>""",
        account=account,
        taken=_taken(disk, limit),
        tokens=tokens,
        projects=projects,
        names=names,
        held=any(token.revoked_at is None for token in tokens),
        by=f"by {account.issuer}" if account.issuer else _by_password(account),
        may=MAY[account.role],
        signed_in=_signed_in,
    )


def _taken(disk: AccountDisk, limit: int) -> str:
    allowed = f" of {limit / 1e6:,.0f} MB that it may have" if limit else ""
    full = "; it uploads, audits and runs nothing new until some of it is deleted" if 0 < limit <= disk.total else ""
    return f"{amount(disk.total)}{allowed}{': ' if disk.parts else ''}{parts_words(disk.parts)}{full}"


def _by_password(account: AccountRecord) -> str:
    if account.one_time_until is not None:
        return f"once with the password that was made here, until {account.one_time_until:%Y-%m-%d %H:%M} UTC"
    return "by a password of its own"


def one_time(made: OneTimePassword) -> Markup:
    """A password that is shown this once."""
    return html(
        """
        <section class="once" role="status"><h3>Password of {{ name }} for one sign-in</h3>
          <p><code class="mono">{{ password }}</code></p>
          <p class="hint">Hand it over now: it is shown this once and stored nowhere. It holds for {{ days }} days, and
            {{ name }} chooses another one when signing in.</p></section>""",
        name=made.account.name,
        password=made.password,
        days=ONE_TIME.days,
    )


def said(sentence: str) -> Markup:
    """What was just done."""
    return html('<p class="hint" role="status">{{ sentence }}</p>', sentence=sentence)


def listed_projects(projects: Sequence[ProjectView], shown: int | None) -> Markup:
    """The projects with how many members each has."""
    return html(
        """
        <ul class="runlist">{% for item in projects %}
          <li{% if item.record.id == shown %} aria-current="true"{% endif %}>
            <button type="button" class="link" data-do="show" data-id="{{ item.record.id }}">{{ item.record.name }}
            </button>
            <span class="hint tnum">{{ item.members|length|plural("member") }}</span></li>
        {% endfor %}</ul>""",
        projects=projects,
        shown=shown,
    )


def shown_project(project: ProjectView, extent: ProjectExtent) -> Markup:
    """One project with its members, and with what would go if it were deleted."""
    return html(
        """
        <section><div class="bar"><h2>{{ project.record.name }}</h2>
            <span class="hint tnum">since {{ "{:%Y-%m-%d}".format(project.record.created_at) }}</span></div>
          {% if not project.members %}<p class="sub">Nobody sees this project. Add its first member.</p>
          {% else %}<ul class="runlist">{% for account in project.members %}<li><span>{{ account.name }}</span>
            <button type="button" class="btn small quiet" data-do="leave" data-id="{{ account.id }}"
              aria-label="Remove {{ account.name }} from {{ project.record.name }}">Remove</button>
            <span class="hint">{{ account.role }}{% if account.disabled_at %}, disabled{% endif %}</span></li>
          {% endfor %}</ul>{% endif %}
          <p class="hint tnum">{{ deletion }}</p></section>""",
        project=project,
        deletion=_deletion(project, extent),
    )


def _deletion(project: ProjectView, extent: ProjectExtent) -> str:
    """What goes with a project, before anybody deletes it."""
    if project.record.id == DEFAULT:
        return "It cannot be deleted: what names no project belongs to it."
    if not extent.rows:
        return "It is empty, and is deleted at once."
    return f"To delete it is to delete {extent_words(extent)}, for good. Type its name below first."


def listed_trail(entries: Sequence[TrailRecord], total: int) -> Markup:
    """The newest entries of the trail, newest first."""
    return html(
        """
        {% if not entries %}<p class="sub">Nothing stands in the trail yet.</p>{% else %}
        <div class="scrolls" tabindex="0" role="region" aria-label="Audit trail, table">
        <table class="trail"><caption class="vh">Audit trail</caption><thead><tr><th scope="col" class="n">Entry</th>
          <th scope="col">When (UTC)</th><th scope="col">Who</th><th scope="col">What</th><th scope="col">About</th>
          <th scope="col">Outcome</th></tr></thead>
          <tbody>{% for entry in entries|reverse %}<tr><td class="n">{{ entry.entry }}</td>
            <td class="tnum">{{ "{:%Y-%m-%d %H:%M:%S}".format(entry.created_at) }}</td>
            <td>{{ entry.actor or "command line" }}</td><td>{{ entry.action }}</td><td>{{ entry.subject or "–" }}</td>
            <td>{{ entry.outcome }}</td></tr>{% endfor %}</tbody></table></div>
        {% if total > entries|length %}<p class="hint tnum">The newest {{ entries|length }} of {{ total|count }}; the
          downloads have all of them.</p>{% endif %}{% endif %}""",
        entries=entries,
        total=total,
    )
