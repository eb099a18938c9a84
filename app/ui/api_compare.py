"""The endpoint for comparisons that other programs call; its name and arguments stay."""

from __future__ import annotations

from typing import Any

from app.services.comparing.plain import comparison_json
from app.services.ports import Services
from app.ui.errors import shown
from app.ui.offering import offer


class CompareEndpoints:
    """One method per endpoint; docstrings are the interface's documentation."""

    def __init__(self, services: Services) -> None:
        """Keep the services."""
        self._comparisons = services.comparisons

    @shown
    def compare_sessions(self, session_ids: list[int], branch_ids: list[int | None] | None = None) -> dict[str, Any]:
        """Compare the chains of two to eight sessions with the first of them; needs no model.

        Args:
            session_ids: The sessions; one can be named several times for several of its branches.
            branch_ids: A branch for each session, or null for its active one; without any, the active ones.

        Returns:
            chains, pairs (where each parts from the first, and the settings that differ), and the aligned rows; steps
            count from 1 and are null where a chain has no token.
        """
        branches = [None if branch is None else int(branch) for branch in branch_ids or ()]
        return comparison_json(self._comparisons.compare([int(number) for number in session_ids], branches))


def compare_endpoints(services: Services) -> None:
    """Register the endpoint."""
    offer(CompareEndpoints(services).compare_sessions)
