"""What follows a run: whether it still fits its audits, and weights for other prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from app.bootstrap import Services
from app.services.errors import ServiceError
from app.ui.components.pieces import chart, hint, markup, upload
from app.ui.errors import shown
from app.ui.events import EVENT, LATEST
from app.ui.figures_calibration import drift_figure
from app.ui.pages.calibrate.common import prompts_of
from app.ui.presenters_drift import drift_foot, drift_head


@dataclass(frozen=True, slots=True)
class FollowPart:
    """The drift panel and the form for weights."""

    drift: tuple[Any, ...]
    file: gr.File
    name: gr.Textbox
    button: gr.Button


class FollowHandlers:
    """What the page asks of the services after a run."""

    def __init__(self, services: Services) -> None:
        """Keep the services."""
        self._calibrations = services.calibrations

    @shown
    def drift(self, shown_id: int | None) -> list[Any]:
        """What the audits say against the run."""
        if shown_id is None:
            return ["", gr.Plot(visible=False), ""]
        report = self._calibrations.drift(shown_id)
        seen = bool(report.p_values)
        picture = gr.Plot(drift_figure(report), visible=True) if seen else gr.Plot(visible=False)
        return [drift_head(report), picture, drift_foot(report)]

    @shown
    def reweight(self, shown_id: int | None, path: str | None, name: str) -> list[Any]:
        """Store the run anew with weights for other prompts, and show it."""
        if shown_id is None or path is None:
            raise ServiceError("No file is chosen: upload prompts like those that will be audited.")
        own = self._calibrations.view(shown_id).summary.name
        prompts = prompts_of(self._calibrations, path)
        made = self._calibrations.reweight(shown_id, prompts, name.strip() or f"{own}, weighted")
        return [made, None, ""]


def follow_part() -> FollowPart:
    """Place the drift panel and the form for weights."""
    with gr.Column(elem_classes=["group"], elem_id="drift"):
        drift = (markup("", "drift-head"), chart("drift-plot", visible=False), markup("", "drift-foot"))
    with gr.Column(elem_classes=["group"], elem_id="reweight"):
        markup('<div class="bar"><h2>Weights for other prompts</h2></div>')
        hint(
            "Will the audited prompts differ from these? Upload some of them: the run is stored anew with each context "
            "weighted by how likely it is among them. Needs no model; the level is then approximate."
        )
        with gr.Row(elem_classes=["reweight"]):
            file = upload("Prompts in use", "reweight-file")
            with gr.Column(min_width=0, elem_classes=["group"]):
                name = gr.Textbox(label="Name of the new run", placeholder="this run, weighted", max_lines=1)
                with gr.Row(elem_classes=["go"]):
                    button = gr.Button("Store with weights", interactive=False, elem_id="reweight-go")
    return FollowPart(drift, file, name, button)


def wire_follow(handlers: FollowHandlers, part: FollowPart, shown_id: gr.State, opened: Any) -> None:
    """Connect the drift panel and the weights; an address that ends in ``#drift`` is followed when it is there."""
    told = opened.success(handlers.drift, shown_id, list(part.drift), **LATEST)
    told.success(None, None, None, js="() => coft.calibrate.anchor()")
    part.file.change(lambda path: gr.Button(interactive=path is not None), part.file, part.button, **EVENT)
    part.button.click(handlers.reweight, [shown_id, part.file, part.name], [shown_id, part.file, part.name], **EVENT)
