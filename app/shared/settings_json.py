"""What programs and pages give, read as settings, numbers and choices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from app.shared.audits import AuditSettings
from app.shared.errors import ServiceError
from app.shared.operations import Json, Read, checked, record
from app.shared.policies import parameter_values, policy_info
from coft_core.types import Span

COLUMNS = "columns"
"""The one setting of a calibration, a batch or a comparison that belongs to its file."""


def settings_from_json(given: Json | None, others: tuple[str, ...] = ()) -> AuditSettings:
    """Settings from JSON, the policy's own parameters as an object; ``others`` are read elsewhere."""
    plain = {name: value for name, value in (given or {}).items() if name != "parameters"}
    settings = record(AuditSettings, plain, others=others)
    parameters = (given or {}).get("parameters") or {}
    if not isinstance(parameters, dict):
        raise ServiceError('The setting "parameters" must be an object with a value by name, such as {"strength": 2}.')
    values = parameter_values(policy_info(settings.policy), parameters)
    return record(AuditSettings, plain, parameters=values)


def columns_of(given: Json | None) -> dict[str, str] | None:
    """Column by field of a prompt set, from the same JSON; None reads each field from the column of its name."""
    columns = (given or {}).get(COLUMNS)
    if columns is not None and not isinstance(columns, dict):
        raise ServiceError('The setting "columns" must name a column for a field: {"prompt": "question"}.')
    return None if columns is None else checked("The setting columns", dict[str, str], columns)


def spans_from_json(given: list[Json] | None) -> tuple[Span, ...] | None:
    """Spans in their order; None lets the detector find them."""
    return None if given is None else tuple(sorted(record(Span, item, what="span's field") for item in given))


Settings = Annotated[AuditSettings, Read(settings_from_json)]
"""An argument with the settings of an audit."""

USUAL = AuditSettings()


WHOLE = "a whole number"


def decimal(given: Mapping[str, Any], name: str, called: str = "", kind: str = "a number") -> float:
    """A number; ``called`` is what the sentence that refuses it calls it."""
    refused = ServiceError(f"The {called or name} cannot be {given.get(name)!r}; give {kind}.")
    try:
        value = float(given[name])
    except (KeyError, TypeError, ValueError) as error:
        raise refused from error
    if not math.isfinite(value) or (kind == WHOLE and value != int(value)):
        raise refused
    return value


def whole(given: Mapping[str, Any], name: str, called: str = "", usual: int | None = None) -> int:
    """A whole number; ``usual`` where the page sends none."""
    if usual is not None and given.get(name) is None:
        return usual
    return int(decimal(given, name, called, WHOLE))


def one_of(given: Mapping[str, Any], name: str, choices: Sequence[str], usual: str = "") -> str:
    """One of several names; ``usual`` where the page sends none."""
    value = str(given.get(name) or usual)
    if value not in choices:
        raise ServiceError(f"There is no {name} {value!r}; choose one of {', '.join(filter(None, choices))}.")
    return value
