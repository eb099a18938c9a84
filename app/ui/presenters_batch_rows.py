"""The rows of a batch as a table that can be sorted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from app.services.views.batches import BatchRowView, BatchView
from app.ui.components.markup import icon
from app.ui.presenters_batch_query import BatchQuery, filtered, group_value, page_of
from app.ui.presenters_format import count, plural, signed
from app.ui.presenters_library import Message, beginning

COLUMNS = (
    ("Line", "line", "n line", "Line in the file"),
    ("Prompt and continuation", "prompt", "text", "The prompt, and what was written so far; opens the session"),
    ("Group", "group", "group", "Group in the file"),
    ("Steps", "steps", "n", "Tokens written"),
    ("Certified", "certified_share", "n", "Share of the tokens that are certified"),
    ("Fallbacks", "fallbacks", "n", "Steps at which no token was certified"),
    ("Overruled", "overruled", "n", "Steps at which the likeliest token was refused and another one was certified"),
    ("Mean log-ratio", "mean_log_ratio", "n", "How much the attribute changes a token’s probability, on average"),
    ("Max log-ratio", "max_log_ratio", "n", "The same for the token where it changes most"),
    ("Least margin", "min_margin", "n", "How closely a token cleared the threshold, in nats"),
    ("Verdict", "verdict", "judged", "What reviewers said of the whole session"),
    ("State", "state", "state", "How far the row is"),
)  # fmt: skip
"""Title, what a click sorts by, classes, and what it means."""

FIRST_DOWN = (
    "steps", "certified_share", "fallbacks", "overruled", "mean_log_ratio", "max_log_ratio",
)  # fmt: skip
"""Orders that begin with the largest; a margin is telling where it is least."""

STATES = {
    "waiting": "waiting",
    "unfinished": "unfinished",
    "finished": "finished",
    "failed": "failed",
    "deleted": "session deleted",
}
NONE = '<span aria-hidden="true">–</span><span class="vh">none</span>'


def rows_message(view: BatchView, query: BatchQuery) -> Message:
    """The asked-for page of a batch's rows: markup, where it stands, and what the filters can be set to.

    Args:
        view: The batch with its rows in the asked-for order.
        query: What was asked for.
    """
    found = filtered(view.rows, query)
    shown, page, pages = page_of(found, query)
    return {
        "rows": rows_table(shown, query) if shown else nothing_found(),
        "where": _where(len(found), len(view.rows), (page - 1) * query.size, len(shown)),
        "page": page,
        "pages": pages,
        "groups": _group_choices(view.rows),
        "states": [(name, f"{STATES[name].capitalize()} ({count(view.counts[name])})") for name in view.counts],
    }


def rows_table(rows: Sequence[BatchRowView], query: BatchQuery) -> str:
    """A table of rows; the column that they are sorted by says so."""
    head = "".join(_head(*column, query) for column in COLUMNS)
    return (
        '<table class="batchrows"><caption class="vh">Rows of the batch</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(_row(row) for row in rows)}</tbody></table>"
    )


def nothing_found() -> str:
    """No row passes the filters."""
    return (
        '<div class="empty-list"><p class="sub">No row is like this.</p>'
        '<p><button type="button" class="btn" data-do="reset">Show all rows</button></p></div>'
    )


def columns_help() -> str:
    """What the columns mean."""
    items = "".join(f"<div><dt>{title}</dt><dd>{meaning}.</dd></div>" for title, _, _, meaning in COLUMNS)
    return f'<dl class="finger columnhelp">{items}</dl>'


def number(value: float | None, digits: int = 2) -> str:
    """A measure in a cell; a dash where there is none, and ∞ where nothing limits it."""
    if value is None:
        return NONE
    if math.isinf(value):
        return '<span title="The thresholds let every token pass">∞</span>'
    return signed(value, digits).removeprefix("+")


def percent(value: float | None) -> str:
    """A share in a cell; only a whole one reads 100 %."""
    if value is None:
        return NONE
    rounded = round(100 * value)
    if rounded == 100 and value < 1:
        return ">99 %"
    return "<1 %".replace("<", "&lt;") if rounded == 0 and value > 0 else f"{rounded} %"


def _head(title: str, order: str, classes: str, meaning: str, query: BatchQuery) -> str:
    state, arrow, turn = "", "", order in FIRST_DOWN
    if query.order == order:
        state = f' aria-sort="{"descending" if query.descending else "ascending"}"'
        arrow, turn = "↓" if query.descending else "↑", not query.descending
    return (
        f'<th scope="col" class="{classes}"{state}><button type="button" class="sort" data-do="sort" '
        f'data-order="{order}" data-down="{str(turn).lower()}" title="{escape(meaning)}">{title}'
        f'<span aria-hidden="true">{arrow}</span></button></th>'
    )


def _row(row: BatchRowView) -> str:
    prompt, text = escape(beginning(row.prompt)), escape(beginning(row.text))
    opened = prompt
    if row.session_id is not None:
        opened = f'<a href="./?session={row.session_id}" title="Open the session">{prompt}</a>'
    written = f'<span class="cut sub">{text}</span>' if text else ""
    wrong = f'<span class="caution why">{escape(row.error)}</span>' if row.error else ""
    return (
        f'<tr data-line="{row.line}"><td class="n line">{count(row.line)}</td>'
        f'<th scope="row" class="text"><span class="cut">{opened}</span>{written}{wrong}</th>'
        f'<td class="group"><span class="cut">{NONE if row.group is None else escape(row.group)}</span></td>'
        f'<td class="n">{count(row.steps)}</td><td class="n">{percent(row.certified_share)}</td>'
        f'<td class="n">{_whole(row.fallbacks)}</td><td class="n">{_whole(row.overruled)}</td>'
        f'<td class="n">{number(row.mean_log_ratio)}</td><td class="n">{number(row.max_log_ratio)}</td>'
        f'<td class="n">{number(row.min_margin)}</td><td class="judged">{_verdict(row)}</td>'
        f'<td class="state">{_state(row)}</td></tr>'
    )


def _whole(value: int | None) -> str:
    return NONE if value is None else count(value)


def _verdict(row: BatchRowView) -> str:
    if row.verdict:
        return escape(row.verdict)
    return f'<span class="hint">{count(row.verdicts)} on parts</span>' if row.verdicts else NONE


def _state(row: BatchRowView) -> str:
    mark = icon("tri") if row.state in ("failed", "deleted") else icon("tick") if row.state == "finished" else ""
    return f'<span class="rowstate {row.state}">{mark}{STATES[row.state]}</span>'


def _group_choices(rows: Sequence[BatchRowView]) -> list[tuple[str, str]]:
    sizes: dict[str | None, int] = {}
    for row in sorted(rows, key=lambda row: row.line):
        sizes[row.group] = sizes.get(row.group, 0) + 1
    return [
        (group_value(group), f"{'No group' if group is None else group} ({count(n)})") for group, n in sizes.items()
    ]


def _where(found: int, total: int, before: int, shown: int) -> str:
    of = plural(total, "row") if found == total else f"{plural(found, 'row')} of {count(total)}"
    return of if shown == found else f"{count(before + 1)}–{count(before + shown)} of {of}"
