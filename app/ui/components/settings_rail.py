"""The settings of an audit: Gradio's own controls, and their way to and from :class:`AuditSettings`."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import gradio as gr
from gradio.components import Component

from app.services.views import FAMILIES, AuditSettings, CalibrationSummary, CalibrationView, UserListSummary
from app.ui.components.markup import badge, icon
from app.ui.presenters_session import calibration_choices, calibration_status, family_choices, list_choices

POLICIES = [("COFT, joint mask", "coft"), ("Vanilla, the model as it is", "vanilla")]
CHANGED = "(...values) => coft.settings(values)"
"""Runs in the browser with all values whenever one changes; ``input`` events of text fields lag one key behind."""


@dataclass(frozen=True, slots=True)
class SettingsRail:
    """The controls, in the order of :data:`FIELDS`."""

    controls: tuple[Component, ...]
    model_note: gr.HTML
    calibration_note: gr.HTML

    def control(self, name: str) -> Component:
        """The control of one field."""
        return self.controls[FIELDS.index(name)]


FIELDS = (
    "model",
    "policy",
    "calibration_id",
    "lam",
    "alpha",
    "temperature",
    "top_p",
    "top_k",
    "greedy",
    "sentinel",
    "max_new_tokens",
    "seed",
    "user_list_id",
    "masked_families",
)


@dataclass(frozen=True, slots=True)
class Stored:
    """What the store offers for a choice today, and the families that are masked unless settings say otherwise."""

    calibrations: tuple[CalibrationSummary, ...]
    user_lists: tuple[UserListSummary, ...]
    families: tuple[str, ...]


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
    model = gr.Dropdown([("demo, embedded", "demo")], value=defaults.model, label="Model", allow_custom_value=True)
    model_note = gr.HTML(elem_classes=["coft", "note"], apply_default_css=False)
    policy = gr.Dropdown(POLICIES, value=defaults.policy, label="Policy")
    calibration = gr.Dropdown(calibration_choices(()), value=0, label="Calibration", elem_id="calibration")
    calibration_note = gr.HTML(elem_classes=["coft", "note"], apply_default_css=False)
    lam = gr.Slider(0, 1, defaults.lam, step=0.01, label="Lambda", buttons=[], elem_classes=["ruled"])
    _hint("How much the masked view counts: 0 reads only your text, 1 only the masked one.")
    alpha = gr.Slider(0.001, 0.3, defaults.alpha, step=0.001, label="Alpha", buttons=[])
    _hint("How often the true next token may be missed: 0.10 keeps it 9 times in 10.")
    with gr.Accordion("Sampling", open=False, elem_classes=["fold", "ruled"]):
        temperature = gr.Slider(0.1, 2, defaults.temperature, step=0.05, label="Temperature", buttons=[])
        top_p = gr.Slider(0.05, 1, defaults.top_p, step=0.01, label="Top-p (1 is off)", buttons=[])
        top_k = gr.Slider(0, 200, defaults.top_k, step=1, label="Top-k (0 is off)", buttons=[])
        greedy = gr.Checkbox(defaults.greedy, label="Greedy: take the likeliest token")
    with gr.Accordion("Masking", open=False, elem_classes=["fold"]):
        user_list, masked = masking_controls(families)
        sentinel = gr.Textbox(
            defaults.sentinel or "", label="Sentinel", placeholder="the model's own", max_lines=1,
        )  # fmt: skip
        _hint("One token that stands for every masked one.")
    with gr.Accordion("Length and seed", open=False, elem_classes=["fold"]):
        steps = gr.Slider(1, 512, defaults.max_new_tokens, step=1, label="Steps at most", buttons=[])
        seed = gr.Number(defaults.seed, label="Seed", precision=0)
        _hint("The same seed draws the same tokens.")
    controls: tuple[Component, ...] = (
        model, policy, calibration, lam, alpha, temperature, top_p, top_k, greedy, sentinel, steps, seed,
        user_list, masked,
    )  # fmt: skip
    return SettingsRail(controls, model_note, calibration_note)


def masking_controls(families: tuple[str, ...]) -> tuple[gr.Dropdown, gr.CheckboxGroup]:
    """Place the choice of a word list and of the families that are masked."""
    user_list = gr.Dropdown(list_choices(()), value=0, label="Word list", elem_id="user-list")
    _hint('Your own terms win over what is detected. <a href="./lists">Manage word lists</a>')
    masked = gr.CheckboxGroup(
        [(name, key) for name, key in family_choices() if key in FAMILIES],
        value=list(families),
        label="Families that are masked",
        elem_id="masked-families",
        elem_classes=["families-masked"],
    )
    _hint("Words of the others are suggested: shown, and not masked until you accept them.")
    return user_list, masked


def masking_from(user_list: object, families: object) -> dict[str, Any]:
    """The word list and the masked families as settings; list 0 is none, families come in their usual order."""
    chosen = families if isinstance(families, (list, tuple)) else ()
    return {
        "user_list_id": int(str(user_list or 0)) or None,
        "masked_families": tuple(family for family in FAMILIES if family in chosen),
    }


def _hint(text: str) -> None:
    gr.HTML(f'<p class="hint">{text}</p>', apply_default_css=False, elem_classes=["coft", "note"])


def settings_from(values: tuple[object, ...], proceed: bool = False) -> AuditSettings:
    """The controls' values as settings; an empty sentinel or calibration 0 is none."""
    given = dict(zip(FIELDS, values, strict=True))
    given["calibration_id"] = int(str(given["calibration_id"] or 0)) or None
    given["sentinel"] = str(given["sentinel"] or "").strip() or None
    for name in ("top_k", "max_new_tokens", "seed"):
        given[name] = int(float(str(given[name] or 0)))
    given.update(masking_from(given["user_list_id"], given["masked_families"]))
    return AuditSettings(**given, proceed_uncertified=proceed)  # type: ignore[arg-type]


def control_values(settings: AuditSettings, stored: Stored) -> list[object]:
    """What the controls show for settings; a calibration or a word list that is gone shows as none."""
    values = {name: getattr(settings, name) for name in FIELDS}
    if settings.calibration_id not in {item.id for item in stored.calibrations}:
        values["calibration_id"] = 0
    if settings.user_list_id not in {item.id for item in stored.user_lists}:
        values["user_list_id"] = 0
    values["sentinel"] = settings.sentinel or ""
    values["masked_families"] = list(stored.families if settings.masked_families is None else settings.masked_families)
    return list(values.values())


def updates_from(values: list[object], stored: Stored) -> list[object]:
    """Updates that make the controls show values, with what is stored today to choose from."""
    updates = list(values)
    menus = (
        ("calibration_id", calibration_choices(stored.calibrations)),
        ("user_list_id", list_choices(stored.user_lists)),
    )
    for name, choices in menus:
        place = FIELDS.index(name)
        updates[place] = gr.Dropdown(choices, value=int(str(values[place])))
    return updates


def default_calibration(found: tuple[CalibrationSummary, ...], wanted: int | None) -> int | None:
    """The asked-for calibration, else the embedded one, else none."""
    ids = [item.id for item in found]
    if wanted in ids:
        return wanted
    return next((item.id for item in found if item.embedded), None)


def calibration_note(view: CalibrationView | None, lam: float, detector: str | None = None) -> str:
    """Badge and lines under the calibration menu."""
    state, text, lines = calibration_status(view, lam, detector)
    extra = "".join(f'<p class="hint tnum">{escape(line)}</p>' for line in lines)
    return f"<p>{badge(state, text)}</p>{extra}"
