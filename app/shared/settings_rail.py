"""The settings rail's values: the way from the controls to :class:`AuditSettings` and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import gradio as gr
from gradio.components import Component

from app.prompts.words import family_choices, list_choices
from app.settings import Settings
from app.shared.audits import AuditSettings, CalibrationSummary, CalibrationView, SettingsFit
from app.shared.calibration_words import (
    ALL_GROUPS,
    calibration_choices,
    calibration_status,
    group_choices,
    misfit_lines,
)
from app.shared.components import hint, place
from app.shared.decoding import FRAMED, Setting, settings_of
from app.shared.errors import ServiceError
from app.shared.events import or_refusal
from app.shared.markup import html, laid_out
from app.shared.planning import policy_of
from app.shared.policies import KNOWN_POLICIES, fitted, info_of, parameters_from, parameters_text
from coft_core.conformal.groups import GroupSummary
from coft_core.model.load import DEMO
from coft_core.types import FAMILIES
from db.user_lists import UserListRecord

SETTINGS = settings_of(AuditSettings)
OWN_CONTROLS = {"mask_layout": ("mask", "attribute"), "proceed_uncertified": ()}
"""Controls of settings that have others than one under their own name."""

FIELDS = tuple(name for setting in SETTINGS for name in OWN_CONTROLS.get(setting, (setting,)))
"""The controls in their order; ``mask`` and ``attribute`` stand for layout and families together."""

KINDS = {item.name: str(item.type) for item in fields(AuditSettings)}
"""The settings' types as they are written."""

SINGLE = "single"
"""A mask of one attribute alone: the joint layout with one masked family."""


@dataclass(frozen=True, slots=True)
class StoredChoices:
    """What the store offers for a choice today, and the families and the model that are usual here."""

    calibrations: tuple[CalibrationSummary, ...]
    user_lists: tuple[UserListRecord, ...]
    families: tuple[str, ...]
    model: str = DEMO


def settings_from(values: Sequence[object], proceed: bool = False) -> AuditSettings:
    """The controls' values as settings; an empty text, calibration 0 and group ``""`` are none."""
    given: dict[str, Any] = dict(zip(FIELDS, values, strict=True))
    policy = str(given["policy"])
    mask, attribute = given.pop("mask"), str(given.pop("attribute") or FAMILIES[0])
    families = [attribute] if mask == SINGLE else given["masked_families"]
    given = {name: setting_from(name, value) for name, value in given.items()}
    given["mask_layout"] = "factorized" if mask == "factorized" else "joint"
    given["parameters"] = parameters_from(policy, given["parameters"])
    if given["mask_mode"] == "hard":
        given["mask_hint"] = None
    given.update(masking_from(given["user_list_id"], families))
    return fitted(AuditSettings(**given, proceed_uncertified=proceed), policy)


def setting_from(name: str, value: object) -> Any:
    """What a control holds, as the setting; an empty text and the number 0 of what is stored are none."""
    kind = KINDS[name]
    if kind == "str | None":
        written = str(value or "")
        return None if not written.strip() else written if SETTINGS[name].blanks else written.strip()
    if kind in ("int", "int | None"):
        number = int(float(str(value or 0)))
        return number if kind == "int" else number or None
    return terms(value) if name == "whitelist" else value


def without_parameters(values: Sequence[object]) -> list[object]:
    """The controls' values with the policy's own parameters at their defaults, for what does not depend on them."""
    return ["" if name == "parameters" else value for name, value in zip(FIELDS, values, strict=True)]


def kept_settings(values: object, otherwise: AuditSettings) -> AuditSettings:
    """Settings that a page has kept over a reload; those of another version of the program are left out."""
    if not isinstance(values, list) or len(values) != len(FIELDS):
        return otherwise
    for read in (values, without_parameters(values)):
        try:
            return settings_from(read)
        except ServiceError:
            continue
        except (TypeError, ValueError):
            return otherwise
    return otherwise


def as_kept(values: list[object], kept: object) -> list[object]:
    """What the controls show for kept settings, with the policy's parameters as they were typed, refused ones too."""
    if not isinstance(kept, list) or len(kept) != len(FIELDS):
        return values
    same = kept[FIELDS.index("policy")] == values[FIELDS.index("policy")]
    at = FIELDS.index("parameters")
    return [*values[:at], kept[at], *values[at + 1 :]] if same and kept[at] else values


