"""The result: read at any level from stored values, without the model."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from app.bootstrap import Services
from app.services.views import CalibrationView, ReadingRequest, replace
from app.ui.components.pieces import chart, listing, markup
from app.ui.components.reading_controls import (
    AS_CALIBRATED,
    READING_FIELDS,
    REFUSED,
    ReadingControls,
    draws_update,
    reading_controls,
    reading_from,
    reading_note,
    reading_updates,
)
from app.ui.errors import or_refusal, or_told, shown
from app.ui.events import EVENT, LATEST, MULTIPLE, downloaded
from app.ui.figures import support_histogram
from app.ui.figures_calibration import thresholds_figure
from app.ui.presenters_calibrate import runs_list
from app.ui.presenters_checks import fingerprint, result_checks
from app.ui.presenters_format import threshold
from app.ui.presenters_result import promises, result_head, risk
from app.ui.presenters_thresholds import OTHER_ALPHAS, alphas, bin_choices, support_name, thresholds, thresholds_head

EMPTY = (
    '<section><div class="bar"><h2>Result</h2></div><p class="sub">Choose a run, or upload a prompt set and run one. '
    "What it can certify then stands here.</p></section>"
)


@dataclass(frozen=True, slots=True)
class ResultPart:
    """What shows a run."""

    head: gr.HTML
    body: gr.Column
    reading: ReadingControls
    panels: tuple[Any, ...]
    bins: gr.Dropdown
    histogram: gr.Plot
    others: gr.HTML
    download: gr.DownloadButton


class ResultHandlers:
    """What the page asks of the services about finished runs."""

    def __init__(self, services: Services) -> None:
        """Keep the services, and a folder for downloads that lives as long as the page."""
        self._calibrations = services.calibrations
        self._folder = tempfile.TemporaryDirectory(prefix="coft-calibrations-")

    @shown
    def show(self, shown_id: int | None) -> list[Any]:
        """A run as it was calibrated."""
        listed = runs_list(self._calibrations.list(), shown_id)
        if shown_id is None:
            blank = [gr.skip()] * (len(READING_FIELDS) + len(PANELS))
            return [listed, EMPTY, gr.Column(visible=False), gr.skip(), *blank]
        view = self._calibrations.view(shown_id)
        head = [listed, result_head(view), gr.Column(visible=True), AS_CALIBRATED]
        return [*head, *reading_updates(view), *panels(view)]

    @shown
    def read(self, shown_id: int | None, label: str | None, *values: Any) -> list[Any]:
        """The run read otherwise."""
        if shown_id is None:
            return [gr.skip()] * (3 + len(PANELS))
        read = or_told(lambda: self._read(shown_id, values))
        if read is None:
            return [gr.skip(), REFUSED, *[gr.skip()] * (1 + len(PANELS))]
        base, view = read
        return [result_head(view), reading_note(view, base), draws_update(view), *panels(view, label)]

    def _read(self, shown_id: int, values: tuple[Any, ...]) -> tuple[CalibrationView, CalibrationView]:
        """A run as it was calibrated, and as it is read."""
        base = self._calibrations.view(shown_id)
        return base, self._calibrations.view(shown_id, reading_from(values, base))

    @shown
    def others(self, shown_id: int | None, *values: Any) -> Any:
        """The same reading at other risk levels; what stands there stays with the reading when another is refused."""
        if shown_id is None:
            return ""
        if isinstance(or_refusal(lambda: self._read(shown_id, values)), str):
            return gr.skip()
        base = self._calibrations.view(shown_id)
        request = reading_from(values, base)
        asked = request.alpha or base.alpha
        levels = sorted({*OTHER_ALPHAS, asked}, reverse=True)
        return alphas([(level, self._at(shown_id, request, level, base)) for level in levels], asked)

    @shown
    def histogram(self, shown_id: int | None, label: str, *values: Any) -> Any:
        """Joint support of one bin's true tokens."""
        if shown_id is None:
            return None
        base = self._calibrations.view(shown_id)
        return histogram(self._calibrations.view(shown_id, reading_from(values, base)), label)

    @shown
    def choose(self, event: gr.EventData) -> int:
        """Show another run."""
        return int(event.id)

    @shown
    def delete(self, event: gr.EventData, shown_id: int | None) -> list[Any]:
        """Delete a run; when it was shown, show the newest of the others."""
        self._calibrations.delete(int(event.id))
        found = self._calibrations.list()
        kept = shown_id if shown_id != event.id else (found[0].id if found else None)
        return [kept, runs_list(found, kept)]

    @shown
    def export(self, event: gr.EventData) -> str:
        """Write a run as a file for download."""
        return str(self._calibrations.export(int(event.id), Path(self._folder.name)))

    def _at(self, shown_id: int, request: ReadingRequest, alpha: float, base: CalibrationView) -> CalibrationView | str:
        level = None if alpha == base.alpha else alpha
        return or_refusal(lambda: self._calibrations.view(shown_id, replace(request, alpha=level)))


