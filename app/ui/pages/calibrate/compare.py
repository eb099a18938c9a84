"""Two runs side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from app.bootstrap import Services
from app.services.views import CalibrationView, ReadingRequest
from app.ui.components.pieces import chart, markup
from app.ui.components.reading_controls import ONE_PER_CONTEXT, ReadingControls, reading_from
from app.ui.errors import or_refusal, or_told, shown
from app.ui.events import LATEST
from app.ui.figures_calibration import comparison_figure
from app.ui.presenters_compare import comparison_choices, comparison_settings, comparison_thresholds

NOT_COMPARED = '<p class="caution">These two runs cannot be read alike.</p>'


@dataclass(frozen=True, slots=True)
class ComparePart:
    """The choice of another run, and what is said of both."""

    other: gr.Dropdown
    panels: tuple[Any, ...]


class CompareHandlers:
    """What the page asks of the services about two runs."""

    def __init__(self, services: Services) -> None:
        """Keep the services."""
        self._calibrations = services.calibrations

    @shown
    def menu(self, shown_id: int | None, other: int | None) -> Any:
        """The runs that the shown one can be compared with."""
        choices = comparison_choices(self._calibrations.list(), shown_id)
        kept = other if any(value == other for _, value in choices) else 0
        return gr.Dropdown(choices, value=kept)

    def compare(self, shown_id: int | None, other: int | None, *values: Any) -> list[Any]:
        """Both runs, the other one read as the shown one; a reading that is refused changes nothing."""
        if shown_id is None or not other:
            return ["", gr.Plot(visible=False), ""]
        first = or_refusal(lambda: self._read(shown_id, values))
        if isinstance(first, str):
            return [gr.skip()] * 3
        return or_told(lambda: self._compared(first, other)) or [NOT_COMPARED, gr.Plot(visible=False), ""]

    def _read(self, shown_id: int, values: tuple[Any, ...]) -> CalibrationView:
        base = self._calibrations.view(shown_id)
        return self._calibrations.view(shown_id, reading_from(values, base))

    def _compared(self, first: CalibrationView, other: int) -> list[Any]:
        second = self._calibrations.view(other, alike(first))
        picture = comparison_figure(first.bins, second.bins, first.summary.name, second.summary.name)
        return [
            comparison_settings(first, second),
            gr.Plot(picture, visible=True),
            comparison_thresholds(first, second),
        ]


def alike(view: CalibrationView) -> ReadingRequest:
    """The same reading for another run, as far as it does not belong to this one's prompts."""
    own = view.reading
    draws = own.draws if own.estimator == ONE_PER_CONTEXT else None
    return ReadingRequest(
        view.alpha, own.estimator, own.bin_width, own.max_position, draws, bin_spacing=own.bin_spacing
    )


def compare_part() -> ComparePart:
    """Place the choice of another run, and what is said of both."""
    with gr.Column(elem_classes=["group"], elem_id="compare"):
        markup('<div class="bar"><h2>Compare with another run</h2></div>')
        other = gr.Dropdown([("Choose a run", 0)], value=0, label="Other run", show_label=False, elem_id="compare-with")
        settings, plot = markup("", "compare-settings"), chart("compare-plot", visible=False)
        return ComparePart(other, (settings, plot, markup("", "compare-table")))


def wire_compare(
    handlers: CompareHandlers, part: ComparePart, reading: ReadingControls, shown_id: gr.State, events: list[Any]
) -> None:
    """Connect the comparison; it follows the shown run and its reading."""
    inputs = [shown_id, part.other, *reading.controls]
    events[0].success(handlers.menu, [shown_id, part.other], part.other, **LATEST)
    part.other.change(handlers.compare, inputs, list(part.panels), **LATEST)
    for event in events:
        event.success(handlers.compare, inputs, list(part.panels), **LATEST)
