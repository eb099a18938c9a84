"""A session's verdict log as the review page shows it."""

from __future__ import annotations

from html import escape

from app.services.views.verdicts import LogEntry, ReviewSheet
from app.ui.components.markup import table
from app.ui.presenters_format import count, day, plural
from app.ui.presenters_review_targets import place_name

SHOWN_ENTRIES = 25
"""Entries of the log that are shown before the rest is asked for."""


def log_table(sheet: ReviewSheet) -> str:
    """The log, newest entry first."""
    if not sheet.log:
        return '<p class="sub">The log is empty. Every verdict and every review is written down here, in order.</p>'
    rows = [_log_row(entry) for entry in reversed(sheet.log)]
    heads = [("Entry", "n"), ("When", ""), ("Who", ""), ("What", ""), ("On", ""), ("Note", ""), ("Digest", "")]
    made = table(heads, rows, "log", "Verdict log, newest entry first")
    hidden = len(rows) - SHOWN_ENTRIES
    if hidden <= 0:
        return made
    more = (
        f'<button type="button" class="btn small quiet" data-do="whole">Show {plural(hidden, "older entry")}</button>'
    )
    return made + more.replace("older entrys", "older entries")


def _log_row(entry: LogEntry) -> list[str]:
    what = {
        "verdict": entry.verdict or "withdraws",
        "adjudication": f"decides {entry.verdict}",
        "review_started": f"begins {'a blind' if entry.blind else 'an open'} review",
        "review_finished": "finishes the review",
    }[entry.kind]
    about = place_name(entry.target) if entry.kind in ("verdict", "adjudication") else ""
    tag = f'<span class="judge-tag">{escape(entry.tag)}</span>' if entry.tag else ""
    blind = ", blind" if entry.blind and entry.kind == "verdict" else ""
    note = f'<span class="judge-note">{escape(entry.note)}</span>' if entry.note else ""
    return [
        count(entry.entry), f'<span class="nowrap tnum">{day(entry.at)}</span>', escape(entry.reviewer),
        f"{what}{blind}{tag}", escape(about), note, f'<span class="mono">{entry.digest[:12]}</span>',
    ]  # fmt: skip


def check(sheet: ReviewSheet) -> str:
    """Whether the log holds together, with its newest digest."""
    found = sheet.check
    if not found.entries:
        return ""
    state = "calibrated" if found.whole else "uninformative"
    entries = "1 entry" if found.entries == 1 else f"{count(found.entries)} entries"
    says = f"The chain of {entries} holds." if found.whole else f"The chain breaks. {escape(found.sentence)}"
    return f'<span class="badge {state}">{says}</span>'
