"""The settings of an audit: Gradio's own controls, in the order of :data:`FIELDS`."""

from __future__ import annotations

from dataclasses import dataclass

import gradio as gr
from gradio.components import Component

from app.services.views import FAMILIES, AuditSettings
from app.ui.components.markup import icon
from app.ui.components.pieces import hint
from app.ui.components.rail_values import FIELDS, SINGLE
from app.ui.presenters_fit import ALL_GROUPS, calibration_choices
from app.ui.presenters_policies import parameters_text
from app.ui.presenters_session import family_choices, list_choices

MASKS = [
    ("All families together", "joint"),
    ("One attribute alone", SINGLE),
    ("One mask for each family", "factorized"),
]
MODES = [("Hard: the sentinel", "hard"), ("Soft: a neutral hint", "soft")]
PROMPT_FORMATS = [("As the model has it", "auto"), ("Chat template", "chat"), ("Plain text", "plain")]
CHANGED = "(...values) => coft.settings(values)"
"""Runs in the browser with all values whenever one changes; ``input`` events of text fields lag one key behind."""

_ATTRIBUTES = [(name, key) for name, key in family_choices() if key in FAMILIES]


@dataclass(frozen=True, slots=True)
class SettingsRail:
    """The controls by field, and what is said beside them."""

    controls: dict[str, Component]
    model_note: gr.HTML
    method_note: gr.HTML
    calibration_note: gr.HTML
    drift_note: gr.HTML
    adopt: gr.Button
    tuned_note: gr.HTML
    use_tuned: gr.Button

    @property
    def inputs(self) -> list[Component]:
        """The controls in the order of their fields."""
        return [self.controls[name] for name in FIELDS]


def settings_rail(defaults: AuditSettings, families: tuple[str, ...]) -> SettingsRail:
    """Place the controls with their defaults; ``families`` are those that are masked."""
    gr.HTML(
        html_template=f"""<div class="railhead"><h2>Settings</h2><button type="button" class="btn quiet"
          data-do="rail" aria-label="Hide or show the settings" title="Hide or show the settings  ["
          >{icon("rail")}</button></div>""",
        apply_default_css=False,
        js_on_load="coft.frame.rail(element)",
        elem_classes=["coft"],
    )
    return settings_controls(defaults, families)


def settings_controls(defaults: AuditSettings, families: tuple[str, ...]) -> SettingsRail:
    """The controls without the rail's head, for a page that has a heading of its own."""
    put: dict[str, Component] = {}
    put["model"] = gr.Dropdown(
        [("demo, embedded", "demo")], value=defaults.model, label="Model", allow_custom_value=True
    )
    model_note = _note()
    method_note = _method(put, defaults)
    tuned_note = gr.HTML(elem_id="tuned-note", elem_classes=["coft", "under"], apply_default_css=False)
    use_tuned = gr.Button("Use this strength", size="sm", visible=False, elem_id="use-tuned")
    put["mask"] = gr.Dropdown(MASKS, value=defaults.mask_layout, label="Mask", elem_id="mask")
    put["attribute"] = gr.Dropdown(_ATTRIBUTES, value=FAMILIES[0], label="Attribute", elem_id="attribute")
    put["calibration_id"] = gr.Dropdown(calibration_choices(()), value=0, label="Calibration", elem_id="calibration")
    put["group"] = gr.Dropdown([ALL_GROUPS], value="", label="Group", visible=False, elem_id="group")
    calibration_note = _note()
    drift_note = gr.HTML(elem_id="drift-note", elem_classes=["coft", "under"], apply_default_css=False)
    adopt = gr.Button("Use its settings", size="sm", visible=False, elem_id="adopt")
    _strength(put, defaults)
    with gr.Accordion("Sampling", open=False, elem_classes=["fold", "ruled"]):
        _sampling(put, defaults)
    with gr.Accordion("Masking", open=False, elem_classes=["fold"]):
        _masking(put, defaults, families)
    with gr.Accordion("Prompt format", open=False, elem_classes=["fold"]):
        prompt_format(put)
    with gr.Accordion("Length and seed", open=False, elem_classes=["fold"]):
        put["max_new_tokens"] = gr.Slider(1, 1024, defaults.max_new_tokens, step=1, label="Steps at most", buttons=[])
        put["seed"] = gr.Number(defaults.seed, label="Seed", precision=0)
        hint("The same seed draws the same tokens.")
    return SettingsRail(put, model_note, method_note, calibration_note, drift_note, adopt, tuned_note, use_tuned)


