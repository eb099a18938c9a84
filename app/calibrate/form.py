"""The settings of a calibration: Gradio's own controls, in the order of :data:`FIELDS`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import gradio as gr
from gradio.components import Component

from app.prompts.form import SOURCES
from app.prompts.words import family_choices, list_choices
from app.settings import Settings
from app.shared.audits import CALIBRATING, FAMILY_NAMES, CalibrationRequest
from app.shared.components import hint, markup, upload
from app.shared.decoding import FRAMED, SAMPLED
from app.shared.markup import laid_out
from app.shared.settings_rail import frame_settings, model_menu, prompt_format, setting_control, terms
from coft_core.types import FAMILIES

SHARES = tuple(f"share_{family}" for family in FAMILIES)
"""Fields that hold each family's share of alpha."""

FIELDS = (
    "name", "model", "source", "max_new_tokens", "max_iterations", "tolerance", "record_chains", "alpha", "lam",
    "layout", "family", "masked_families", "split", *SHARES, "user_list_id", "mask_mode", "mask_hint", "sentinel",
    "whitelist", "estimator", "draws", "bin_spacing", "bin_width", "max_position", "shift", "rho", "deployment",
    *SAMPLED, "by_group", "verification_share", *FRAMED, "seed",
)  # fmt: skip
"""The form's fields in the order of its controls."""

BOXES = (
    "rollouts", "length", "chains", "one_family", "families", "split", "shares", *SHARES, "hint", "draws", "bin_width",
    "rho", "column", "deployment",
)  # fmt: skip
"""Parts of the form that show only where they apply."""

WHOLE = ("max_new_tokens", "max_iterations", "top_k", "draws", "bin_width", "max_position", "seed")
EXACT = ("alpha", "lam", "temperature", "top_p", "tolerance", "verification_share")

WEIGHTED = ("column", "estimated")
"""Where shift weights can come from; chains cannot be recorded under weights."""

Fields = Mapping[str, Any]

USUAL = CalibrationRequest(name="")


def fields_from(values: Sequence[object]) -> dict[str, Any]:
    """The controls' values by field."""
    return dict(zip(FIELDS, values, strict=True))


def applicable(fields: Fields) -> dict[str, bool]:
    """Which parts of the form apply to what is chosen in it, by the names of :data:`BOXES`."""
    rollout, layout, shift = fields["source"] == "rollout", fields["layout"], fields["shift"]
    by_hand = layout == "factorized" and fields["split"] == "hand"
    chosen = fields["masked_families"] or ()
    return {
        "rollouts": rollout,
        "length": rollout or (bool(fields["record_chains"]) and shift not in WEIGHTED and layout != "factual"),
        "chains": not rollout and shift not in WEIGHTED and layout != "factual",
        "one_family": layout == "single",
        "families": layout in ("joint", "factorized"),
        "split": layout == "factorized",
        "shares": by_hand,
        **{f"share_{family}": by_hand and family in chosen for family in FAMILIES},
        "hint": fields["mask_mode"] == "soft",
        "draws": fields["estimator"] == "one_per_context",
        "bin_width": fields["bin_spacing"] != "finest",
        "rho": shift == "rho",
        "column": shift == "column",
        "deployment": shift == "estimated",
    }


def calibration_request(
    fields: Fields, usual_name: str, accept_errors: bool, deployment: tuple[str, ...]
) -> CalibrationRequest:
    """The request that the form makes; fields that do not apply are left as they usually are."""
    applies = applicable(fields)
    numbers: dict[str, Any] = {name: int(_or_usual(fields, name)) for name in WHOLE}
    numbers |= {name: float(_or_usual(fields, name)) for name in EXACT}
    numbers |= {name: getattr(USUAL, name) for name in ("draws", "bin_width") if not applies[name]}
    return CalibrationRequest(
        name=str(fields["name"] or "").strip() or usual_name,
        model=str(fields["model"]),
        accept_errors=accept_errors,
        masked_families=(str(fields["family"]),) if applies["one_family"] else masked_families(fields),
        mask_layout="factorized" if fields["layout"] == "factorized" else "joint",
        certified_in="factual" if fields["layout"] == "factual" else "both",
        alpha_by_family=shares(fields) if applies["shares"] else None,
        mask_hint=_text(fields["mask_hint"]) if applies["hint"] else None,
        user_list_id=int(fields["user_list_id"] or 0) or None,
        sentinel=_text(fields["sentinel"]),
        whitelist=terms(fields["whitelist"]),
        rho=float(fields["rho"] or 1) if applies["rho"] else 1.0,
        weighting=fields["shift"] if fields["shift"] in WEIGHTED else "none",
        deployment=deployment if applies["deployment"] else (),
        record_chains=bool(fields["record_chains"]) and applies["chains"],
        **numbers,
        **{name: fields[name] for name in ("estimator", "source", "mask_mode", "bin_spacing")},
        by_group=bool(fields["by_group"]),
        **frame_settings(fields),
    )


def masked_families(fields: Fields) -> tuple[str, ...]:
    """The chosen families in their usual order."""
    return tuple(family for family in FAMILIES if family in (fields["masked_families"] or ()))


def shares(fields: Fields) -> tuple[tuple[str, float], ...]:
    """(family, its share of alpha) for the masked families."""
    return tuple((family, float(fields[f"share_{family}"] or 0)) for family in masked_families(fields))


