"""The settings rail's values: the way from the controls to :class:`AuditSettings` and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import gradio as gr

from app.services.views import (
    FAMILIES,
    AuditSettings,
    CalibrationSummary,
    CalibrationView,
    GroupSummary,
    SettingsFit,
    UserListSummary,
)
from app.ui.components.markup import badge, icon
from app.ui.presenters_fit import calibration_choices, calibration_status, group_choices, misfit_lines
from app.ui.presenters_form import terms
from app.ui.presenters_session import list_choices

FIELDS = (
    "model", "policy", "calibration_id", "lam", "alpha", "temperature", "top_p", "top_k", "greedy", "sentinel",
    "max_new_tokens", "seed", "user_list_id", "masked_families", "mask", "attribute", "mask_mode", "mask_hint",
    "whitelist", "group",
)  # fmt: skip
"""The controls in their order; ``mask`` and ``attribute`` stand for layout and families together."""

SINGLE = "single"
"""A mask of one attribute alone: the joint layout with one masked family."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What the store offers for a choice today, and the families that are masked unless settings say otherwise."""

    calibrations: tuple[CalibrationSummary, ...]
    user_lists: tuple[UserListSummary, ...]
    families: tuple[str, ...]


def settings_from(values: Sequence[object], proceed: bool = False) -> AuditSettings:
    """The controls' values as settings; an empty text, calibration 0 and group ``""`` are none."""
    given = dict(zip(FIELDS, values, strict=True))
    mask, attribute = given.pop("mask"), str(given.pop("attribute") or FAMILIES[0])
    families = [attribute] if mask == SINGLE else given["masked_families"]
    # Vanilla decoding watches one masked reading; the rail hides the choice then.
    given["mask_layout"] = "factorized" if mask == "factorized" and given["policy"] != "vanilla" else "joint"
    given["calibration_id"] = int(str(given["calibration_id"] or 0)) or None
    given["whitelist"] = terms(given["whitelist"])
    for name in ("sentinel", "mask_hint", "group"):
        given[name] = str(given[name] or "").strip() or None
    if given["mask_mode"] == "hard":
        given["mask_hint"] = None
    for name in ("top_k", "max_new_tokens", "seed"):
        given[name] = int(float(str(given[name] or 0)))
    given.update(masking_from(given["user_list_id"], families))
    return AuditSettings(**given, proceed_uncertified=proceed)  # type: ignore[arg-type]


def kept_settings(values: object, otherwise: AuditSettings) -> AuditSettings:
    """Settings that a page has kept over a reload; those of another version of the program are left out."""
    if not isinstance(values, list) or len(values) != len(FIELDS):
        return otherwise
    try:
        return settings_from(values)
    except (TypeError, ValueError):
        return otherwise


def masking_from(user_list: object, families: object) -> dict[str, Any]:
    """The word list and the masked families as settings; list 0 is none, families come in their usual order."""
    chosen = families if isinstance(families, (list, tuple)) else ()
    return {
        "user_list_id": int(str(user_list or 0)) or None,
        "masked_families": tuple(family for family in FAMILIES if family in chosen),
    }


def control_values(settings: AuditSettings, stored: Stored) -> list[object]:
    """What the controls show for settings; a calibration or a word list that is gone shows as none."""
    families = stored.families if settings.masked_families is None else settings.masked_families
    single = settings.mask_layout == "joint" and len(families) == 1
    values = {name: getattr(settings, name, None) for name in FIELDS}
    if settings.calibration_id not in {item.id for item in stored.calibrations}:
        values["calibration_id"] = 0
    if settings.user_list_id not in {item.id for item in stored.user_lists}:
        values["user_list_id"] = 0
    for name in ("sentinel", "mask_hint", "group"):
        values[name] = getattr(settings, name) or ""
    values["whitelist"] = ", ".join(settings.whitelist)
    values["mask"] = SINGLE if single else settings.mask_layout
    values["attribute"] = families[0] if single else FAMILIES[0]
    values["masked_families"] = list(stored.families if single else families)
    return list(values.values())


def updates_from(values: list[object], stored: Stored, groups: Sequence[GroupSummary] = ()) -> list[object]:
    """Updates that make the controls show values, with what is stored today to choose from."""
    updates, given = list(values), dict(zip(FIELDS, values, strict=True))
    calibrations = calibration_choices(stored.calibrations, layout_from(given), str(given["model"]))
    for name, choices in (("calibration_id", calibrations), ("user_list_id", list_choices(stored.user_lists))):
        updates[FIELDS.index(name)] = gr.Dropdown(choices, value=int(str(given[name])))
    updates[FIELDS.index("group")] = group_menu(groups, str(given["group"]))
    return updates


def layout_from(given: dict[str, object]) -> str:
    """Mask layout of the controls' values by field."""
    return "factorized" if given["mask"] == "factorized" else "joint"


def group_menu(groups: Sequence[GroupSummary], wanted: str | None) -> gr.Dropdown:
    """The menu of groups, shown where there are any; a group that the calibration does not have shows as none."""
    choices = group_choices(groups)
    known = wanted if wanted in [value for _, value in choices] else ""
    return gr.Dropdown(choices, value=known, visible=bool(groups))


def default_calibration(found: tuple[CalibrationSummary, ...], wanted: int | None) -> int | None:
    """The asked-for calibration, else the embedded one, else none."""
    ids = [item.id for item in found]
    if wanted in ids:
        return wanted
    return next((item.id for item in found if item.embedded), None)


def calibration_note(view: CalibrationView | str | None, fit: SettingsFit) -> str:
    """Badge and lines under the calibration menu; a refusal of its group stands in place of the calibration."""
    state, text, lines = calibration_status(view)
    extra = "".join(f'<p class="hint tnum">{escape(line)}</p>' for line in lines)
    rows = "".join(f"<li>{icon('tri')}<span>{escape(line)}</span></li>" for line in misfit_lines(fit))
    cautions = f'<ul class="cautions fit">{rows}</ul>' if rows else ""
    return f"<p>{badge(state, text)}</p>{extra}{cautions}"
