"""The settings rail's values: the way from the controls to :class:`AuditSettings` and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import gradio as gr

from app.services.errors import ServiceError
from app.services.known_policies import KNOWN_POLICIES, fitted
from app.services.policy_choice import policy_of
from app.services.policy_words import info_of
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
from app.ui.errors import or_refusal
from app.ui.presenters_fit import calibration_choices, calibration_status, group_choices, misfit_lines
from app.ui.presenters_policies import parameters_from, parameters_text
from app.ui.presenters_session import list_choices

FIELDS = (
    "model", "policy", "calibration_id", "lam", "alpha", "temperature", "top_p", "top_k", "greedy", "sentinel",
    "max_new_tokens", "seed", "user_list_id", "masked_families", "mask", "attribute", "mask_mode", "mask_hint",
    "whitelist", "group", "prompt_format", "chat_date", "parameters",
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
    """The controls' values as settings; an empty text, calibration 0 and group ``""`` are none.

    What the chosen policy does not have, and the rail hides, is left out.

    Raises:
        ServiceError: A parameter of the policy cannot be taken; the sentence names it.
    """
    given = dict(zip(FIELDS, values, strict=True))
    policy = str(given["policy"])
    mask, attribute = given.pop("mask"), str(given.pop("attribute") or FAMILIES[0])
    families = [attribute] if mask == SINGLE else given["masked_families"]
    given["mask_layout"] = "factorized" if mask == "factorized" else "joint"
    given["parameters"] = parameters_from(policy, given["parameters"])
    given["calibration_id"] = int(str(given["calibration_id"] or 0)) or None
    given["whitelist"] = terms(given["whitelist"])
    for name in ("sentinel", "mask_hint", "group", "chat_date"):
        given[name] = str(given[name] or "").strip() or None
    if given["mask_mode"] == "hard":
        given["mask_hint"] = None
    for name in ("top_k", "max_new_tokens", "seed"):
        given[name] = int(float(str(given[name] or 0)))
    given.update(masking_from(given["user_list_id"], families))
    return fitted(AuditSettings(**given, proceed_uncertified=proceed), policy)  # type: ignore[arg-type]


def without_parameters(values: Sequence[object]) -> list[object]:
    """The controls' values with the policy's own parameters at their defaults, for what does not depend on them.

    What a reviewer is still typing is told beside its field, and holds nothing else up.
    """
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


def control_values(settings: AuditSettings, stored: Stored) -> list[object]:
    """What the controls show for settings; a calibration or a word list that is gone shows as none."""
    families = stored.families if settings.masked_families is None else settings.masked_families
    single = settings.mask_layout == "joint" and len(families) == 1
    values = {name: getattr(settings, name, None) for name in FIELDS}
    if settings.calibration_id not in {item.id for item in stored.calibrations}:
        values["calibration_id"] = 0
    if settings.user_list_id not in {item.id for item in stored.user_lists}:
        values["user_list_id"] = 0
    for name in ("sentinel", "mask_hint", "group", "chat_date"):
        values[name] = getattr(settings, name) or ""
    values["whitelist"] = ", ".join(settings.whitelist)
    values["parameters"] = parameters_text(settings)
    values["mask"] = SINGLE if single else settings.mask_layout
    values["attribute"] = families[0] if single else FAMILIES[0]
    values["masked_families"] = list(stored.families if single else families)
    return list(values.values())


def updates_from(values: list[object], stored: Stored, groups: Sequence[GroupSummary] = ()) -> list[object]:
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


def default_calibration(found: tuple[CalibrationSummary, ...], wanted: int | None) -> int | None:
    """The asked-for calibration, else the embedded one, else none."""
    ids = [item.id for item in found]
    if wanted in ids:
        return wanted
    return next((item.id for item in found if item.embedded), None)


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
    return f'<p class="wrong" role="status">{escape(refused)}</p>' if isinstance(refused, str) else ""


def calibration_note(view: CalibrationView | str | None, fit: SettingsFit, policy: str) -> str:
    """Badge and lines under the calibration menu; a refusal of its group stands in place of the calibration."""
    state, text, lines = calibration_status(view, policy)
    extra = "".join(f'<p class="hint tnum">{escape(line)}</p>' for line in lines)
    rows = "".join(f"<li>{icon('tri')}<span>{escape(line)}</span></li>" for line in misfit_lines(fit))
    cautions = f'<ul class="cautions fit">{rows}</ul>' if rows else ""
    return f"<p>{badge(state, text)}</p>{extra}{cautions}"


def terms(text: object) -> tuple[str, ...]:
    """Comma-separated terms."""
    return tuple(dict.fromkeys(term for part in str(text or "").split(",") if (term := part.strip())))
