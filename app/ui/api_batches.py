"""The endpoints for batches that other programs call; their names and arguments stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr
from gradio.events import api

from app.services.errors import ServiceError
from app.services.plain_batches import batch_json, impact_json
from app.services.ports import Services
from app.services.views.batches import OutcomeRule
from app.ui.errors import shown
from app.ui.presenters_api import batch_request, columns_of

AT_ONCE = 4
RULE = ("selected", "other", "regex", "match_case")


class BatchEndpoints:
    """One method per endpoint; docstrings are the interface's documentation."""

    def __init__(self, services: Services) -> None:
        """Keep the services."""
        self._batches = services.batches

    @shown
    def run_batch(self, file: str, settings: dict[str, Any] | None) -> dict[str, Any]:
        """Start a batch: a session for each prompt of a CSV or JSONL file; returns the batch, without waiting for it.

        Settings are those of an audit (see start_audit), all optional, and besides: name, accept_errors (go on with
        the good rows), same_seed, group_thresholds, and columns, which says for a field of a prompt set what column of
        the file to read it from ({"prompt": "question"}).
        """
        request = batch_request(Path(file).stem, settings)
        prompts = self._batches.parse(Path(file), Path(file).name, columns_of(settings))
        return batch_json(self._batches.view(self._batches.submit(prompts, request)))

    @shown
    def batch_summary(
        self, batch_id: int, rule: dict[str, Any] | None = None, exclude_small: bool = False
    ) -> dict[str, Any]:
        """How far a batch is, its rows, and totals by group with 95 % intervals.

        With a rule ({"selected": "hired", "other": "rejected", "regex": false, "match_case": false}; only selected is
        required), also selection rates and impact ratios by group; exclude_small leaves groups below 2 % of the rows
        out of the ratios.
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


def batch_endpoints(services: Services, file: gr.File, settings: gr.JSON) -> None:
    """Register the endpoints; ``file`` and ``settings`` are hidden components for what is uploaded."""
    calls = BatchEndpoints(services)
    api(
        calls.batch_summary, api_name="batch_summary", api_description=calls.batch_summary.__doc__,
        concurrency_limit=AT_ONCE,
    )  # fmt: skip
    batch, start = gr.JSON(label="batch"), gr.Button()
    start.click(
        calls.run_batch, [file, settings], batch, api_name="run_batch", api_description=calls.run_batch.__doc__,
        concurrency_limit=AT_ONCE,
    )  # fmt: skip
