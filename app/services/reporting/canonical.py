"""JSON text that depends on its content alone, for documents and their digests."""

from __future__ import annotations

import json
import math
from datetime import datetime


def canonical(value: object, indent: int | None = None) -> str:
    """JSON text that depends on the content alone: ASCII, keys sorted, infinities as text.

    Args:
        value: Numbers, text, times, and tuples, lists and dictionaries of them.
        indent: Spaces a level; None writes one line without spaces.

    Raises:
        ValueError: A number is NaN.
    """
    separators = (",", ":") if indent is None else None
    plain = _plain(value)
    return json.dumps(
        plain, ensure_ascii=True, allow_nan=False, indent=indent, sort_keys=indent is None, separators=separators
    )


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value
