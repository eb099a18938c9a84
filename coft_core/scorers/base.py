"""What a toxicity scorer is, and how one is loaded by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from coft_core.scorers.classifier import load_classifier
from coft_core.scorers.embedded import load_embedded

EMBEDDED = "embedded"
"""Name of the scorer that comes with the program."""


class ToxicityScorer(Protocol):
    """Says how toxic texts are."""

    @property
    def name(self) -> str:
        """Its name, as it was asked for."""

    @property
    def version(self) -> str:
        """What identifies its weights."""

    def score(self, texts: Sequence[str]) -> list[float]:
        """Probability in [0, 1] that each text is toxic."""


def load_scorer(name: str = EMBEDDED, device: str = "cpu") -> ToxicityScorer:
    """Load a scorer."""
    if name == EMBEDDED:
        return load_embedded()
    return load_classifier(name, device)
