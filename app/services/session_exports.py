"""Reports of many sessions in one ZIP file, with an index of them."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from app.services.reports import ReportService, to_csv
from app.services.views.library import BulkExport
from db.errors import NotFoundError
from db.records import SessionEntryRecord

INDEX = "sessions.csv"
COLUMNS = (
    "session_id", "file", "name", "prompt", "model", "policy", "certificate", "steps", "branches", "verdicts", "tags",
    "archived", "batch_id", "created_at", "updated_at",
)  # fmt: skip


def write_reports(
    entries: Sequence[SessionEntryRecord], reports: ReportService, folder: Path, asked: int
) -> BulkExport:
    """Write the CSV report of each session and an index of all, so that the file is either whole or not there.

    Args:
        entries: The sessions, at least one.
        reports: Writes the reports.
        folder: Where the file goes.
        asked: How many sessions were asked for; those that are gone are counted as missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"coft-audit-{len(entries)}-sessions.zip"
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w") as archive:
            written = _write(archive, entries, reports)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return BulkExport(path, written, asked - written)


def _write(archive: zipfile.ZipFile, entries: Sequence[SessionEntryRecord], reports: ReportService) -> int:
    rows = []
    for entry in entries:
        name = f"coft-audit-session-{entry.id}.csv"
        try:
            report = reports.csv(entry.id)
        except NotFoundError:
            # deleted since it was listed; counted as missing
            continue
        _add(archive, name, report, entry.updated_at)
        rows.append(_index_row(entry, name))
    _add(archive, INDEX, to_csv(COLUMNS, rows), max(entry.updated_at for entry in entries))
    return len(rows)


def _add(archive: zipfile.ZipFile, name: str, text: str, changed: datetime) -> None:
    # The time is the session's own, so that the same sessions give the same file.
    member = zipfile.ZipInfo(name, changed.timetuple()[:6])
    member.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(member, text.encode("utf-8", errors="replace"))


def _index_row(entry: SessionEntryRecord, file: str) -> dict[str, object]:
    return {
        "session_id": entry.id,
        "file": file,
        "name": entry.name,
        "prompt": entry.prompt,
        "model": entry.model,
        "policy": entry.policy,
        "certificate": entry.certificate,
        "steps": entry.step_count,
        "branches": entry.branch_count,
        "verdicts": entry.verdict_count,
        "tags": "; ".join(entry.tags),
        "archived": entry.archived_at is not None,
        "batch_id": entry.batch_id,
        "created_at": entry.created_at.isoformat(),
        "updated_at": entry.updated_at.isoformat(),
    }
