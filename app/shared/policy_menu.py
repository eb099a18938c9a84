"""Decoding policies as the browser draws them: the menu, and the parameters of each from their declarations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from app.shared.audits import AuditSettings, ParameterValue, PolicyInfo
from app.shared.format import level
from app.shared.policies import (
    KNOWN_POLICIES,
    info_of,
    own_parameters,
    parameter_values,
    parameters_line,
    policy_about,
    policy_info,
)
from coft_core.policies.base import Parameter

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
    """The value of the page's parameters: the policy that they belong to, and what was chosen.

    Numbers are written as a browser writes them, so that what was stored and what is shown compare equal.
    """
    value = {"policy": settings.policy, "values": parameters_json(settings)}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def parameters_from(policy: str, text: object) -> tuple[tuple[str, ParameterValue], ...]:
    """What :func:`parameters_text` writes, as settings; parameters of other policies are left out."""
    given = json.loads(str(text)) if text else {}
    values: Mapping[str, Any] = given.get("values", {}) if given.get("policy") == policy else {}
    return parameter_values(policy_info(policy), values)


def method_facts(settings: AuditSettings) -> dict[str, Any]:
    """The method of an audit for the head of its transcript: a line, what it does, and all its parameters."""
    info = info_of(settings.policy)
    strengths = [f"λ {settings.lam:.2f}"] if info.fuses else []
    strengths += [f"α {level(settings.alpha)}"] if info.certifies and settings.calibration_id is not None else []
    changed = parameters_line(settings)
    return {
        "line": ", ".join([info.name, *strengths, *([changed] if changed else [])]),
        "about": policy_about(settings.policy),
        "fuses": info.fuses,
        "parameters": [
            [title, f"{value} (default)" if usual else value] for title, value, usual in own_parameters(settings)
        ],
    }


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
