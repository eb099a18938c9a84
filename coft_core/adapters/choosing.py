"""A policy from what another program's options say of it: plain values by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from coft_core.conformal.calibration import Calibration
from coft_core.errors import InvalidInputError
from coft_core.policies.base import Parameter, Policy
from coft_core.policies.registry import method

CALIBRATED = ("lam", "temperature", "top_p", "top_k")
"""Controls that a calibration was made for, and which it therefore sets where nothing else is said."""

TRUE, FALSE = ("true", "yes", "on"), ("false", "no", "off")


def chosen_policy(name: str, options: Mapping[str, Any]) -> Policy:
    """A policy by its name and options.

    Args:
        name: Name of the method, as in the registry.
        options: ``calibration`` (path of a saved one), ``alpha`` (a risk level to read it at), ``lam``, the sampling
            and mask controls, ``accept_mismatch``, and the method's own parameters; values may be texts. What a
            calibration was made for holds where nothing else is said.

    Raises:
        InvalidInputError: The method or an option is unknown, or a value cannot be taken.
        CalibrationFormatError: The calibration cannot be read.
    """
    chosen = method(name)
    given = {key: value for key, value in options.items() if value is not None}
    path, alpha = given.pop("calibration", None), given.pop("alpha", None)
    own = {item.name: item for item in chosen.parameters}
    known = {item.name for item in fields(chosen.policy) if item.init and not item.name.startswith("method_")}
    if unknown := sorted(set(given) - known):
        raise InvalidInputError(
            f"The policy {name!r} has no option {unknown[0]!r}; it has {', '.join(sorted(known | {'alpha'}))}."
        )
    parameters = {key: _parameter(own[key], given[key]) for key in given if key in own}
    controls = {key: _control(key, value) for key, value in given.items() if key not in own}
    if path is not None:
        if not chosen.calibrated:
            raise InvalidInputError(f"The policy {name!r} takes no calibration; leave it out.")
        try:
            calibration = Calibration.from_bytes(Path(str(path)).expanduser().read_bytes())
        except OSError as error:
            raise InvalidInputError(f"The calibration {str(path)!r} cannot be read ({error.strerror}).") from error
        made_for = {key: getattr(calibration.fingerprint, key) for key in CALIBRATED if key in known}
        controls = {**made_for, **controls, "calibration": calibration}
    policy = chosen.build(parameters, **controls)
    return policy if alpha is None else policy.changed(None, float(alpha), None)


def _parameter(parameter: Parameter, value: Any) -> Any:
    """A value in the parameter's type; what cannot be read stays as it is and is refused by its check."""
    if parameter.kind == "texts":
        return (value,) if isinstance(value, str) else tuple(value)
    if parameter.kind == "flag" and isinstance(value, str):
        return _flag(value)
    if parameter.kind in ("number", "whole") and isinstance(value, str):
        return _number(value)
    return str(value) if parameter.kind in ("text", "choice", "model", "file") else value


def _control(name: str, value: Any) -> Any:
    if name == "whitelist":
        return tuple(value.split(";")) if isinstance(value, str) else tuple(value)
    if name == "accept_mismatch" and isinstance(value, str):
        return _flag(value)
    if name in CALIBRATED and isinstance(value, str):
        return _number(value)
    return value


def _flag(value: str) -> Any:
    word = value.strip().lower()
    return True if word in TRUE else False if word in FALSE else value


def _number(value: str) -> Any:
    try:
        number = float(value)
    except ValueError as error:
        raise InvalidInputError(f"{value!r} is no number; write it in digits.") from error
    return int(number) if value.strip().lstrip("+-").isdigit() else number
