"""The part of the compare page that runs a prompt set: what it asks of the services, its controls and their wiring."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import gradio as gr

from app.bootstrap import Services
from app.services.errors import ColumnMismatch, ServiceError
from app.services.views import PROMPT_SET_FIELDS
from app.services.views.compared_sets import SetRequest
from app.ui.components.compared_sets import earlier_sets
from app.ui.errors import shown
from app.ui.events import LATEST, MULTIPLE, On, Reply, downloaded, reply, wire
from app.ui.pages.calibrate.common import NO_FILE
from app.ui.pages.calibrate.prompts import PromptHandlers, PromptPart, prompt_part
from app.ui.presenters_chains_form import columns_from as settings_of_columns
from app.ui.presenters_form import columns_from
from app.ui.presenters_sets import set_message, set_query, sets_message

READ = len(PROMPT_SET_FIELDS) + 4
"""Outputs of a prompt set that was read: summary, fold, columns, errors and the choice to go on."""

GOOD_ROWS = "Go on with the good rows where others cannot be used"


class SetHandlers:
    """Every method answers one event."""

    def __init__(self, services: Services) -> None:
        """Keep the services, and a folder for files that lives as long as the page."""
        self._sets = services.compared_sets
        self._batches = services.batches
        self._folder = tempfile.TemporaryDirectory(prefix="coft-compared-sets-")
        self.prompts = PromptHandlers(services)
        self.prompts.samples = services.batches.samples()

    @shown
    def parse(self, path: str | None) -> list[Any]:
        """Read an uploaded prompt set, each field from the column of its name."""
        return _offered(self.prompts.parse(path), path)

    @shown
    def remap(self, path: str | None, *columns: str) -> list[Any]:
        """Read it again with the chosen columns."""
        return _offered(self.prompts.remap(path, *columns), path)

    @shown
    def take(self, event: gr.EventData) -> str:
        """Take a stored prompt set as if it had been uploaded."""
        return str(self._sets.write_prompt_set(int(event.id), Path(self._folder.name)))

    @shown
    def listed(self, event: gr.EventData) -> Reply:
        """Comparisons of earlier, and stored prompt sets."""
        return reply(event, sets_message(self._sets.list(), self._sets.prompt_sets()))

    @shown
    def start(self, event: gr.EventData, path: str | None, accept: bool, *columns: str) -> Reply:
        """Begin a comparison; a calibration of another policy is told apart, because one may proceed."""
        if path is None:
            raise ServiceError(NO_FILE)
        prompts = self._batches.parse(Path(path), Path(path).name, columns_from(columns))
        asked = SetRequest(
            name=str(event.name or "").strip() or Path(path).stem,
            columns=settings_of_columns(event.shared, event.columns),
            accept_errors=bool(accept),
        )
        try:
            number = self._sets.submit(prompts, asked)
        except ColumnMismatch as mismatch:
            return reply(event, {"kind": "mismatch", "column": mismatch.column, "text": str(mismatch)})
        return reply(event, {"kind": "started", "set": number})

    @shown
    def view(self, event: gr.EventData) -> Reply:
        """An open comparison."""
        return self._shown(event)

    @shown
    def cancel(self, event: gr.EventData) -> Reply:
        """Stop all columns after their current tokens."""
        self._sets.cancel(set_query(event.query).comparison)
        return self._shown(event)

    @shown
    def resume(self, event: gr.EventData) -> Reply:
        """Go on with what is not finished."""
        self._sets.resume(set_query(event.query).comparison)
        return self._shown(event)

    @shown
    def remove(self, event: gr.EventData) -> Reply:
        """Delete a comparison; its sessions stay."""
        self._sets.delete(int(event.id))
        return reply(event, {"kind": "removed", "set": int(event.id)})

    @shown
    def table(self, event: gr.EventData) -> str:
        """Write rows or means for download."""
        rows, means = self._sets.write_csv(int(event.id), Path(self._folder.name))
        return str(means if event.which == "means" else rows)

    def _shown(self, event: gr.EventData) -> Reply:
        query = set_query(event.query)
        view = self._sets.view(query.comparison, query.order, query.column, query.descending)
        return reply(event, set_message(view, query))


def set_controls(services: Services) -> tuple[SetHandlers, PromptPart, gr.HTML]:
    """Place the upload with its columns and problems, and what was run earlier."""
    handlers = SetHandlers(services)
    with gr.Column(elem_classes=["cmp-set"]), gr.Row(elem_classes=["set-pair"]):
        with gr.Column(min_width=0):
            part, samples, _ = prompt_part(handlers.prompts)
        with gr.Column(min_width=0):
            earlier_sets()
    return handlers, part, samples


def wire_sets(controls: tuple[SetHandlers, PromptPart, gr.HTML], stage: gr.HTML, file: gr.DownloadButton) -> None:
    """Connect everything about prompt sets.

    Args:
        controls: What :func:`set_controls` gave.
        stage: The open comparison.
        file: Takes tables for download.
    """
    handlers, part, samples = controls
    read = [*part.outputs]
    samples.sample(handlers.prompts.sample, None, part.file, **MULTIPLE)  # type: ignore[attr-defined]
    part.file.change(handlers.parse, part.file, read, **LATEST)
    gr.on([column.select for column in part.columns], handlers.remap, [part.file, *part.columns], read, **LATEST)
    events = {
        "listed": On(handlers.listed, stage),
        "take": On(handlers.take, part.file),
        "start": On(handlers.start, stage, [part.file, part.accept, *part.columns]),
        "view": On(handlers.view, stage),
        "cancel": On(handlers.cancel, stage),
        "resume": On(handlers.resume, stage),
        "remove": On(handlers.remove, stage),
        "table": On(handlers.table, file),
    }
    downloaded(wire(stage, events, prefix="set-")["table"], "comparison-file")


def _offered(outputs: list[Any], path: str | None) -> list[Any]:
    """What a prompt set shows, with the choice to go on: only a run finds which rows a column's model cannot take."""
    return [*outputs[: READ - 1], gr.Checkbox(False, visible=path is not None, label=GOOD_ROWS)]
