"""What operations are given as plain JSON, read as the services' own requests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from app.shared.audits import AuditSettings, CalibrationRequest
from app.shared.errors import ServiceError
from app.shared.files import decode, plain_json, read_bytes
from app.shared.operations import Json, Read, checked, record
from app.shared.policies import parameter_values, policy_info
from coft_core.text.turns import conversation_from
from coft_core.types import Span

MOST_BYTES = 20_000_000
"""Largest file of messages that is read."""

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


def calibration_request(name: str, given: Json | None) -> CalibrationRequest:
    """A calibration request from JSON."""
    settings = dict(given or {})
    if isinstance(shares := settings.get("alpha_by_family"), dict):
        settings["alpha_by_family"] = list(shares.items())
    return record(CalibrationRequest, settings, others=(COLUMNS,), name=name)


def columns_of(given: Json | None) -> dict[str, str] | None:
    """Column by field of a prompt set, from the same JSON; None reads each field from the column of its name."""
    columns = (given or {}).get(COLUMNS)
    if columns is not None and not isinstance(columns, dict):
        raise ServiceError('The setting "columns" must name a column for a field: {"prompt": "question"}.')
    return None if columns is None else checked("The setting columns", dict[str, str], columns)


def spans_from_json(given: list[Json] | None) -> tuple[Span, ...] | None:
    """Spans in their order; None lets the detector find them."""
    return None if given is None else tuple(sorted(record(Span, item, what="span's field") for item in given))


def asked_prompt(prompt: str, messages: object) -> str:
    """The prompt, or the conversation that is given in its place."""
    if messages is not None and prompt.strip():
        raise ServiceError("A prompt and messages are given; give one of them.")
    if messages is None and not prompt.strip():
        raise ServiceError("The prompt is empty; type at least one word, or give messages.")
    return prompt if messages is None else conversation_from(messages)[0]


def read_messages(file: Path) -> object:
    """What a JSON file with messages holds."""
    try:
        return plain_json(decode(read_bytes(file, file.name, MOST_BYTES), file.name))
    except (ValueError, RecursionError) as error:
        raise ServiceError(f"{file.name} is no JSON ({error}).") from error


Settings = Annotated[AuditSettings, Read(settings_from_json)]
"""An argument with the settings of an audit."""

USUAL = AuditSettings()
