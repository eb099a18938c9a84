"""How far log-probabilities of one model lie apart between ways of running it: by number type, model and temperature.

Batches, caches and captured graphs add the same numbers in other orders. A token whose log-probability stands nearer to
a threshold than that could be certified on one machine and refused on another.

Each model is measured when it is loaded, on a few tokens (:mod:`coft_core.engine.noise`). The largest difference found
is multiplied by :data:`SAFETY`, since a longer look finds larger ones, and divided by the temperature, which divides
the logits; the bound is never below that of the number type.
"""

from __future__ import annotations

from dataclasses import dataclass

UNKNOWN = "unknown"
"""Number type of what does not say its own."""

FALLBACK = "float32"
"""The type whose bound stands in for types that were not measured."""

MEASURED = {"float32": 0.000022, "float16": 0.022, "bfloat16": 0.16}
"""Largest differences in nats, from ``python -m bench.decode --parts noise``; ``docs/decoding_speed.md`` has them all.

Quantised weights are multiplied in their compute type, which is the one that a model names.
"""

BOUNDS = {"float32": 0.00005, "float16": 0.05, "bfloat16": 0.2}
"""The measured differences in nats, rounded up to the next of 1, 2 and 5 times a power of ten."""

SAFETY = 3.0
"""By how much a long look may exceed the short one of a load; ``docs/decoding_speed.md`` has by how much it did."""


@dataclass(frozen=True, slots=True)
class NumericNoise:
    """The bound that holds for one model's numbers.

    Attributes:
        dtype: Number type that the model computes in, such as ``"bfloat16"``, or :data:`UNKNOWN`.
        nats: Bound on the difference of a log-probability between two ways of running the model.
        measured: Whether it was measured for this type; otherwise it rests on :data:`FALLBACK`'s.
        temperature: The temperature for which it holds.
    """

    dtype: str
    nats: float
    measured: bool
    temperature: float = 1.0

    @property
    def text(self) -> str:
        """The bound in words: ``"0.00005 nats, float32"``, or ``"0.8 nats, bfloat16 at temperature 0.25"``."""
        bound = f"{float(f'{self.nats:.2g}'):.12f}".rstrip("0").rstrip(".")
        at = "" if self.temperature == 1 else f" at temperature {self.temperature:g}"
        if self.measured:
            return f"{bound} nats, {self.dtype}{at}"
        why = "the number type is unknown" if self.dtype == UNKNOWN else f"{self.dtype} was not measured"
        return f"{bound} nats{at}, {FALLBACK}'s, since {why}"


def noise_of(dtype: str | None, temperature: float = 1.0, found: float | None = None) -> NumericNoise:
    """The bound for a number type, and for a model of it that was measured.

    Args:
        dtype: The type without the ``torch.`` prefix; None where it was not recorded.
        temperature: What the logits are divided by.
        found: Largest difference found on the model itself, in nats at temperature 1; None where it was not looked at.
    """
    name = dtype or UNKNOWN
    usual = BOUNDS.get(name, BOUNDS[FALLBACK])
    nats = max(usual, max(usual, SAFETY * (found or 0.0)) / temperature)
    return NumericNoise(name, nats, name in BOUNDS, temperature)
