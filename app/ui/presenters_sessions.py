"""What the sessions page says, as markup."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from app.services.views import SessionSummary
from app.ui.components.markup import badge, icon, table
from app.ui.presenters_format import count, day

DELETED = "The audit goes for good, with all its branches and steps."


def sessions_table(found: Sequence[SessionSummary], search: str = "") -> str:
    """Past audits, newest first, or what to do when there is none."""
    if not found and search.strip():
        return f'<p class="sub empty-list">No audit matches “{escape(search.strip())}”.</p>'
    if not found:
        return (
            '<div class="empty-list"><p class="sub">No audit yet. Every audit that you start is kept here, with each '
            'token, as soon as the page shows it.</p><p><a class="btn primary" href="./">Start an audit</a></p></div>'
        )
    head = [("Audit", ""), ("Prompt", ""), ("Model", ""), ("Steps", "n"), ("Certificate", ""), ("Changed", "n"),
            ("<span class=vh>Actions</span>", "n")]  # fmt: skip
    return table(head, [_row(item) for item in found], "sessions", "Past audits")


def _row(item: SessionSummary) -> list[str]:
    name = escape(item.name)
    state = "calibrated" if item.certificate == "certified" else "uninformative"
    buttons = (
        f'<button type="button" class="btn small quiet" data-do="export" data-id="{item.id}" '
        f'aria-label="Report of {name} as CSV">{icon("down")}CSV</button>'
        f'<button type="button" class="btn small quiet" data-do="delete" data-id="{item.id}" data-name="{name}" '
        f'data-what="{DELETED}" aria-label="Delete {name}">Delete</button>'
    )
    return [
        f'<th scope="row" class="cut"><a href="./?session={item.id}">{name}</a></th>',
        f'<td class="cut sub" title="{escape(item.prompt)}">{escape(item.prompt)}</td>',
        f"{escape(item.model)}, {escape(item.policy)}",
        count(item.steps),
        badge(state, item.certificate),
        f'<span class="nowrap">{day(item.updated_at)}</span>',
        f'<td class="n nowrap">{buttons}</td>',
    ]
