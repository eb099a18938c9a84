"""Whether a verdict log holds together."""

from __future__ import annotations

from collections.abc import Sequence

from app.services.views.verdicts import LogCheck
from db.log_chain import first_break
from db.records import AnnotationRecord


def check_log(records: Sequence[AnnotationRecord]) -> LogCheck:
    """Whether a log, oldest entry first, holds together."""
    broken = first_break([(record.content, record.previous, record.digest) for record in records])
    head = records[-1].digest if records else ""
    if broken is not None:
        return LogCheck(len(records), head, broken.entry, broken.reason)
    if not records:
        return LogCheck(0, "", None, "The verdict log is empty.")
    entries = "its entry is" if len(records) == 1 else f"all {len(records)} entries are"
    return LogCheck(len(records), head, None, f"The verdict log is whole: {entries} as written.")
