"""The controls that read a finished calibration otherwise, and their way to and from a :class:`ReadingRequest`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from app.services.views import FAMILY_NAMES, CalibrationView, Reading, ReadingRequest
from app.ui.components.calibration_form import ESTIMATORS, SPACINGS
from app.ui.components.pieces import markup
from app.ui.presenters_format import level

READING_FIELDS = ("alpha", "estimator", "draws", "bin_spacing", "bin_width", "max_position", "rho", "group", "family")
"""The controls in their order."""

ONE_PER_CONTEXT = "one_per_context"
ALL_GROUPS = ("All groups together", "")
AS_CALIBRATED = '<p class="hint">As it was calibrated.</p>'
REFUSED = '<p class="caution">Not possible with these values; what is shown is the reading before.</p>'


@dataclass(frozen=True, slots=True)
class ReadingControls:
    """The controls in the order of :data:`READING_FIELDS`, what to reset them with, and what is said of them."""

    controls: tuple[Component, ...]
    reset: gr.Button
    note: gr.HTML


def reading_controls() -> ReadingControls:
    """Place the controls, hidden until a run is shown."""
    slider: dict[str, Any] = {"buttons": [], "min_width": 0}
    with gr.Row(elem_classes=["reading-grid"]):
        alpha = gr.Slider(0.001, 0.5, 0.1, step=0.001, label="Alpha", elem_id="read-alpha", **slider)
        rho = gr.Slider(1, 5, 1, step=0.05, label="ρ, how much likelier in use", elem_id="read-rho", **slider)
        spacing = gr.Dropdown(
            SPACINGS, value="widening", label="Steps that share a threshold", min_width=0, elem_id="read-spacing"
        )
        width = gr.Slider(1, 64, 8, step=1, label="Steps of a bin", elem_id="read-width", **slider)
        last = gr.Slider(8, 1024, 256, step=8, label="Own thresholds up to step", elem_id="read-last", **slider)
        estimator = gr.Dropdown(
            ESTIMATORS, value="hierarchical", label="Estimator", min_width=0, elem_id="read-estimator"
        )
        draws = gr.Slider(1, 200, 1, step=1, label="Draws that are averaged", elem_id="read-draws", **slider)
        group = gr.Dropdown([ALL_GROUPS], value="", label="Group", min_width=0, elem_id="read-group")
        family = gr.Dropdown([], label="Family", min_width=0, elem_id="read-family")
    with gr.Row(elem_classes=["go", "reset"]):
        reset = gr.Button("Reset", size="sm", elem_id="read-reset")
        note = markup(AS_CALIBRATED, "read-note")
    return ReadingControls((alpha, estimator, draws, spacing, width, last, rho, group, family), reset, note)


def reading_from(values: Sequence[object], base: CalibrationView) -> ReadingRequest:
    """What the controls ask for; what is as calibrated stays None, so that weights and shares stay as they are."""
    given: dict[str, Any] = dict(zip(READING_FIELDS, values, strict=True))
    own = base.reading
    asked: dict[str, Any] = {
        "alpha": float(given["alpha"] or own.alpha),
        "estimator": given["estimator"] or own.estimator,
        "bin_spacing": given["bin_spacing"] or own.bin_spacing,
        "bin_width": int(given["bin_width"] or own.bin_width),
        "max_position": int(given["max_position"] or own.max_position),
        "draws": int(given["draws"] or own.draws),
        "rho": float(given["rho"] or own.rho),
    }
    changed = {name: value for name, value in asked.items() if value != getattr(own, name)}
    if asked["estimator"] != ONE_PER_CONTEXT:
        changed.pop("draws", None)
    family = given["family"] if base.families and given["family"] != base.family else None
    return ReadingRequest(**changed, group=(given["group"] or None) if base.groups else None, family=family)


def reading_updates(view: CalibrationView) -> list[Any]:
    """Updates that make the controls show a reading, and hide those that do not apply to this calibration."""
    own = view.reading
    families = [(FAMILY_NAMES.get(item.family, item.family), item.family) for item in view.families]
    return [
        gr.Slider(value=own.alpha),
        gr.Dropdown(value=own.estimator),
        gr.Slider(value=own.draws, visible=own.estimator == ONE_PER_CONTEXT),
        gr.Dropdown(value=own.bin_spacing),
        gr.Slider(value=own.bin_width),
        gr.Slider(value=own.max_position),
        gr.Slider(value=own.rho),
        gr.Dropdown([ALL_GROUPS, *((g.name, g.name) for g in view.groups)], value="", visible=bool(view.groups)),
        gr.Dropdown(families, value=view.family, visible=bool(families)),
    ]


def draws_update(view: CalibrationView) -> Any:
    """Show the draws where they apply to a reading."""
    return gr.Slider(visible=view.reading.estimator == ONE_PER_CONTEXT)


def reading_note(view: CalibrationView, base: CalibrationView) -> str:
    """How the shown reading differs from the calibrated one."""
    changes = _words(view.reading, base.reading)
    if view.families and view.alpha != base.alpha:
        changes.append("alpha shared out equally")
    if view.group is not None:
        changes.append("one group alone")
    if view.effective_contexts is None and base.effective_contexts is not None:
        changes.append("ρ in place of the weights")
    if not changes:
        return AS_CALIBRATED
    return (
        f'<p class="hint">Read from stored values, without the model: {", ".join(changes)}. Nothing is stored; audits '
        "choose their own alpha.</p>"
    )


def _words(shown: Reading, own: Reading) -> list[str]:
    words = (
        ("alpha", "alpha ", level),
        ("estimator", "", lambda name: str(name).replace("_", " ")),
        ("draws", "averaged draws ", str),
        ("bin_spacing", "", lambda name: f"{name} bins"),
        ("bin_width", "bins of ", str),
        ("max_position", "own thresholds up to step ", str),
        ("rho", "ρ ", lambda value: f"{value:g}"),
    )
    return [
        f"{before}{say(getattr(shown, name))} instead of {say(getattr(own, name))}"
        for name, before, say in words
        if getattr(shown, name) != getattr(own, name)
    ]
