"""Numbers and choices as a page sends them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from app.shared.errors import ServiceError

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
