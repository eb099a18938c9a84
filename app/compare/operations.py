"""The endpoints for comparisons that other programs call; their names and arguments stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component

from app.bootstrap import Services
from app.compare.json import comparison_json, set_json
from app.shared.events import offer, offer_with_files, shown
from app.shared.settings_json import columns_of, set_request


class CompareEndpoints:
    """One method per endpoint; docstrings are the interface's documentation."""

    def __init__(self, services: Services) -> None:
        """Keep the services."""
        self._comparisons = services.comparisons
        self._batches = services.batches
        self._sets = services.compared_sets

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

    @shown
    def run_comparison(self, file: str, settings: dict[str, Any] | None = None) -> dict[str, Any]:
        """Start every prompt of a file under several policies or settings, without waiting for it.

        Args:
            file: CSV or JSONL with a prompt in each row, and optionally group and context.
            settings: compare is required: a list with the settings of each column, of which only policy is needed, such
                as [{"policy": "vanilla"}, {"policy": "coft", "lam": 0.8}]. All else is optional and holds for every
                column: the settings of start_audit. Besides there are name, accept_errors (go on with the good rows),
                and columns, which says for a field of a prompt set what column of the file to read it from.

        Returns:
            The comparison: comparison_id, its columns and rows; ask comparison_summary how far it is.
        """
        request = set_request(Path(file).stem, settings)
        prompts = self._batches.parse(Path(file), Path(file).name, columns_of(settings))
        return set_json(self._sets.view(self._sets.submit(prompts, request)))

    @shown
    def comparison_summary(self, comparison_id: int) -> dict[str, Any]:
        """Say how far a comparison over a prompt set is, with its means and rows.

        Args:
            comparison_id: The comparison.

        Returns:
            columns (means with 95 % intervals, and memory) and rows, whose cells say where each column parts from the
            first one (steps count from 1), its divergence from vanilla, sensitivity, fallbacks, time and memory.
        """
        return set_json(self._sets.view(int(comparison_id)))


def compare_endpoints(services: Services, file: gr.File, settings: Component) -> None:
    """Register the endpoints; ``file`` and ``settings`` are hidden components for what is uploaded."""
    calls = CompareEndpoints(services)
    offer(calls.compare_sessions)
    offer(calls.comparison_summary)
    offer_with_files(calls.run_comparison, [file, settings], gr.JSON(label="comparison"))
