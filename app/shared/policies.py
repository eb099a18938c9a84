"""The policies that an audit can be decoded with, as pages, commands and services read them, and their menu."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from app.shared.audits import AuditSettings, ParameterValue, PolicyInfo
from app.shared.errors import ServiceError
from coft_core.adapters.shared import chosen_policy
from coft_core.errors import InvalidInputError
from coft_core.policies.base import Parameter, Policy
from coft_core.policies.registry import METHODS, Method

FACTORIZED = "coft-factorized"
"""The method that an audit names by COFT and its mask layout."""

_FIRST = ("coft", "vanilla")


def _info(method: Method) -> PolicyInfo:
    return PolicyInfo(
        key=method.name,
        name=method.title,
        about=(method.summary[0].lower() + method.summary[1:]).rstrip("."),
        fuses=method.fuses,
        certifies=method.calibrated,
        layouts=("joint", "factorized") if method.name == "coft" else ("joint",),
        kind=method.kind,
        source=method.source,
        parameters=method.parameters,
        certified_in=method.certified_in if method.calibrated else "nothing",
        differs=method.differs,
    )


def _place(method: Method) -> int:
    return _FIRST.index(method.name) if method.name in _FIRST else len(_FIRST)


KNOWN_POLICIES: tuple[PolicyInfo, ...] = tuple(
    _info(method) for method in sorted(METHODS, key=_place) if method.name != FACTORIZED
)


_INFO = {item.key: item for item in KNOWN_POLICIES}


def policy_info(key: str) -> PolicyInfo:
    """What is known of a policy."""
    if key not in _INFO:
        raise ServiceError(f"There is no policy {key!r}; choose one of {', '.join(map(repr, _INFO))}.")
    return _INFO[key]


def certifies(settings: AuditSettings) -> bool:
    """Whether the settings' policy reads a calibration; one that is known no longer reads none."""
    return settings.policy in _INFO and _INFO[settings.policy].certifies


def fitted(settings: AuditSettings, policy: str) -> AuditSettings:
    """The settings under a policy: what it does not have is left out, or has its usual value."""
    if policy == FACTORIZED:
        return fitted(replace(settings, mask_layout="factorized"), "coft")
    info = policy_info(policy)
    layout = settings.mask_layout if settings.mask_layout in info.layouts else info.layouts[0]
    known = {item.name for item in info.parameters} if policy == settings.policy else set()
    parameters = tuple((name, value) for name, value in settings.parameters if name in known)
    kept = replace(settings, policy=policy, mask_layout=layout, parameters=parameters)
    return kept if _keeps_calibration(info, settings) else replace(kept, calibration_id=None, group=None)


def _keeps_calibration(info: PolicyInfo, settings: AuditSettings) -> bool:
    """Whether a calibration that was chosen for the settings' policy can be one of another policy at all."""
    if not info.certifies or info.key == settings.policy:
        return info.certifies
    same = info.certified_in == policy_info(settings.policy).certified_in
    return same and (info.fuses or info.certified_in == "factual" or settings.lam == 0)


def parameter_values(info: PolicyInfo, given: Mapping[str, Any]) -> tuple[tuple[str, ParameterValue], ...]:
    """A policy's parameters from what a form, a file or a command holds; values equal to the default are left out."""
    known = {item.name: item for item in info.parameters}
    if unknown := next((name for name in given if name not in known), None):
        offered = f"it has {', '.join(known)}" if known else "it has none of its own"
        raise ServiceError(f"The policy {info.key!r} has no parameter {unknown!r}; {offered}.")
    values = {name: _typed(known[name], raw) for name, raw in given.items()}
    ordered = ((item.name, values[item.name]) for item in info.parameters if item.name in values)
    return tuple((name, value) for name, value in ordered if value is not None and value != known[name].default)


def _typed(parameter: Parameter, raw: Any) -> ParameterValue | None:
    if raw is None or (isinstance(raw, str) and not raw.strip() and parameter.kind != "texts"):
        return None
    value = _parsed(parameter, raw)
    try:
        parameter.check(value)
    except InvalidInputError as error:
        raise ServiceError(str(error)) from error
    return value


def _parsed(parameter: Parameter, raw: Any) -> Any:
    """A raw value in the parameter's type; what cannot be read stays as it is and is refused by the check."""
    if parameter.kind == "texts":
        lines = raw.splitlines() if isinstance(raw, str) else raw
        return (
            tuple(str(line).strip() for line in lines if str(line).strip()) if isinstance(lines, (list, tuple)) else raw
        )
    if parameter.kind == "flag" and isinstance(raw, str):
        return {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}.get(
            raw.strip().lower(), raw
        )
    if parameter.kind in ("number", "whole") and not isinstance(raw, bool):
        try:
            number = float(raw)
        except (TypeError, ValueError):
            return raw
        return int(number) if parameter.kind == "whole" and number.is_integer() else number
    # An instruction before the prompt may end in a line break of its own.
    return raw.strip() if isinstance(raw, str) and parameter.kind != "text" else raw


