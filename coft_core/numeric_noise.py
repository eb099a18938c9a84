"""How far log-probabilities of one model lie apart between ways of running it, by number type.

Batches, caches and captured graphs add the same numbers in other orders. A token whose log-probability stands nearer to
a threshold than that could be certified on one machine and refused on another.
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


@dataclass(frozen=True, slots=True)
class NumericNoise:
    """The bound that holds for one model's numbers.

    Attributes:
        dtype: Number type that the model computes in, such as ``"bfloat16"``, or :data:`UNKNOWN`.
        nats: Bound on the difference of a log-probability between two ways of running the model.
        measured: Whether it was measured for this type; otherwise it is :data:`FALLBACK`'s.
    """

    dtype: str
    nats: float
    measured: bool

    @property
    def text(self) -> str:
        """The bound in words: ``"0.00005 nats, float32"``."""
        bound = f"{self.nats:f}".rstrip("0")
        if self.measured:
            return f"{bound} nats, {self.dtype}"
        why = "the number type is unknown" if self.dtype == UNKNOWN else f"{self.dtype} was not measured"
        return f"{bound} nats, {FALLBACK}'s, since {why}"


def noise_of(dtype: str | None) -> NumericNoise:
    """The bound of a number type.

    Args:
        dtype: The type without the ``torch.`` prefix; None where it was not recorded.
    """
    name = dtype or UNKNOWN
    return NumericNoise(name, BOUNDS.get(name, BOUNDS[FALLBACK]), name in BOUNDS)
