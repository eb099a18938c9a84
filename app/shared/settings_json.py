"""What the endpoints are given: settings as JSON."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from app.batch.service import BatchRequest
from app.compare.types import SetRequest
from app.shared.audits import AuditSettings, CalibrationRequest
from app.shared.errors import ServiceError
from app.shared.policies import parameter_values, policy_info

COLUMNS = "columns"
"""The one setting of a calibration or a batch that belongs to its file."""

BATCH = ("accept_errors", "same_seed", "group_thresholds")
"""Settings of a batch that no single audit has, its name apart."""


@dataclass(frozen=True, slots=True)
class UserListRequest:
    """How an uploaded word list is stored; action and family are for terms that name none."""

    name: str
    action: str = "mask"
    family: str = "other"
    replace: bool = False


def settings_from_json(given: dict[str, Any] | None) -> AuditSettings:
    """Settings from JSON.

    Raises:
        ServiceError: There is no such setting, policy or parameter, or a parameter cannot take its value.
    """
    own = _known(given, AuditSettings)
    asked = (given or {}).get("parameters") or {}
    if not isinstance(asked, dict):
        raise ServiceError('The setting "parameters" must be an object with a value by name, such as {"strength": 2}.')
    info = policy_info(str(own.get("policy", AuditSettings().policy)))
    return AuditSettings(**{**own, "parameters": parameter_values(info, asked)})


def calibration_request(name: str, given: dict[str, Any] | None) -> CalibrationRequest:
    """A calibration request from JSON; raises ServiceError for a name that does not exist."""
    settings = {key: value for key, value in (given or {}).items() if key != COLUMNS}
    shares = settings.get("alpha_by_family")
    if isinstance(shares, dict):
        settings["alpha_by_family"] = list(shares.items())
    return CalibrationRequest(**{"name": name, **_known(settings, CalibrationRequest)})


def columns_of(given: dict[str, Any] | None) -> dict[str, str] | None:
    """Column by field of a prompt set, from the same JSON; None reads each field from the column of its name."""
    found = (given or {}).get(COLUMNS)
    if found is not None and not isinstance(found, dict):
        raise ServiceError('The setting "columns" must name a column for a field: {"prompt": "question"}.')
    return found


def batch_request(name: str, given: dict[str, Any] | None) -> BatchRequest:
    """A batch from JSON, in which its own settings stand beside those of its sessions.

    Raises:
        ServiceError: A setting does not exist.
    """
    settings = {key: value for key, value in (given or {}).items() if key != COLUMNS}
    batch = {key: settings.pop(key) for key in ("name", *BATCH) if key in settings}
    names = [*(item.name for item in fields(AuditSettings)), "name", *BATCH, COLUMNS]
    unknown = sorted(set(settings) - set(names))
    if unknown:
        raise ServiceError(f"There is no setting {unknown[0]!r}; the settings are {', '.join(names)}.")
    return BatchRequest(**{"name": name, **batch, "settings": settings_from_json(settings)})


def set_request(name: str, given: dict[str, Any] | None) -> SetRequest:
    """A comparison over a prompt set from JSON: settings of all columns, and under ``compare`` those of each.

    Raises:
        ServiceError: A setting does not exist, or the columns are no list of objects.
    """
    everywhere = {key: value for key, value in (given or {}).items() if key != COLUMNS}
    own = {key: everywhere.pop(key) for key in ("name", "accept_errors") if key in everywhere}
    columns = everywhere.pop("compare", None)
    if not isinstance(columns, list) or not all(isinstance(item, dict) for item in columns):
        raise ServiceError('The setting "compare" must list the columns: [{"policy": "vanilla"}, {"policy": "coft"}].')
    return SetRequest(
        name=str(own.get("name") or name),
        columns=tuple(settings_from_json({**everywhere, **item}) for item in columns),
        accept_errors=bool(own.get("accept_errors")),
    )


def user_list_request(name: str, given: dict[str, Any] | None) -> UserListRequest:
    """How a word list is stored, from JSON; raises ServiceError for a name that does not exist."""
    return UserListRequest(**{"name": name, **_known(given, UserListRequest)})


def _known(given: dict[str, Any] | None, kind: type) -> dict[str, Any]:
    names = [item.name for item in fields(kind)]
    unknown = sorted(set(given or {}) - set(names))
    if unknown:
        raise ServiceError(f"There is no setting {unknown[0]!r}; the settings are {', '.join(names)}.")
    # JSON knows no tuples, and settings are frozen.
    return {name: _tuples(value) for name, value in (given or {}).items()}


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, (list, tuple)) else value
