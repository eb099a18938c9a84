"""The endpoints for verdicts that other programs call; their names and arguments stay."""

from __future__ import annotations

from typing import Any

from app.bootstrap import Services
from app.services.verdict.plain import entry_json, verdicts_json
from app.services.views.verdicts import VerdictRequest
from app.ui.errors import shown
from app.ui.offering import offer


class VerdictEndpoints:
    """One method per endpoint; docstrings are the interface's documentation."""

    def __init__(self, services: Services) -> None:
        """Keep the service."""
        self._verdicts = services.verdicts

    @shown
    def add_verdict(
        self,
        session_id: int,
        reviewer: str,
        verdict: str | None,
        branch_id: int | None = None,
        first_step: int | None = None,
        last_step: int | None = None,
        note: str = "",
        tag: str = "",
    ) -> dict[str, Any]:
        """Write a verdict into a session's log, from which nothing can be taken out.

        Args:
            session_id: The session.
            reviewer: The reviewer's name.
            verdict: fair, unfair or unclear; null withdraws the reviewer's own.
            branch_id: The branch; without one it is about the session.
            first_step: The step, counted from 1; without one it is about the branch or the session.
            last_step: The last step of a span; without one it is about one token.
            note: A note.
            tag: A word that such notes share.

        Returns:
            The entry as the log has it: entry, reviewer, verdict, first_step, last_step, digest, previous and others.
        """
        first, last = (None if step is None else int(step) - 1 for step in (first_step, last_step))
        branch = None if branch_id is None else int(branch_id)
        request = VerdictRequest(int(session_id), reviewer, verdict or None, branch, first, last, note, tag)
        return entry_json(self._verdicts.add(request))

    @shown
    def list_verdicts(self, session_id: int, reviewer: str = "") -> dict[str, Any]:
        """List the verdicts of a session.

        Args:
            session_id: The session.
            reviewer: Who asks; a reviewer in her blind review gets only what is hers.

        Returns:
            targets with how they stand, and the log.
        """
        name, number = reviewer.strip() or None, int(session_id)
        return verdicts_json(self._verdicts.current(number, name), self._verdicts.history(number, name))


def verdict_endpoints(services: Services) -> None:
    """Register the endpoints."""
    calls = VerdictEndpoints(services)
    for method in (calls.add_verdict, calls.list_verdicts):
        offer(method)
