"""A policy in words: its name, what it does, and the parameters that it was given. Pages and reports say the same."""

from __future__ import annotations

from app.services.known_policies import KNOWN_POLICIES
from app.services.views.audits import AuditSettings, ParameterValue
from app.services.views.policies import PolicyInfo

_INFO = {item.key: item for item in KNOWN_POLICIES}


def info_of(policy: str) -> PolicyInfo:
    """What is known of a policy; a stored one that is known no longer stands under its own name."""
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
    """Every parameter of the settings' policy: its title, its value in words, and whether it is the usual one.

    A parameter that the policy no longer declares stands under its own name.
    """
    given = dict(settings.parameters)
    known = info_of(settings.policy).parameters
    found = [(item.title, value_text(given.get(item.name, item.default)), item.name not in given) for item in known]
    titles = {item.name for item in known}
    return (*found, *((name, value_text(value), False) for name, value in given.items() if name not in titles))


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
