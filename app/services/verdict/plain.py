"""Plain JSON forms of verdicts, under the names of the log's table; steps count from 1."""

from __future__ import annotations

from typing import Any

from app.services.views.verdicts import CurrentVerdicts, LogEntry, StandingVerdict, Target


def verdicts_json(current: CurrentVerdicts, log: tuple[LogEntry, ...]) -> dict[str, Any]:
    """How the targets of a session stand, and the log, as far as the reader may see both."""
    return {
        "session_id": current.session_id,
        "targets": [standing_json(item) for item in current.targets],
        "log": [entry_json(entry) for entry in log],
        "hidden": current.hidden,
        "reviews": [
            {
                "reviewer": item.reviewer,
                "blind": item.blind,
                "started_at": item.started_at.isoformat(),
                "finished_at": None if item.finished_at is None else item.finished_at.isoformat(),
            }
            for item in current.reviews
        ],
    }


def standing_json(item: StandingVerdict) -> dict[str, Any]:
    """How one target stands."""
    return {
        **target_json(item.target),
        "status": item.status,
        "verdict": item.verdict,
        "opinions": [entry_json(entry) for entry in item.opinions],
        "adjudication": None if item.adjudication is None else entry_json(item.adjudication),
    }


def entry_json(entry: LogEntry) -> dict[str, Any]:
    """One entry of the log."""
    return {
        "entry": entry.entry,
        "at": entry.at.isoformat(),
        "kind": entry.kind,
        "reviewer": entry.reviewer,
        "blind": entry.blind,
        **target_json(entry.target),
        "verdict": entry.verdict,
        "tag": entry.tag,
        "note": entry.note,
        "previous": entry.previous,
        "digest": entry.digest,
    }


def target_json(target: Target) -> dict[str, Any]:
    """What a verdict is about."""
    return {
        "target": target.kind,
        "branch": target.branch,
        "branch_id": target.branch_id,
        "first_step": None if target.first_step is None else target.first_step + 1,
        "last_step": None if target.last_step is None else target.last_step + 1,
    }
