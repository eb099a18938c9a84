"""The settings of a calibration: Gradio's own controls, in the order of :data:`FIELDS`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gradio as gr
from gradio.components import Component

from app.services.views import FAMILIES, FAMILY_NAMES, CalibrationRequest
from app.ui.components.pieces import hint, markup, upload
from app.ui.components.settings_rail import prompt_format
from app.ui.presenters_form import BOXES, FIELDS, equal_shares
from app.ui.presenters_session import family_choices, list_choices

SOURCES = [
    ("The references: each row’s own continuation. Fast, and needs a reference in each row.", "reference"),
    ("Rollouts: what this policy itself writes. Slower; fits prompts whose continuation nobody has.", "rollout"),
]
LAYOUTS = [
    ("One masked view: all families hidden together", "joint"),
    ("One family only", "single"),
    ("One masked view for each family: alpha is shared out", "factorized"),
    ("None: the factual reading alone, for methods that certify in one branch", "factual"),
]
SPLITS = [("equally", "equal"), ("by hand", "hand")]
MODES = [("Hard: the sentinel in place of the words", "hard"), ("Soft: a neutral hint in their place", "soft")]
ESTIMATORS = [
    ("hierarchical: all tokens, whole contexts", "hierarchical"),
    ("one per context: one token each", "one_per_context"),
    ("pooled: as in the paper, for comparison only", "pooled"),
]
SPACINGS = [
    ("1, 2, 3–4, 5–8, then wider: the first steps differ most", "widening"),
    ("the same number throughout, as in the paper", "even"),
]
SHIFTS = [
    ("They are like these prompts", "none"),
    ("They may differ: at most ρ times likelier than here", "rho"),
    ("They differ as the weights in my file say", "column"),
    ("Estimate the difference from a file of them", "estimated"),
]
SINGLE = [(name, key) for name, key in family_choices() if key in FAMILIES]


@dataclass(frozen=True, slots=True)
class CalibrationForm:
    """The controls by field, and the parts that show only where they apply."""

    controls: dict[str, Component] = field(default_factory=dict)
    boxes: dict[str, Any] = field(default_factory=dict)

    @property
    def inputs(self) -> list[Component]:
        """The controls in the order of their fields."""
        return [self.controls[name] for name in FIELDS]

    @property
    def parts(self) -> list[Any]:
        """What shows only where it applies, in the order of its names."""
        return [self.boxes[name] for name in BOXES]


def calibration_form(families: tuple[str, ...]) -> CalibrationForm:
    """Place the controls with their defaults; ``families`` are those that are masked."""
    form, usual = CalibrationForm(), CalibrationRequest(name="")
    _first(form, usual)
    with gr.Accordion("Mask", open=False, elem_classes=["fold"], elem_id="fold-mask"):
        _mask(form, usual, families)
    with gr.Accordion("Estimator and positions", open=False, elem_classes=["fold"], elem_id="fold-estimator"):
        _estimator(form, usual)
    with gr.Accordion("Prompts that will be audited", open=False, elem_classes=["fold"], elem_id="fold-shift"):
        _shift(form, usual)
    with gr.Accordion("Sampling", open=False, elem_classes=["fold"], elem_id="fold-sampling"):
        _sampling(form, usual)
    with gr.Accordion("Prompt format", open=False, elem_classes=["fold"], elem_id="fold-format"):
        prompt_format(form.controls)
    with gr.Accordion("Groups, check and record", open=False, elem_classes=["fold"], elem_id="fold-check"):
        _check(form, usual)
    return form


def _first(form: CalibrationForm, usual: CalibrationRequest) -> None:
    put = form.controls
    with gr.Row(elem_classes=["twin"]):
        put["name"] = gr.Textbox(label="Name", placeholder="the file's name", max_lines=1, min_width=0)
        put["model"] = gr.Dropdown(
            [("demo, embedded", "demo")], value=usual.model, label="Model", allow_custom_value=True, min_width=0
        )
    put["source"] = gr.Radio(
        SOURCES, value=usual.source, label="Contexts come from", elem_classes=["stacked"], elem_id="source"
    )
    with gr.Column(visible=False, elem_classes=["box"], elem_id="rollouts") as form.boxes["rollouts"]:
        with gr.Row(elem_classes=["twin"]):
            put["max_iterations"] = gr.Slider(2, 12, usual.max_iterations, step=1, label="Rounds at most", **_SLIDER)
            put["tolerance"] = gr.Slider(0.001, 0.1, usual.tolerance, step=0.001, label="Settled within", **_SLIDER)
        hint("Rounds are repeated until no τ changes by more than “settled within”.")
    put["max_new_tokens"] = form.boxes["length"] = gr.Slider(
        8, 512, usual.max_new_tokens, step=1, label="Steps of a chain", visible=False, **_SLIDER
    )
    with gr.Row(elem_classes=["twin"]):
        put["alpha"] = gr.Slider(0.001, 0.5, usual.alpha, step=0.001, label="Alpha", **_SLIDER)
        put["lam"] = gr.Slider(0, 1, usual.lam, step=0.01, label="Lambda", **_SLIDER)
    hint("Alpha: true tokens that may be missed. Lambda: weight of the masked view.")


def _mask(form: CalibrationForm, usual: CalibrationRequest, families: tuple[str, ...]) -> None:
    put, boxes = form.controls, form.boxes
    put["layout"] = gr.Radio(LAYOUTS, value="joint", label="Masked views", elem_classes=["stacked"], elem_id="layout")
    put["family"] = boxes["one_family"] = gr.Dropdown(SINGLE, value="gender", label="Family", visible=False)
    with gr.Column(elem_classes=["box"]) as boxes["families"]:
        put["masked_families"] = gr.CheckboxGroup(
            SINGLE, value=list(families), label="Families that are masked", elem_classes=["families-masked"],
            elem_id="masked-families",
        )  # fmt: skip
    put["split"] = boxes["split"] = gr.Radio(SPLITS, value="equal", label="Alpha is shared out", visible=False)
    with gr.Row(elem_classes=["shares"], visible=False, elem_id="shares") as boxes["shares"]:
        for key, share in zip(FAMILIES, equal_shares(usual.alpha, families), strict=True):
            name = f"share_{key}"
            put[name] = boxes[name] = gr.Number(
                share, label=FAMILY_NAMES.get(key, key), minimum=0, step=0.001, min_width=0, visible=False
            )
    form.boxes["sum"] = markup("", "shares-sum")
    put["user_list_id"] = gr.Dropdown(list_choices(()), value=0, label="Word list", elem_id="user-list")
    hint('Your own terms win over what is detected. <a href="./lists">Manage word lists</a>')
    put["mask_mode"] = gr.Radio(MODES, value=usual.mask_mode, label="Mask", elem_classes=["stacked"])
    put["mask_hint"] = boxes["hint"] = gr.Textbox("", label="Hint", placeholder="a person", max_lines=1, visible=False)
    put["sentinel"] = gr.Textbox("", label="Sentinel", placeholder="the model's own", max_lines=1)
    put["whitelist"] = gr.Textbox("", label="Never masked", placeholder="terms, separated by commas", max_lines=3)


def _estimator(form: CalibrationForm, usual: CalibrationRequest) -> None:
    put = form.controls
    put["estimator"] = gr.Dropdown(ESTIMATORS, value=usual.estimator, label="Estimator")
    put["draws"] = form.boxes["draws"] = gr.Slider(
        1, 200, usual.draws, step=1, label="Draws that are averaged", visible=False, **_SLIDER
    )
    put["bin_spacing"] = gr.Dropdown(SPACINGS, value=usual.bin_spacing, label="Steps that share a threshold")
    put["bin_width"] = gr.Slider(1, 64, usual.bin_width, step=1, label="Steps of a bin", **_SLIDER)
    put["max_position"] = gr.Slider(8, 1024, usual.max_position, step=8, label="Own thresholds up to step", **_SLIDER)
    hint("All of these can be changed after the run: thresholds are read off its stored values.")


def _shift(form: CalibrationForm, usual: CalibrationRequest) -> None:
    put, boxes = form.controls, form.boxes
    put["shift"] = gr.Radio(
        SHIFTS, value="none", label="Compared with these", elem_classes=["stacked"], elem_id="shift"
    )
    put["rho"] = boxes["rho"] = gr.Number(1.5, label="ρ, at least 1", minimum=1, step=0.1, visible=False)
    with gr.Column(visible=False, elem_classes=["box"]) as boxes["column"]:
        hint("The column “weight” says of each row how much likelier its prompt is in use than here.")
    with gr.Column(visible=False, elem_classes=["box"]) as boxes["deployment"]:
        put["deployment"] = upload("Prompts that will be audited", "deployment")
        hint("A file with a column “prompt”. The weights are estimated from its words, so the level is approximate.")


def _sampling(form: CalibrationForm, usual: CalibrationRequest) -> None:
    put = form.controls
    put["temperature"] = gr.Slider(0.1, 2, usual.temperature, step=0.05, label="Temperature", **_SLIDER)
    put["top_p"] = gr.Slider(0.05, 1, usual.top_p, step=0.01, label="Top-p (1 is off)", **_SLIDER)
    put["top_k"] = gr.Slider(0, 200, usual.top_k, step=1, label="Top-k (0 is off)", **_SLIDER)


def _check(form: CalibrationForm, usual: CalibrationRequest) -> None:
    put = form.controls
    put["by_group"] = gr.Checkbox(usual.by_group, label="Thresholds for each group of its own")
    hint("Needs a column “group”, and in each group as many contexts as alpha asks for.")
    put["verification_share"] = gr.Slider(
        0.1, 0.9, usual.verification_share, step=0.05, label="Share kept apart to check the result", **_SLIDER
    )
    put["seed"] = gr.Number(usual.seed, label="Seed of the split", precision=0)
    with gr.Column(elem_classes=["box"]) as form.boxes["chains"]:
        put["record_chains"] = gr.Checkbox(usual.record_chains, label="Record chains, to notice drift later")
        hint("Also writes what the policy itself says on these prompts; takes longer.")


_SLIDER: dict[str, Any] = {"buttons": [], "min_width": 0}