def info_of(policy: str) -> PolicyInfo:
    """What is known of a policy; a stored one that no longer exists keeps its own name."""
    return _INFO.get(policy) or PolicyInfo(policy, policy, "", True, True, ("joint",))


def policy_name(policy: str) -> str:
    """A policy's name on pages."""
    return info_of(policy).name


def policy_about(policy: str) -> str:
    """What a policy does, and where it was published; empty for one that is known no longer."""
    info = info_of(policy)
    about = f"{info.about[:1].upper()}{info.about[1:]}." if info.about else ""
    return " ".join(part for part in (about, f"{info.source}." if info.source else "") if part)


def own_parameters(settings: AuditSettings) -> tuple[tuple[str, str, bool], ...]:
    """Every parameter of the settings' policy: its title, its value in words, and whether it is the usual one."""
    given = dict(settings.parameters)
    known = info_of(settings.policy).parameters
    lines = [(item.title, value_text(given.get(item.name, item.default)), item.name not in given) for item in known]
    titles = {item.name for item in known}
    return (*lines, *((name, value_text(value), False) for name, value in given.items() if name not in titles))


def parameters_line(settings: AuditSettings) -> str:
    """The parameters that differ from their defaults, in one line; empty where none does."""
    return ", ".join(f"{title} {value}" for title, value, usual in own_parameters(settings) if not usual)


def value_text(value: ParameterValue | None) -> str:
    """A value of a parameter in words."""
    if value is None or value in ("", ()):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return "; ".join(value) if isinstance(value, tuple) else str(value).strip()


KINDS = {
    "fusion": "COFT and its ablations",
    "reference": "Without a method",
    "prompt": "Change the prompt",
    "steering": "Steer logits or activations",
    "constraint": "Refuse tokens",
    "training": "Change the weights",
}
"""What a method acts on, as a heading of the menu."""


def policies_json(known: Sequence[PolicyInfo] = KNOWN_POLICIES) -> list[dict[str, Any]]:
    """Every policy with the declarations of its parameters and its heading, in the menu's order."""
    return [{**asdict(info), "group": KINDS[info.kind]} for info in _ordered(known)]


def policies_shown() -> list[dict[str, Any]]:
    """The same with what fields say of each parameter: ``help`` beside it, ``wanted`` where a value is refused."""
    shown = policies_json()
    for policy, info in zip(shown, _ordered(KNOWN_POLICIES), strict=True):
        for field, declared in zip(policy["parameters"], info.parameters, strict=True):
            field |= {"help": " ".join(filter(None, (declared.help, _usual(declared)))), "wanted": declared.wanted}
    return shown


def parameters_json(settings: AuditSettings) -> dict[str, Any]:
    """The parameters of the settings' policy that differ from their defaults, as plain JSON by name."""
    return {name: _plain(value) for name, value in settings.parameters}


def parameters_text(settings: AuditSettings) -> str:
    """The value of the page's parameters: the policy that they belong to, and what was chosen."""
    value = {"policy": settings.policy, "values": parameters_json(settings)}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def parameters_from(policy: str, text: object) -> tuple[tuple[str, ParameterValue], ...]:
    """What :func:`parameters_text` writes, as settings; parameters of other policies are left out."""
    given = json.loads(str(text)) if text else {}
    values: Mapping[str, Any] = given.get("values", {}) if given.get("policy") == policy else {}
    return parameter_values(policy_info(policy), values)


def _usual(declared: Parameter) -> str:
    """How a field is filled in, and what it holds unless it is."""
    if declared.kind == "flag":
        return f"Usually {'on' if declared.default else 'off'}."
    if declared.kind == "texts":
        return "One a line."
    if declared.kind == "text" or declared.default in (None, ""):
        return ""
    usual = f"usually {_plain(declared.default)}."
    said = f"{declared.span}, {usual}" if declared.span else usual
    return said[0].upper() + said[1:]


def _ordered(known: Sequence[PolicyInfo]) -> list[PolicyInfo]:
    kinds = list(KINDS)
    return sorted(known, key=lambda info: kinds.index(info.kind))


def _plain(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return list(value) if isinstance(value, tuple) else value


def policy_of_text(text: str) -> Policy:
    """The policy of a setting such as ``coft,lam=0.6,calibration=/path/to/file.zip``."""
    name, *pairs = (part.strip() for part in text.split(","))
    options = {}
    for pair in pairs:
        option, separator, value = pair.partition("=")
        if not separator:
            raise ServiceError(f"{pair!r} is not an option of a policy; write name=value, such as lam=0.6.")
        options[option.strip()] = value.strip()
    return chosen_policy(name, options)