def equal_shares(alpha: float, families: Sequence[str]) -> list[float]:
    """The same share for each family of :data:`SHARES`, rounded down so that they fit into alpha."""
    exact = Decimal(str(alpha)) / max(1, len(families))
    digits = 4 if exact >= Decimal("0.001") else 6
    return [float(math.floor(exact * 10**digits) / Decimal(10**digits))] * len(FAMILIES)


def shares_line(fields: Fields) -> str:
    """The running sum of the shares against alpha."""
    if not applicable(fields)["shares"]:
        return ""
    spent = sum((Decimal(str(share)) for _, share in shares(fields)), Decimal(0))
    alpha = Decimal(str(fields["alpha"]))
    return laid_out(
        "calibrate/shares_line.html",
        spent=spent,
        alpha=alpha,
        sum=f"{spent.normalize():f}",
    )


def _text(value: object) -> str | None:
    return str(value or "").strip() or None


def _or_usual(fields: Fields, name: str) -> Any:
    return getattr(USUAL, name) if fields[name] is None else fields[name]


LAYOUTS = [
    ("One masked view: all families hidden together", "joint"),
    ("One family only", "single"),
    ("One masked view for each family: alpha is shared out", "factorized"),
    ("None: only the factual reading, for methods that certify in one branch", "factual"),
]
SPLITS = [("equally", "equal"), ("by hand", "hand")]
MODES = [("Hard: the sentinel in place of the words", "hard"), ("Soft: a neutral hint in their place", "soft")]
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


def calibration_form(server: Settings, families: tuple[str, ...]) -> CalibrationForm:
    """Place the controls with their defaults; ``families`` are those that are masked."""
    form = CalibrationForm()
    _first(form, server)
    folds: tuple[tuple[str, str, Callable[[], None]], ...] = (
        ("Mask", "mask", lambda: _mask(form, families)),
        ("Estimator and positions", "estimator", lambda: _estimator(form)),
        ("Prompts that will be audited", "shift", lambda: _shift(form)),
        ("Sampling", "sampling", lambda: _put(form, *SAMPLED)),
        ("Prompt format", "format", lambda: prompt_format(form.controls)),
        ("Groups, check and record", "check", lambda: _check(form)),
    )
    for title, name, place in folds:
        with gr.Accordion(title, open=False, elem_classes=["fold"], elem_id=f"fold-{name}"):
            place()
    return form


def _put(form: CalibrationForm, *names: str, **how: Any) -> None:
    """Place the controls of settings as they are declared, but for what ``how`` says."""
    for name in names:
        said = CALIBRATING[name]
        own = {"min_width": 0} if said.control == "Slider" else {}
        form.controls[name] = setting_control(said, **{"value": getattr(USUAL, name), **own, **how})
        if name in BOXES:
            form.boxes[name] = form.controls[name]


def _first(form: CalibrationForm, server: Settings) -> None:
    put = form.controls
    with gr.Row(elem_classes=["twin"]):
        put["name"] = gr.Textbox(label="Name", placeholder="the file's name", max_lines=1, min_width=0)
        put["model"] = model_menu(server, min_width=0)
    put["source"] = gr.Radio(
        SOURCES, value=USUAL.source, label="Contexts come from", elem_classes=["stacked"], elem_id="source"
    )
    with gr.Column(visible=False, elem_classes=["box"], elem_id="rollouts") as form.boxes["rollouts"]:
        with gr.Row(elem_classes=["twin"]):
            _put(form, "max_iterations", "tolerance")
        hint("Rounds are repeated until no τ changes by more than “settled within”.")
    _put(form, "max_new_tokens", minimum=8, maximum=512, label="Steps of a text", visible=False)
    form.boxes["length"] = put["max_new_tokens"]
    with gr.Row(elem_classes=["twin"]):
        _put(form, "alpha", maximum=0.5)
        _put(form, "lam", elem_classes=None)
    hint("Alpha: true tokens that may be missed. Lambda: weight of the masked view.")


def _mask(form: CalibrationForm, families: tuple[str, ...]) -> None:
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
        for key, share in zip(FAMILIES, equal_shares(USUAL.alpha, families), strict=True):
            name = f"share_{key}"
            put[name] = boxes[name] = gr.Number(
                share, label=FAMILY_NAMES.get(key, key), minimum=0, step=0.001, min_width=0, visible=False
            )
    form.boxes["sum"] = markup("", "shares-sum")
    put["user_list_id"] = gr.Dropdown(list_choices(()), value=0, label="Word list", elem_id="user-list")
    hint('Your own terms win over what is detected. <a href="./lists">Manage word lists</a>')
    put["mask_mode"] = gr.Radio(MODES, value=USUAL.mask_mode, label="Mask", elem_classes=["stacked"])
    _put(form, "mask_hint", value="", visible=False)
    boxes["hint"] = put["mask_hint"]
    _put(form, "sentinel", "whitelist", value="")


def _estimator(form: CalibrationForm) -> None:
    _put(form, "estimator")
    _put(form, "draws", visible=False)
    _put(form, "bin_spacing")
    _put(form, "bin_width", visible=False)
    _put(form, "max_position")
    hint("All of these can be changed after the run: thresholds are read off its stored values.")


def _shift(form: CalibrationForm) -> None:
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


def _check(form: CalibrationForm) -> None:
    _put(form, "by_group")
    hint("Needs a column “group”, and in each group as many contexts as alpha asks for.")
    _put(form, "verification_share")
    _put(form, "seed", label="Seed of the split")
    with gr.Column(elem_classes=["box"]) as form.boxes["chains"]:
        _put(form, "record_chains")
        hint("Also writes what the policy itself says on these prompts; takes longer.")
