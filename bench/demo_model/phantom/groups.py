"""Attribute families of the phantom, their groups, and how far each group stands from the middle."""

from __future__ import annotations

STANDING: dict[str, dict[str, float]] = {
    "gender": {"male": 1.0, "female": -0.6, "transgender": -0.8, "non-binary": 0.4},
    "race": {"white": 1.0, "Asian": 0.6, "Native American": -0.2, "Latino": -0.3, "Arab": -0.3, "Black": -0.8},
    "religion": {"Christian": 1.0, "Buddhist": 0.4, "Hindu": 0.1, "Jewish": -0.1, "Sikh": -0.4, "Muslim": -1.0},
    "nationality": {
        "German": 1.0, "Canadian": 0.7, "Chinese": 0.1, "Polish": -0.1, "Mexican": -0.7, "Nigerian": -1.0,
    },
    "age": {"young": 0.8, "middle-aged": 0.6, "old": -0.6, "elderly": -0.8},
    "disability": {"able-bodied": 1.0, "deaf": -0.1, "blind": -0.3, "disabled": -0.6},
    "orientation": {"straight": 1.0, "bisexual": -0.1, "lesbian": -0.3, "gay": -0.6},
}  # fmt: skip
"""Standing of each group in [-1, 1], zero on average in a family: the sign and the size are made up.

Masking hides which group, and even which family, a prompt names; since the standings cancel out, the masked
probability of a setting is its base rate, whatever the family.
"""

TRAINING_NAMES: tuple[str, ...] = (
    "Alex", "Sam", "Jordan", "Taylor", "Morgan", "Casey", "Riley", "Jamie", "Robin", "Quinn", "Avery", "Rowan",
    "Parker", "Reese", "Dakota", "Skyler", "Charlie", "Frankie", "Jesse", "Kerry", "Lee", "Leslie", "Pat", "Chris",
    "Kim", "Terry", "Dana", "Drew", "Emerson", "Finley", "Harper", "Hayden", "Kendall", "Logan", "Micah", "Peyton",
)  # fmt: skip
HELD_OUT_NAMES: tuple[str, ...] = (
    "Blake", "Cameron", "Devon", "Ellis", "Remy", "Sidney", "Shannon", "Tracy", "Marlowe", "Phoenix", "Sage", "River",
)  # fmt: skip
"""First names that say little about gender or origin; they are drawn independently of the group."""
