"""One archive of many sessions: the CSV report of each, and an index of all."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from app.report.service import ReportService
from app.shared.files import to_csv, write_bytes
from db.library import SessionEntryRecord
from db.types import NotFoundError

INDEX = "sessions.csv"
COLUMNS = (
    "session_id", "file", "name", "prompt", "model", "policy", "certificate", "steps", "branches", "verdicts", "tags",
    "archived", "batch_id", "created_at", "updated_at",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BulkExport:
    """Reports of many sessions in one archive."""

    path: Path
    sessions: int
    missing: int


def write_reports(
    entries: Sequence[SessionEntryRecord], reports: ReportService, folder: Path, named: int
) -> BulkExport:
    """Write the archive, so that the file is either whole or not there."""
    rows = []
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for entry in entries:
            file = f"coft-audit-session-{entry.id}.csv"
            try:
                report = reports.csv(entry.id)
            except NotFoundError:  # deleted since it was listed
                continue
            _add(archive, file, report, entry.updated_at)
            rows.append(_index_row(entry, file))
        _add(archive, INDEX, to_csv(COLUMNS, rows), max(entry.updated_at for entry in entries))
    path = write_bytes(folder / f"coft-audit-{len(entries)}-sessions.zip", buffer.getvalue())
    return BulkExport(path, len(rows), named - len(rows))


def _add(archive: zipfile.ZipFile, name: str, text: str, changed: datetime) -> None:
    # The time is the session's own, so that the same sessions give the same file.
    member = zipfile.ZipInfo(name, changed.timetuple()[:6])
    member.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(member, text.encode("utf-8", errors="replace"))


def _index_row(entry: SessionEntryRecord, file: str) -> dict[str, object]:
    return {
        **asdict(entry),
        "session_id": entry.id,
        "file": file,
        "steps": entry.step_count,
        "branches": entry.branch_count,
        "verdicts": entry.verdict_count,
        "tags": "; ".join(entry.tags),
        "archived": entry.archived_at is not None,
        "created_at": entry.created_at.isoformat(),
        "updated_at": entry.updated_at.isoformat(),
    }
