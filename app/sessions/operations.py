"""Past audits: listed, searched and deleted."""

from __future__ import annotations

from typing import Annotated

import typer

from app.bootstrap import Services
from app.shared.json import summary_json
from app.shared.operations import Json, command, operation
from db.audits import SessionSummary


def _json(found: tuple[SessionSummary, ...]) -> list[Json]:
    return [summary_json(item) for item in found]


def _print(found: tuple[SessionSummary, ...]) -> None:
    """One line a session."""
    if not found:
        print('No sessions yet. Start one with: python -m app audit --prompt "..."')
    for item in found:
        print(f"{item.id:>5}  {item.updated_at:%Y-%m-%d %H:%M}  {item.steps:>4} steps  {item.model:<12} {item.name}")


@operation(json=_json)
def list_sessions(wired: Services, search: str = "") -> tuple[SessionSummary, ...]:
    """List past audit sessions.

    Args:
        search: Only sessions whose name or prompt contains this text.

    Returns:
        A list of sessions without their steps, newest first.
    """
    return wired.audits.sessions(search)


@command("sessions", json=_json, text=_print)
def sessions(
    wired: Services,
    *,
    search: str = "",
    limit: int = 50,
    delete: Annotated[int | None, typer.Option("--delete", metavar="ID")] = None,
) -> tuple[SessionSummary, ...] | str:
    """List or delete past audits.

    Args:
        search: only sessions that mention this text
        limit: sessions at most
        delete: delete this session
    """
    if delete is None:
        return wired.audits.sessions(search, limit)
    wired.audits.delete(delete)
    return f"Session {delete} deleted."