def _method(put: dict[str, Component], defaults: AuditSettings) -> gr.HTML:
    """The menu of methods, the parameters of the chosen one, and what is amiss with it."""
    put["policy"] = gr.HTML(
        defaults.policy,
        html_template="""<div class="method"><label for="policy-menu">Policy</label>
          <select class="select" id="policy-menu" aria-describedby="policy-about"></select>
          <div class="hint about" id="policy-about"></div></div>""",
        js_on_load="coft.policyMenu.mount(element, props, watch)",
        apply_default_css=False,
        elem_id="policy",
        elem_classes=["coft"],
    )
    put["parameters"] = gr.HTML(
        parameters_text(defaults),
        html_template='<div class="place"></div>',
        js_on_load="coft.policyMenu.parameters(element, props, watch)",
        apply_default_css=False,
        elem_id="parameters",
        elem_classes=["coft"],
    )
    return gr.HTML(elem_id="method-note", elem_classes=["coft", "under"], apply_default_css=False)


def _strength(put: dict[str, Component], defaults: AuditSettings) -> None:
    put["lam"] = gr.Slider(
        0, 1, defaults.lam, step=0.01, label="Lambda", buttons=[], elem_id="lam", elem_classes=["ruled"]
    )
    hint("How much the masked view counts: 0 reads only your text, 1 only the masked one.", "lam-hint")
    put["alpha"] = gr.Slider(0.001, 0.3, defaults.alpha, step=0.001, label="Alpha", buttons=[], elem_id="alpha")
    hint(
        "How often the true next token may be missed: 0.10 keeps it 9 times in 10, averaged over the steps of a bin.",
        "alpha-hint",
    )


def _sampling(put: dict[str, Component], defaults: AuditSettings) -> None:
    put["temperature"] = gr.Slider(0.1, 2, defaults.temperature, step=0.05, label="Temperature", buttons=[])
    put["top_p"] = gr.Slider(0.05, 1, defaults.top_p, step=0.01, label="Top-p (1 is off)", buttons=[])
    put["top_k"] = gr.Slider(0, 200, defaults.top_k, step=1, label="Top-k (0 is off)", buttons=[])
    put["greedy"] = gr.Checkbox(defaults.greedy, label="Greedy: take the likeliest token")


def _masking(put: dict[str, Component], defaults: AuditSettings, families: tuple[str, ...]) -> None:
    put["user_list_id"] = gr.Dropdown(list_choices(()), value=0, label="Word list", elem_id="user-list")
    hint('Your own terms win over what is detected. <a href="./lists">Manage word lists</a>')
    put["masked_families"] = gr.CheckboxGroup(
        _ATTRIBUTES,
        value=list(families),
        label="Families that are masked",
        elem_id="masked-families",
        elem_classes=["families-masked"],
    )
    hint(
        "Words of the others are suggested: shown, and not masked until you accept them. With the protected families "
        "alone, what hints at an attribute is masked where the prompt says none outright."
    )
    put["whitelist"] = gr.Textbox(
        "", label="Never masked", placeholder="terms, separated by commas", lines=1, max_lines=4, elem_id="whitelist"
    )
    put["mask_mode"] = gr.Dropdown(MODES, value=defaults.mask_mode, label="In place of a word", elem_id="mask-mode")
    put["mask_hint"] = gr.Textbox("", label="Hint", placeholder="a person", max_lines=1, elem_id="mask-hint")
    put["sentinel"] = gr.Textbox(
        defaults.sentinel or "", label="Sentinel", placeholder="the model's own", max_lines=1, elem_id="sentinel"
    )
    hint("One token that stands for every masked one, by its text or name; a hint is filled up with it.")


def prompt_format(put: dict[str, Component]) -> None:
    """Whether prompts go through the chat template, and as of which day; also on the calibrate page."""
    put["prompt_format"] = gr.Dropdown(
        PROMPT_FORMATS, value=AuditSettings().prompt_format, label="Prompt format", elem_id="prompt-format"
    )
    put["chat_date"] = gr.Textbox(
        "", label="Day that the template prints", placeholder="today", max_lines=1, elem_id="chat-date"
    )
    hint("A chat template may print the date; a calibration then holds for prompts of its own day, such as 2026-11-21.")


def _note() -> gr.HTML:
    return gr.HTML(elem_classes=["coft", "note"], apply_default_css=False)
