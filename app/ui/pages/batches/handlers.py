"""What the batches page asks of the services about batches that exist."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import gradio as gr

from app.bootstrap import Services
from app.services.batch.impact import impact_csv, impact_table
from app.services.batch.rows import groups_csv
from app.services.errors import ServiceError
from app.services.reports import write_text
from app.services.views.batches import Outcomes
from app.ui.errors import or_refusal, shown
from app.ui.events import Reply, reply
from app.ui.figures_batches import figure_height, totals_figure
from app.ui.presenters_batch_query import batch_query, outcome_rule, whole_number
from app.ui.presenters_batches import batch_message, batches_list
from app.ui.presenters_impact import MEASURES, NO_TOTALS, impact_message, totals_table


class BatchHandlers:
    """Every method answers one event of the page."""

    def __init__(self, services: Services) -> None:
        """Keep the services, and a folder for files that lives as long as the page."""
        self._batches = services.batches
        self._folder = tempfile.TemporaryDirectory(prefix="coft-batches-")

    @shown
    def find(self, event: gr.EventData) -> Reply:
        """A page of a batch's rows, and how far the batch is."""
        return self._shown(event)

    @shown
    def listed(self, event: gr.EventData) -> Reply:
        """All batches."""
        return reply(event, {"kind": "list", "html": batches_list(self._batches.list())})

    @shown
    def cancel(self, event: gr.EventData) -> Reply:
        """Stop a batch after its current token."""
        self._batches.cancel(whole_number(event.query, "batch"))
        return self._shown(event, "Stopping after the current token …")

    @shown
    def resume(self, event: gr.EventData) -> Reply:
        """Go on with the rows that are not finished."""
        self._batches.resume(whole_number(event.query, "batch"))
        return self._shown(event, "Resumed.")

    @shown
    def delete(self, event: gr.EventData) -> Reply:
        """Delete a batch; its sessions stay."""
        self._batches.delete(int(event.id))
        html = batches_list(self._batches.list())
        return reply(event, {"kind": "list", "html": html, "gone": int(event.id), "said": "The batch is deleted."})

    @shown
    def totals(self, event: gr.EventData) -> list[Any]:
        """Means by group as a chart and as numbers."""
        measure = str(event.measure)
        if measure not in MEASURES:
            raise ServiceError(f"There is no measure {measure!r}; choose one of {', '.join(MEASURES)}.")
        groups = self._batches.view(int(event.batch)).groups
        message = {
            "kind": "totals", "html": totals_table(groups) or NO_TOTALS, "height": figure_height(len(groups)),
            "empty": not groups,
        }  # fmt: skip
        return [reply(event, message), totals_figure(groups, measure)]

    @shown
    def outcome(self, event: gr.EventData) -> Reply:
        """How a rule reads the rows, and the table that comes of it."""
        view, rule = self._batches.view(int(event.batch)), outcome_rule(event.rule)
        found: Outcomes | str | None = None
        if rule.selected.strip():
            found = or_refusal(lambda: self._batches.outcomes(view.id, rule))
        made = None
        if isinstance(found, Outcomes) and found.rows:
            pairs = found.pairs
            made = or_refusal(lambda: impact_table(pairs, bool(event.rule.get("small"))))
        return reply(event, impact_message(view, rule, found, made))

    @shown
    def export(self, event: gr.EventData) -> str:
        """Write the rows, the totals or the impact ratios for download."""
        number, kind = int(event.batch), str(event.kind)
        path = Path(self._folder.name) / f"coft-audit-batch-{number}-{kind}.csv"
        return str(write_text(path, self._csv(number, kind, event)))

    def _csv(self, number: int, kind: str, event: gr.EventData) -> str:
        if kind == "rows":
            return self._batches.csv(number)
        if kind == "groups":
            return groups_csv(self._batches.view(number).groups)
        if kind == "impact":
            rule, small = outcome_rule(event.rule), bool(event.rule.get("small"))
            return impact_csv(self._batches.impact(number, rule, small)[0])
        raise ServiceError(f"There is no file {kind!r}; choose rows, groups or impact.")

    def _shown(self, event: gr.EventData, said: str = "") -> Reply:
        query = batch_query(event.query)
        view = self._batches.view(query.batch, query.order, query.descending)
        return reply(event, batch_message(view, query, said))