def masking_from(user_list: object, families: object) -> dict[str, Any]:
    """The word list and the masked families as settings; list 0 is none, families come in their usual order."""
    chosen = families if isinstance(families, (list, tuple)) else ()
    return {
        "user_list_id": int(str(user_list or 0)) or None,
        "masked_families": tuple(family for family in FAMILIES if family in chosen),
    }


def control_values(settings: AuditSettings, stored: StoredChoices) -> list[object]:
    """What the controls show for settings; a calibration or a word list that is gone shows as none."""
    families = stored.families if settings.masked_families is None else settings.masked_families
    single = settings.mask_layout == "joint" and len(families) == 1
    values = {name: getattr(settings, name, None) for name in FIELDS}
    for name, known in (("calibration_id", stored.calibrations), ("user_list_id", stored.user_lists)):
        values[name] = values[name] if values[name] in {item.id for item in known} else 0
    values |= {name: values[name] or "" for name, kind in KINDS.items() if kind == "str | None"}
    values["whitelist"] = ", ".join(settings.whitelist)
    values["parameters"] = parameters_text(settings)
    values["mask"] = SINGLE if single else settings.mask_layout
    values["attribute"] = families[0] if single else FAMILIES[0]
    values["masked_families"] = list(stored.families if single else families)
    return list(values.values())


def updates_from(values: list[object], stored: StoredChoices, groups: Sequence[GroupSummary] = ()) -> list[object]:
    """Updates that make the controls show values, with what is stored today to choose from."""
    updates, given = list(values), dict(zip(FIELDS, values, strict=True))
    calibrations = calibration_choices(
        stored.calibrations, layout_from(given), str(given["model"]), str(given["policy"])
    )
    for name, choices in (("calibration_id", calibrations), ("user_list_id", list_choices(stored.user_lists))):
        updates[FIELDS.index(name)] = gr.Dropdown(choices, value=int(str(given[name])))
    updates[FIELDS.index("group")] = group_menu(groups, str(given["group"]))
    return updates


def layout_from(given: dict[str, object]) -> str:
    """Mask layout of the controls' values by field."""
    layouts = info_of(str(given["policy"])).layouts
    return "factorized" if given["mask"] == "factorized" and "factorized" in layouts else "joint"


def group_menu(groups: Sequence[GroupSummary], wanted: str | None) -> gr.Dropdown:
    """The menu of groups, shown where there are any; a group that the calibration does not have shows as none."""
    choices = group_choices(groups)
    known = wanted if wanted in [value for _, value in choices] else ""
    return gr.Dropdown(choices, value=known, visible=bool(groups))


def usual_settings(stored: StoredChoices, calibration: int | None = None, policy: object = None) -> AuditSettings:
    """What a page begins with: the asked-for calibration and policy, else the newest calibration of the usual model."""
    asked = [item for item in stored.calibrations if item.id == calibration]
    of_model = [item for item in stored.calibrations if item.model == stored.model]
    chosen = (asked or [item for item in of_model if item.embedded] or of_model or [None])[0]
    return AuditSettings(
        model=chosen.model if asked and chosen else stored.model,
        policy=known_policy(policy),
        calibration_id=chosen.id if chosen else None,
    )


def model_menu(settings: Settings, **how: Any) -> gr.Dropdown:
    """The menu of models: the embedded one and those of the server's settings; another name may be typed."""
    choices = [("demo, embedded", DEMO), *((name, name) for name in settings.model_names if name != DEMO)]
    return gr.Dropdown(choices, value=settings.model, label="Model", allow_custom_value=True, **how)


def known_policy(asked: object) -> str:
    """The policy that an address asks for; the usual one if there is none of that name."""
    return str(asked) if asked in {item.key for item in KNOWN_POLICIES} else AuditSettings().policy


def method_note(values: Sequence[object]) -> str:
    """What keeps a method from running although each of its parameters can be taken; empty where nothing does."""
    try:
        settings = settings_from(values)
    except ServiceError:
        return ""  # said beside the parameter
    refused = or_refusal(lambda: policy_of(settings, None))
    return html('<p class="wrong" role="status">{{ why }}</p>', why=refused) if isinstance(refused, str) else ""


def calibration_note(view: CalibrationView | str | None, fit: SettingsFit, policy: str) -> str:
    """Badge and lines under the calibration menu; a refusal of its group is shown in place of the calibration."""
    state, text, lines = calibration_status(view, policy)
    return laid_out(
        "shared/calibration_note.html",
        state=state,
        text=text,
        lines=lines,
        misfits=misfit_lines(fit),
    )


