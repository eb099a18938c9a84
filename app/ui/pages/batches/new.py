"""The part of the batches page that begins a batch: controls and their wiring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from app.bootstrap import Services
from app.services.views import AuditSettings
from app.ui.components.pieces import hint, markup
from app.ui.components.settings_rail import SettingsRail, settings_controls
from app.ui.events import EVENT, LATEST
from app.ui.pages.audit.page import wire_tuned
from app.ui.pages.batches.form import OWN_FIELDS, SAME_SEED, UNTRIED, FormHandlers
from app.ui.pages.calibrate.prompts import NOT_TRIED, TRYING, PromptPart, prompt_part

CHANGED = "(...values) => coft.batches.settings(values)"
"""Runs in the browser with all values whenever one changes."""

SEEDS = [
    ("A seed for each context: rows of one context share their draws, others do not", "contexts"),
    ("The same seed for every prompt", SAME_SEED),
]
UNRELATED = ("greedy", "max_new_tokens", "seed")
"""Settings that no calibration depends on."""
MASKING = ("mask", "attribute", "masked_families", "user_list_id", "whitelist")
"""Settings that change which words are marked."""


@dataclass(frozen=True, slots=True)
class NewBatch:
    """The controls of a new batch."""

    part: PromptPart
    samples: gr.HTML
    preview: gr.HTML
    own: dict[str, Component]
    rail: SettingsRail
    check: gr.Button
    run: gr.Button
    estimate: gr.HTML

    @property
    def inputs(self) -> list[Any]:
        """File, columns, the batch's own fields and the settings, as the handlers take them."""
        own = [self.own[name] for name in OWN_FIELDS]
        return [self.part.file, *self.part.columns, *own, *self.rail.inputs]

    @property
    def read(self) -> list[Any]:
        """What reading a prompt set changes."""
        return [*self.part.outputs, self.check, self.run, self.estimate]


def new_batch(services: Services, handlers: FormHandlers) -> NewBatch:
    """Place the controls in two columns: prompts with the run below them, and the settings."""
    own: dict[str, Component] = {}
    with gr.Column(elem_classes=["stack"], min_width=0):
        part, samples, preview = prompt_part(handlers.prompts)
    with gr.Column(elem_classes=["stack"], min_width=0):
        with gr.Column(elem_classes=["rail", "batchrail"], min_width=0, elem_id="settings"):
            markup('<div class="bar"><h2>2. Settings</h2><span class="hint">the same for every prompt</span></div>')
            own["name"] = gr.Textbox(label="Name", placeholder="the file's name", max_lines=1, elem_id="batch-name")
            rail = settings_controls(AuditSettings(), services.audits.masked_families)
            own["proceed"] = gr.Checkbox(
                False, label="Audit without certificate where the calibration does not fit", visible=False,
                elem_id="proceed",
            )  # fmt: skip
            own["by_group"] = gr.Checkbox(
                False, label="Each row under its own group’s thresholds", elem_classes=["ruled"], elem_id="by-group"
            )
            hint("Needs a calibration by group, and a group in each row.")
            own["seeds"] = gr.Radio(SEEDS, value="contexts", label="Seeds", elem_classes=["stacked"], elem_id="seeds")
        with gr.Column(elem_classes=["group"], elem_id="go"):
            markup('<div class="bar"><h2>3. Run</h2></div>')
            estimate = markup(UNTRIED, "estimate")
            with gr.Row(elem_classes=["go"]):
                check = gr.Button("Check and estimate", interactive=False, elem_id="check")
                run = gr.Button("Run", variant="primary", interactive=False, elem_id="run")
    return NewBatch(part, samples, preview, own, rail, check, run, estimate)


def wire_new(app: gr.Blocks, handlers: FormHandlers, form: NewBatch, stage: gr.HTML) -> None:
    """Connect the form; a batch that begins is told to ``stage``, and a refused one names its rows."""
    _wire_prompts(handlers, form)
    _wire_settings(app, handlers, form)
    part = form.part
    began = form.run.click(
        handlers.submit, [part.file, part.accept, *form.inputs[1:]], stage, trigger_mode="once", **EVENT
    )
    began.failure(handlers.check, form.inputs, [part.errors, part.accept], **EVENT)


def _wire_prompts(handlers: FormHandlers, form: NewBatch) -> None:
    part, preview = form.part, form.preview
    form.samples.sample(handlers.prompts.sample, None, part.file, **EVENT)
    read = part.file.change(handlers.parse, part.file, form.read, **EVENT)
    read.success(handlers.preview, form.inputs, preview, **LATEST)
    chosen = [column.select for column in part.columns]
    mapped = gr.on(chosen, handlers.remap, [part.file, *part.columns], form.read, **LATEST)
    mapped.success(handlers.preview, form.inputs, preview, **LATEST)
    masking = [form.rail.controls[name].change for name in MASKING]  # type: ignore[attr-defined]
    gr.on(masking, handlers.preview, form.inputs, preview, **LATEST)
    tried = form.check.click(lambda: TRYING, None, form.estimate, **EVENT)
    checked = tried.success(handlers.check, form.inputs, [part.errors, part.accept], **EVENT)
    counted = checked.success(handlers.estimate, form.inputs, form.estimate, **EVENT)
    for event in (checked, counted):
        event.failure(lambda: NOT_TRIED, None, form.estimate, **EVENT)


def _wire_settings(app: gr.Blocks, handlers: FormHandlers, form: NewBatch) -> None:
    rail, told = form.rail, handlers.settings
    changes = {name: control.change for name, control in rail.controls.items()}  # type: ignore[attr-defined]
    for change in changes.values():
        change(None, rail.inputs, None, js=CHANGED)
    app.load(None, rail.inputs, None, js=CHANGED)
    app.load(handlers.opened, None, rail.inputs, **EVENT)
    model, calibration = rail.controls["model"], rail.controls["calibration_id"]
    gr.on([changes["model"], app.load], told.describe_model, model, rail.model_note, **LATEST)
    notes = [rail.calibration_note, rail.controls["group"], rail.adopt, form.own["proceed"]]
    described = [change for name, change in changes.items() if name not in UNRELATED]
    gr.on(described, handlers.describe_calibration, rail.inputs, notes, **LATEST)
    changes["calibration_id"](told.describe_drift, calibration, rail.drift_note, **LATEST)
    gr.on([changes["policy"], changes["parameters"]], told.describe_method, rail.inputs, rail.method_note, **LATEST)
    gr.on([changes["mask"], changes["model"], changes["policy"]], told.menu, rail.inputs, calibration, **LATEST)
    rail.adopt.click(told.adopt, rail.inputs, rail.inputs, **EVENT)
    wire_tuned(app, told, rail)
