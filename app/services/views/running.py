"""Where a run of an audit stops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

UntilKind = Literal["fallback", "sensitive", "overruled", "steps"]
"""What a run may be stopped by, beside the end of the chain."""

SENSITIVE = 0.5
"""Absolute log ratio from which pages call a token attribute-sensitive."""


@dataclass(frozen=True, slots=True)
class RunUntil:
    """The step that ends a run: it is the last one written.

    Attributes:
        kind: ``"fallback"``: no token reached the threshold. ``"sensitive"``: the written token's absolute log ratio
            reached ``threshold``. ``"overruled"``: the token that the factual view likes best is not certified.
            ``"steps"``: that many steps were written by this run.
        threshold: Absolute log ratio (nats) for ``"sensitive"``.
        steps: Number of steps for ``"steps"``.
    """

    kind: UntilKind
    threshold: float = SENSITIVE
    steps: int = 20