def terms(text: object) -> tuple[str, ...]:
    """Comma-separated terms."""
    return tuple(dict.fromkeys(term for part in str(text or "").split(",") if (term := part.strip())))


MASKS = [
    ("All families together", "joint"),
    ("Only one attribute", SINGLE),
    ("One mask for each family", "factorized"),
]
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


FOLDS = {"sampling": "Sampling", "masking": "Masking", "prompt": "Prompt format", "length": "Length and seed"}


def settings_rail(server: Settings, families: tuple[str, ...], defaults: AuditSettings | None = None) -> SettingsRail:
    """Place the controls with their defaults; ``families`` are those that are masked."""
    defaults = defaults or AuditSettings()
    place("shared/railhead.html", "coft.frame.rail(element)")
    put: dict[str, Component] = {}
    put["model"] = model_menu(server)
    model_note = _note()
    method_note = _method(put, defaults)
    tuned_note = _under("tuned-note")
    use_tuned = gr.Button("Use this strength", size="sm", visible=False, elem_id="use-tuned")
    put["mask"] = gr.Dropdown(MASKS, value=defaults.mask_layout, label="Mask", elem_id="mask")
    put["attribute"] = gr.Dropdown(_ATTRIBUTES, value=FAMILIES[0], label="Attribute", elem_id="attribute")
    put["calibration_id"] = gr.Dropdown(calibration_choices(()), value=0, label="Calibration", elem_id="calibration")
    put["group"] = gr.Dropdown([ALL_GROUPS], value="", label="Group", visible=False, elem_id="group")
    calibration_note = _note()
    drift_note = _under("drift-note")
    adopt = gr.Button("Use its settings", size="sm", visible=False, elem_id="adopt")
    own = {
        "user_list_id": {"choices": list_choices(()), "value": 0},
        "masked_families": {"choices": _ATTRIBUTES, "value": list(families)},
    }
    place_settings(put, "strength", defaults)
    for fold, title in FOLDS.items():
        classes = ["fold", "ruled"] if fold == "sampling" else ["fold"]
        with gr.Accordion(title, open=False, elem_classes=classes):
            place_settings(put, fold, defaults, own)
    return SettingsRail(put, model_note, method_note, calibration_note, drift_note, adopt, tuned_note, use_tuned)


def place_settings(
    put: dict[str, Component],
    fold: str,
    defaults: AuditSettings | None = None,
    own: Mapping[str, dict[str, Any]] | None = None,
) -> None:
    """Place the controls of one part of the rail, as they are declared; ``own`` are further arguments by setting."""
    for name, said in SETTINGS.items():
        if said.fold == fold:
            value = getattr(defaults or AuditSettings(), name)
            usual = {"value": "" if KINDS[name] == "str | None" or value == () else value}
            how = {**usual, **(own or {}).get(name, {})}
            put[name] = setting_control(said, elem_id=name.replace("_", "-"), **how)
            if said.hint:
                hint(said.hint, f"{name}-hint")


def setting_control(said: Setting, **how: Any) -> Component:
    """Place the control of a setting as it is declared, but for what ``how`` says."""
    placed: Component = getattr(gr, said.control)(**{"label": said.label, **said.how, **how})
    return placed


def _method(put: dict[str, Component], defaults: AuditSettings) -> gr.HTML:
    """The menu of methods, the parameters of the chosen one, and what is amiss with it."""
    menu = """<div class="method pile close"><label for="policy-menu">Policy</label>
          <select class="select" id="policy-menu" aria-describedby="policy-about"></select>
          <div class="hint about" id="policy-about"></div></div>"""
    for name, value, template, script in (
        ("policy", defaults.policy, menu, "mount"),
        ("parameters", parameters_text(defaults), '<div class="place"></div>', "parameters"),
    ):
        put[name] = gr.HTML(
            value, html_template=template, js_on_load=f"coft.policyMenu.{script}(element, props, watch)",
            apply_default_css=False, elem_id=name, elem_classes=["coft"],
        )  # fmt: skip
    return _under("method-note")


def frame_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """What the controls of :func:`prompt_format` hold, as settings; empty texts are none."""
    return {name: setting_from(name, given[name]) for name in FRAMED}


def prompt_format(put: dict[str, Component]) -> None:
    """How prompts are put before the model; also on the pages that have no rail."""
    place_settings(put, "prompt")


def _under(name: str) -> gr.HTML:
    return gr.HTML(elem_id=name, elem_classes=["coft", "under"], apply_default_css=False)


def _note() -> gr.HTML:
    return gr.HTML(elem_classes=["coft", "note"], apply_default_css=False)
