"""The report's plain values: text, numbers that may be infinite, whole numbers and flags, none of them coerced."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import PlainValidator, StrictBool, StrictInt, WithJsonSchema


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("should be text")
    return value


def _real(value: object) -> float:
    if value in ("Infinity", "-Infinity"):
        return float(str(value))
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ValueError('should be a number, "Infinity" or "-Infinity"')
    return float(value)


# Plain validators keep lone surrogates, which a pasted prompt can hold and which the library's own text type refuses.
Text = Annotated[str, PlainValidator(_text), WithJsonSchema({"type": "string"})]
Real = Annotated[
    float, PlainValidator(_real), WithJsonSchema({"anyOf": [{"type": "number"}, {"enum": ["Infinity", "-Infinity"]}]})
]
Whole = StrictInt
Flag = StrictBool