PANELS = ("promises", "figure", "thresholds", "bins", "histogram", "checks", "fingerprint")
"""What a reading changes, in order."""


def panels(view: CalibrationView, label: str | None = None) -> list[Any]:
    """Everything that a reading changes; ``label`` is the bin whose values stay in sight, if it is still there."""
    choices = bin_choices(view)
    labels = [value for _, value in choices]
    chosen = label if label in labels else next(iter(labels), None)
    return [
        promises(view), thresholds_figure(view.bins, view.coverage, 1 - risk(view)), thresholds(view),
        gr.Dropdown(choices, value=chosen, visible=bool(choices)),
        gr.Plot(histogram(view, chosen), visible=bool(choices)), result_checks(view), fingerprint(view),
    ]  # fmt: skip


def histogram(view: CalibrationView, label: str | None) -> Any:
    """Joint support of one bin's true tokens, with its threshold."""
    item = next((item for item in view.bins if item.label == label), None)
    if item is None:
        return None
    support = support_name(view.summary.certified_in)
    return support_histogram(view.log_values.get(item.label, ()), item.tau, threshold(item.tau), support)


def result_head_part() -> tuple[gr.HTML, gr.DownloadButton]:
    """Place the head of the result, and the file that it downloads."""
    head = listing("result", "export", value=EMPTY)
    return head, gr.DownloadButton("Calibration", elem_id="calibration-file", elem_classes=["offscreen"])


def reading_part() -> ReadingControls:
    """Place the controls that read the run otherwise."""
    with gr.Column(elem_classes=["reading"], elem_id="reading"):
        markup(
            '<div class="bar"><h2>Read it otherwise</h2><span class="hint">changes at once, without the model</span>'
            "</div>"
        )
        return reading_controls()


def result_body() -> tuple[tuple[Any, ...], gr.Dropdown, gr.Plot, gr.HTML]:
    """Place everything that a reading changes, but for the fingerprint, which stands last on the page."""
    certified = markup("", "promises")
    with gr.Column(elem_classes=["group"], elem_id="positions"):
        markup(thresholds_head())
        figure = chart("thresholds-plot")
        table = markup("", "thresholds")
    with gr.Row(elem_classes=["pair"]):
        with gr.Column(min_width=0, elem_classes=["figure"]):
            bins = gr.Dropdown([], label="Joint support of true tokens", elem_id="bins")
            plot = chart("support-plot")
        with gr.Column(min_width=0):
            other = markup("", "alphas")
    checks = markup("", "result-foot")
    return (certified, figure, table, bins, plot, checks), bins, plot, other


def _by_hand(control: Any) -> Any:
    """The event of a person's change; a menu's ``input`` fires twice, so that a refusal would be shown twice."""
    return control.select if isinstance(control, gr.Dropdown) else control.input


def wire_result(handlers: ResultHandlers, part: ResultPart, shown_id: gr.State, runs: gr.HTML) -> list[Any]:
    """Connect everything about the result; gives the events after which another run or reading is shown."""
    controls = list(part.reading.controls)
    note = part.reading.note
    whole = [runs, part.head, part.body, note, *controls, *part.panels]
    changed = [part.head, note, controls[READING_FIELDS.index("draws")], *part.panels]
    opened = shown_id.change(handlers.show, shown_id, whole, **EVENT)
    reset = part.reading.reset.click(handlers.show, shown_id, whole, **EVENT)
    read = gr.on(
        [_by_hand(control) for control in controls],
        handlers.read,
        [shown_id, part.bins, *controls],
        changed,
        **LATEST,
    )
    for event in (opened, reset, read):
        event.success(handlers.others, [shown_id, *controls], part.others, **LATEST)
    _by_hand(part.bins)(handlers.histogram, [shown_id, part.bins, *controls], part.histogram, **LATEST)
    runs.show(handlers.choose, None, shown_id, **MULTIPLE)
    runs.delete(handlers.delete, shown_id, [shown_id, runs], **MULTIPLE)
    downloaded(part.head.export(handlers.export, None, part.download, **MULTIPLE), "calibration-file")
    return [opened, reset, read]
