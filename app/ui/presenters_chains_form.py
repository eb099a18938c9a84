"""What the compare page is given: columns and sessions, as the browser names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.services.errors import ServiceError
from app.services.known_policies import parameter_values, policy_info
from app.services.views import AuditSettings

WHOLE = ("max_new_tokens", "top_k", "seed")
DECIMAL = ("temperature", "top_p")
NAMES = {"max_new_tokens": "number of steps", "top_k": "top-k", "top_p": "top-p", "lam": "lambda"}


def columns_from(shared: Mapping[str, Any], columns: Sequence[Mapping[str, Any]]) -> tuple[AuditSettings, ...]:
    """The settings of each column.

    Args:
        shared: What all columns have in common: ``model``, ``max_new_tokens``, ``seed``, ``temperature``, ``top_p``,
            ``top_k`` and ``greedy``.
        columns: By column ``policy``, ``lam``, ``alpha``, ``calibration`` (0 for none), ``layout``, ``proceed`` and
            ``parameters``, the policy's own by name.

    Raises:
        ServiceError: A field that must hold a number holds none, there is no such policy, or a parameter cannot take
            its value.
    """
    return tuple(_column(shared, given, place) for place, given in enumerate(columns, 1))


def _column(shared: Mapping[str, Any], given: Mapping[str, Any], place: int) -> AuditSettings:
    everywhere: dict[str, Any] = {name: _whole(shared, name, "") for name in WHOLE}
    everywhere |= {name: _decimal(shared, name, "") for name in DECIMAL}
    where = f" of column {place}"
    info = policy_info(str(given.get("policy") or ""))
    try:
        parameters = parameter_values(info, given.get("parameters") or {})
    except ServiceError as error:
        raise ServiceError(f"Column {place}: {error}") from error
    # A policy without lambda or thresholds has no fields for them; what stood there before counts for nothing.
    own: dict[str, Any] = {"lam": _decimal(given, "lam", where)} if info.fuses else {}
    own |= {"alpha": _decimal(given, "alpha", where)} if info.certifies else {}
    calibration = _whole(given, "calibration", where) or None if info.certifies else None
    return AuditSettings(
        model=str(shared.get("model") or "demo").strip(),
        policy=info.key,
        calibration_id=calibration,
        parameters=parameters,
        mask_layout=str(given.get("layout") or "joint"),
        proceed_uncertified=bool(given.get("proceed")),
        greedy=bool(shared.get("greedy")),
        **own,
        **everywhere,
    )


def chains_from(items: Sequence[Sequence[Any]]) -> tuple[tuple[int, ...], tuple[int | None, ...]]:
    """Sessions and branches as the browser names them; a missing branch is the active one."""
    sessions = tuple(int(item[0]) for item in items)
    return sessions, tuple(None if item[1] is None else int(item[1]) for item in items)


def _decimal(given: Mapping[str, Any], name: str, where: str) -> float:
    try:
        return float(given[name])
    except (KeyError, TypeError, ValueError) as error:
        raise _not_a_number(name, where) from error


def _whole(given: Mapping[str, Any], name: str, where: str) -> int:
    value = _decimal(given, name, where)
    if value != int(value):
        raise _not_a_number(name, where)
    return int(value)


def _not_a_number(name: str, where: str) -> ServiceError:
    kind = "whole number" if name in WHOLE else "number"
    return ServiceError(f"The {NAMES.get(name, name)}{where} is no {kind}; write one.")
