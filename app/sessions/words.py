"""What the sessions page says, as markup and messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from app.prompts.words import beginning
from app.sessions.service import BatchFold, BulkExport, FoldedPage, LibraryQuery, Run
from app.shared.audits import SENSITIVE
from app.shared.events import Reply
from app.shared.format import count, plural
from app.shared.glossary import explained_titles
from app.shared.markup import laid_out, scrolled
from app.shared.policies import policy_about, policy_name
from coft_core.types import Certificate
from db.library import BatchFoldRecord, LibraryChoicesRecord, SessionEntryRecord
from db.projects import ProjectRecord

SIZES = (25, 50, 100)
COLUMNS = (
    ("Kind", "", "kind"),
    ("Finding, name", "name", "session"),
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


def page_message(
    page: FoldedPage,
    findings: Mapping[int, str],
    choices: LibraryChoicesRecord,
    query: LibraryQuery,
    said: str = "",
    projects: Sequence[ProjectRecord] = (),
) -> Reply:
    """A page of the library."""
    nothing = _nothing_found(query) if choices.models else laid_out("sessions/no_session.html")
    folds = [row for row in page.rows if isinstance(row, BatchFold)]
    alone = [row for row in page.rows if isinstance(row, SessionEntryRecord)]
    return {
        "kind": "page",
        "html": _table(page, findings, query) + EXPLAINED if page.rows else nothing,
        "where": _where(page, query.page_size),
        "page": page.page,
        "pages": page.pages,
        "total": page.total,
        "ids": [entry.id for entry in (*alone, *(entry for fold in folds for entry in fold.entries))],
        "batches": [fold.counted.id for fold in folds],
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
        return plural(page.total, "audit")
    first = (page.page - 1) * size + 1
    shown = f"{count(first)}–{count(first + len(page.rows) - 1)}"
    if page.row_total == page.total:
        return f"{shown} of {plural(page.total, 'audit')}"
    return f"{shown} of {plural(page.row_total, 'row')}, {plural(page.total, 'audit')}"


def _nothing_found(query: LibraryQuery) -> Markup:
    others = (query.policy, query.model, query.certificate, query.tag, query.judged, query.since, query.before)
    return laid_out(
        "sessions/nothing_found.html",
        text=query.text.strip(),
        filtered=any(item is not None for item in others),
        archived=query.archived,
    )


def _table(page: FoldedPage, findings: Mapping[int, str], query: LibraryQuery) -> Markup:
    def row_of(row: SessionEntryRecord | BatchFold | Run) -> Markup:
        if isinstance(row, Run):
            return laid_out("sessions/run.html", run=row)
        return _fold(row, findings) if isinstance(row, BatchFold) else _session(row, findings)

    return scrolled(
        "Audits and runs",
        laid_out(
            "sessions/table.html",
            columns=COLUMNS,
            first_down=FIRST_DOWN,
            query=query,
            rows=[row_of(row) for row in page.rows],
        ),
    )


def _fold(fold: BatchFold, findings: Mapping[int, str]) -> Markup:
    """A batch as one row, and under it its sessions where it is opened."""
    counted = fold.counted
    return laid_out(
        "sessions/fold.html",
        batch=counted,
        inside=[_session(entry, findings, within=True) for entry in fold.entries],
        rest=counted.session_count - len(fold.entries) if fold.entries else 0,
        finding=_finding,
        sensitive=SENSITIVE,
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


def _session(item: SessionEntryRecord, findings: Mapping[int, str], within: bool = False) -> Markup:
    """A session's row: its finding, its name if someone gave it one, and its prompt."""
    begins = item.prompt.startswith(item.name.removesuffix("\N{HORIZONTAL ELLIPSIS}"))
    lines = [findings.get(item.id), "" if begins else item.name, beginning(item.prompt)]
    return laid_out(
        "sessions/session.html",
        item=item,
        within=within,
        lines=[line for line in lines if line],
        menus=(("download", "Download", "Download"), ("more", "More", "More actions for")),
        policy_about=policy_about,
        policy_name=policy_name,
        sensitive=SENSITIVE,
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
