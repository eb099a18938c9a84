"""The endpoints for batches that other programs call; their names and arguments stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component

from app.bootstrap import Services
from app.services.batch.plain import batch_json, impact_json
from app.services.errors import ServiceError
from app.services.views.batches import OutcomeRule
from app.ui.errors import shown
from app.ui.offering import offer, offer_with_files
from app.ui.presenters_api import batch_request, columns_of

RULE = ("selected", "other", "regex", "match_case")


class BatchEndpoints:
    """One method per endpoint; docstrings are the interface's documentation."""

    def __init__(self, services: Services) -> None:
        """Keep the services."""
        self._batches = services.batches

    @shown
    def run_batch(self, file: str, settings: dict[str, Any] | None = None) -> dict[str, Any]:
        """Start a batch, which is an audit session for each prompt of a file, without waiting for it.

        Args:
            file: CSV or JSONL with a prompt in each row, and optionally group and context.
            settings: All optional: those of start_audit, and name, accept_errors (go on with the good rows), same_seed,
                group_thresholds, and columns, which says for a field of a prompt set what column of the file to read
                it from ({"prompt": "question"}).

        Returns:
            The batch: batch_id, name, settings, its state and rows; ask batch_summary how far it is.
        """
        request = batch_request(Path(file).stem, settings)
        prompts = self._batches.parse(Path(file), Path(file).name, columns_of(settings))
        return batch_json(self._batches.view(self._batches.submit(prompts, request)))

    @shown
    def batch_summary(
        self, batch_id: int, rule: dict[str, Any] | None = None, exclude_small: bool = False
    ) -> dict[str, Any]:
        """Say how far a batch is, with its rows and totals by group.

        Args:
            batch_id: The batch.
            rule: Who counts as selected, for impact ratios: {"selected": "hired", "other": "rejected", "regex": false,
                "match_case": false}; only selected is required.
            exclude_small: Leave groups below 2 % of the rows out of the ratios.

        Returns:
            The batch with rows and groups (95 % intervals); with a rule also impact, which has selection rates and
            impact ratios by group.
        """
        found = batch_json(self._batches.view(int(batch_id)))
        if rule is None:
            return found
        unknown = sorted(set(rule) - set(RULE))
        if unknown or not rule.get("selected"):
            wrong = f"There is no {unknown[0]!r} in a rule" if unknown else "The rule does not say who is selected"
            raise ServiceError(f"{wrong}; a rule has {', '.join(RULE)}, and selected is required.")
        read = OutcomeRule(**rule)
        table, outcomes = self._batches.impact(int(batch_id), read, bool(exclude_small))
        return {**found, "impact": impact_json(table, outcomes, read)}


def batch_endpoints(services: Services, file: gr.File, settings: Component) -> None:
    """Register the endpoints; ``file`` and ``settings`` are hidden components for what is uploaded."""
    calls = BatchEndpoints(services)
    offer(calls.batch_summary)
    offer_with_files(calls.run_batch, [file, settings], gr.JSON(label="batch"))
