"""What pages, reports and the command line say of a step in the same words."""

from __future__ import annotations

from app.services.views.running import SENSITIVE
from coft_core.types import Step


def set_size(step: Step) -> str:
    """The size of the certified set, with the sizes between which it lies where tokens stand at the threshold."""
    if step.set_size_low is None or step.set_size_low == step.set_size_high:
        return f"{step.set_size:,}"
    return f"{step.set_size:,} ({step.set_size_low:,} to {step.set_size_high:,})"


def shapes(step: Step) -> list[str]:
    """How a token looks in a transcript, in the vocabulary of the style sheets: its certificate, and its sensitivity.

    A token that its threshold refuses is ``outside``, also where that threshold is borrowed: ``inherited`` is said of
    certified ones alone.
    """
    found = []
    if step.fallback:
        found.append("fallback")
    elif step.state in ("uninformative", "none", "mismatch"):
        found.append("open")
    elif not step.certified:
        found.append("outside")
    elif step.state == "inherited":
        found.append("inherited")
    if abs(step.diagnostics.log_ratio) >= SENSITIVE:
        found.append("sensitive")
    return found
