"""What the compare page asks of the services."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr

from app.bootstrap import Services
from app.services.errors import ColumnMismatch
from app.services.views import AuditSettings, StartAudit
from app.services.views.comparisons import Comparison
from app.services.views.library import LibraryQuery
from app.ui.errors import shown, shown_stream
from app.ui.events import Reply, reply
from app.ui.figures_chains import changed_figure, divergence_figure, sensitivity_figure, vanilla_figure
from app.ui.live_chains import LiveChains
from app.ui.presenters_chains import comparison_message, found_message, menu_message, picked_message
from app.ui.presenters_chains_form import chains_from, columns_from
from app.ui.presenters_chains_words import chain_names
from app.ui.presenters_session import spans_from, spans_message

FOUND = 8
"""Sessions that a search shows."""

DRAWN = (vanilla_figure, sensitivity_figure, divergence_figure, changed_figure)
"""What draws each picture, in the order of :data:`app.ui.components.compared.FIGURES`."""


class CompareHandlers:
    """What the page asks of the services; every method builds one request and calls one service."""

    def __init__(self, services: Services) -> None:
        """Keep the services, and a folder for tables that lives as long as the page."""
        self._audits = services.audits
        self._library = services.library
        self._calibrations = services.calibrations
        self._comparisons = services.comparisons
        self._folder = tempfile.TemporaryDirectory(prefix="coft-comparisons-")

    @shown
    def detect(self, event: gr.EventData) -> Reply:
        """Find the sensitive spans of the prompt."""
        return reply(event, spans_message(self._audits.detect(event.prompt)))

    @shown
    def menu(self, event: gr.EventData) -> Reply:
        """What columns can be made of."""
        return reply(event, menu_message(self._comparisons.policies(), self._calibrations.list()))

    @shown
    def begin(self, event: gr.EventData) -> list[Any]:
        """Begin one session a column; a calibration of another policy is told apart, because one may proceed."""
        columns = columns_from(event.shared, event.columns)
        request = StartAudit(event.prompt, AuditSettings(model=columns[0].model), spans_from(event.spans))
        try:
            ids = self._comparisons.run_columns(request, columns)
        except ColumnMismatch as mismatch:
            return _alone(reply(event, {"kind": "mismatch", "column": mismatch.column, "text": str(mismatch)}))
        return _whole(event, self._comparisons.compare(ids))

    @shown_stream
    def run(self, event: gr.EventData) -> Iterator[list[Any]]:
        """Write all columns to their ends or to a pause, one token each in turn."""
        sessions, _ = chains_from(event.chains)
        live, steps = LiveChains(self._comparisons.compare(sessions)), self._comparisons.advance(sessions)
        yield _alone(reply(event, live.frame()))
        for session_id, step in steps:
            if live.add(session_id, step):
                yield _alone(reply(event, live.frame()))
        yield _whole(event, self._comparisons.compare(sessions))

    @shown
    def pause(self, event: gr.EventData) -> None:
        """End a run after the current tokens."""
        self._comparisons.pause(chains_from(event.chains)[0])

    @shown
    def open(self, event: gr.EventData) -> list[Any]:
        """Put stored chains beside each other."""
        return _whole(event, self._comparisons.compare(*chains_from(event.chains)))

    @shown
    def find(self, event: gr.EventData) -> Reply:
        """Sessions that can be compared."""
        page = self._library.search(LibraryQuery(text=str(event.text), page_size=FOUND))
        return reply(event, found_message(page.entries, page.total))

    @shown
    def pick(self, event: gr.EventData) -> Reply:
        """One session with its branches."""
        return reply(event, picked_message(self._audits.view(int(event.session))))

    @shown
    def csv(self, event: gr.EventData) -> str:
        """Write the comparison as a table for download."""
        return str(self._comparisons.write_csv(*chains_from(event.chains), Path(self._folder.name)))

    @shown
    def discard(self, event: gr.EventData) -> Reply:
        """Delete the sessions of a run that is not wanted."""
        self._library.delete(chains_from(event.chains)[0])
        return reply(event, {"kind": "discarded"})


def _whole(event: gr.EventData, comparison: Comparison) -> list[Any]:
    names = chain_names(comparison.chains)
    pictures = [draw(comparison, names) for draw in DRAWN]
    return [reply(event, comparison_message(comparison)), *pictures]


def _alone(message: Reply) -> list[Any]:
    """A message that leaves the pictures as they are."""
    return [message, *(gr.skip() for _ in DRAWN)]
