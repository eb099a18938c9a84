"""What the endpoints are given: settings as JSON."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from app.services.errors import ServiceError
from app.services.views import AuditSettings, CalibrationRequest


@dataclass(frozen=True, slots=True)
class UserListRequest:
    """How an uploaded word list is stored; action and family are for terms that name none."""

    name: str
    action: str = "mask"
    family: str = "other"
    replace: bool = False


def audit_settings(given: dict[str, Any] | None) -> AuditSettings:
    """Settings from JSON; raises ServiceError for a name that does not exist."""
    return AuditSettings(**_known(given, AuditSettings))


def calibration_request(name: str, given: dict[str, Any] | None) -> CalibrationRequest:
    """A calibration request from JSON; raises ServiceError for a name that does not exist."""
    return CalibrationRequest(**{"name": name, **_known(given, CalibrationRequest)})


def user_list_request(name: str, given: dict[str, Any] | None) -> UserListRequest:
    """How a word list is stored, from JSON; raises ServiceError for a name that does not exist."""
    return UserListRequest(**{"name": name, **_known(given, UserListRequest)})


def _known(given: dict[str, Any] | None, kind: type) -> dict[str, Any]:
    names = [item.name for item in fields(kind)]
    unknown = sorted(set(given or {}) - set(names))
    if unknown:
        raise ServiceError(f"There is no setting {unknown[0]!r}; the settings are {', '.join(names)}.")
    # JSON knows no tuples, and settings are frozen.
    return {name: tuple(value) if isinstance(value, list) else value for name, value in (given or {}).items()}
