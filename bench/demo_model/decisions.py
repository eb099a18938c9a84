"""Decisions of the scenario texts and the probabilities planted in them."""

from __future__ import annotations

from typing import Any

from bench.demo_model.planted import Decision
from bench.wordings import wordings


def _decision(row: dict[str, Any]) -> Decision:
    """A decision; the rate of a two-way one is that of its first outcome."""
    rates = {group: rate if isinstance(rate, tuple) else (rate, 1 - rate) for group, rate in row["rates"].items()}
    return Decision(**row | {"rates": rates})


DECISIONS: tuple[Decision, ...] = tuple(map(_decision, wordings(__file__)))
