"""Past audits: listed, searched and deleted."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from annotated_types import Ge

from app.shared.needs import LEAD, READ
from app.shared.operations import Json, command, operation
from app.shared.wiring import Services
from db.audits import SessionSummary
from db.sessions import SessionsRepository

LISTED = 200
"""Sessions that programs are given at most."""


def _json(sessions: tuple[SessionSummary, ...]) -> list[Json]:
    return [
        {name: value for name, value in asdict(item).items() if name != "id"}
        | {
            "session_id": item.id,
            "created_at": item.created_at.isoformat(),
            "updated_at": item.updated_at.isoformat(),
        }
        for item in sessions
    ]


def _print(sessions: tuple[SessionSummary, ...]) -> None:
    """One line a session."""
    if not sessions:
        print('No sessions yet. Start one with: python -m app audit --prompt "..."')
    for item in sessions:
        print(f"{item.id:>5}  {item.updated_at:%Y-%m-%d %H:%M}  {item.steps:>4} steps  {item.model:<12} {item.name}")


@operation(need=READ, json=_json)
def list_sessions(wired: Services, search: str = "") -> tuple[SessionSummary, ...]:
    """List past audit sessions.

    Args:
        search: Only sessions whose name or prompt contains this text.

    Returns:
        A list of sessions without their steps, newest first.
    """
    return tuple(wired[SessionsRepository].list(search or None, LISTED))


@operation(need=LEAD, command="move", json=dict, text=lambda told: print(told["said"]))
def move_sessions(wired: Services, session_ids: list[int], project: str) -> Json:
    """Move sessions to another project, all of them or none; their calibration and word list are copied along.

    Args:
        session_ids: The sessions; one that belongs to a batch stays with it.
        project: Name of the project, which you must see, too.

    Returns:
        asked, changed (how many were moved), missing, and a sentence
    """
    # Listing alone waits for none of the libraries that run models.
    from app.sessions.moving import SessionMoves

    result = wired[SessionMoves].move(session_ids, project)
    return {"asked": result.asked, "changed": result.changed, "missing": result.missing, "said": result.sentence}


@command("sessions", json=_json, text=_print)
def sessions(
    wired: Services,
    *,
    search: str = "",
    limit: Annotated[int, Ge(1)] = 50,
    delete: Annotated[int | None, typer.Option("--delete", metavar="ID")] = None,
) -> tuple[SessionSummary, ...] | str:
    """List or delete past audits.

    Args:
        search: only sessions that mention this text
        limit: sessions at most
        delete: delete this session
    """
    if delete is None:
        return tuple(wired[SessionsRepository].list(search or None, limit))
    # Listing alone waits for none of the libraries that run models.
    from app.audit.service import AuditService

    wired[AuditService].delete(delete)
    return f"Session {delete} deleted."
