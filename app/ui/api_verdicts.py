"""The endpoints for verdicts that other programs call; their names and arguments stay."""

from __future__ import annotations

from typing import Any

from gradio.events import api

from app.services.plain_verdicts import entry_json, verdicts_json
from app.services.ports import Services
from app.services.views.verdicts import VerdictRequest
from app.ui.errors import shown

AT_ONCE = 4


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
        """Write a verdict (fair, unfair, unclear; null withdraws the reviewer's own) into a session's log.

        Without a branch it is about the session, without steps about the branch. Steps count from 1; without a last
        step it is about one token.
        """
        first, last = (None if step is None else int(step) - 1 for step in (first_step, last_step))
        branch = None if branch_id is None else int(branch_id)
        request = VerdictRequest(int(session_id), reviewer, verdict or None, branch, first, last, note, tag)
        return entry_json(self._verdicts.add(request))

    @shown
    def list_verdicts(self, session_id: int, reviewer: str = "") -> dict[str, Any]:
        """How the targets of a session stand, and its log; to a reviewer in her blind review only what is hers."""
        name, number = reviewer.strip() or None, int(session_id)
        return verdicts_json(self._verdicts.current(number, name), self._verdicts.history(number, name))


def verdict_endpoints(services: Services) -> None:
    """Register the endpoints."""
    calls = VerdictEndpoints(services)
    for method in (calls.add_verdict, calls.list_verdicts):
        api(method, api_name=method.__name__, api_description=method.__doc__, concurrency_limit=AT_ONCE)
