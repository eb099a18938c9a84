"""When a threshold says anything: one rule, for calibrations, steps, chains, pages, reports and their verification.

Of a calibration only the threshold is known: below :data:`WEAKEST_TAU` even the bound ``1 / tau`` on its set is about
as large as the largest vocabularies. Of a step the set is known: one of :data:`LARGE` is no better than a token that is
picked blindly, and one of :data:`MANY` that holds nearly all of the probability refuses next to nothing. A smaller set
that holds nearly all of it is not weak: the model is sure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coft_core.types import CertificateState, Step


WEAKEST_TAU = 1e-5
"""Thresholds below this probability are too weak, whatever the set."""

LARGE = 0.05
"""Sets with this share of the vocabulary are too weak, whatever their probability."""

MANY, NEARLY_ALL = 0.03, 0.99
"""Sets with the former share of the vocabulary are too weak if they hold the latter share of the fused probability."""

BY_CONSTRUCTION = (
    "A token that the policy draws is in its certified set by construction: the size of the set and its probability "
    "carry the information, not this count."
)
"""What is said once wherever certified steps are counted."""

TOO_FEW = "too few contexts for this alpha, so every token passes"
TOO_WEAK = "the threshold is too weak to say anything"
WHY_WEAK = (
    f"a threshold under {WEAKEST_TAU:.0e}, a set of {LARGE:.0%} of the vocabulary or more, or one of {MANY:.0%} or "
    f"more with {NEARLY_ALL:.0%} of the probability refuses next to nothing"
).replace("1e-05", "0.00001")
"""The rule in words."""


def is_weak(log_tau: float) -> bool:
    """Whether a threshold is too weak before any set is known; one that lets every token pass is none at all."""
    return -math.inf < log_tau < math.log(WEAKEST_TAU)


def is_wide(set_size: float, certified_mass: float, vocabulary: int) -> bool:
    """Whether a certified set lets too much through; ``vocabulary`` is the number of tokens that it is a part of."""
    share = set_size / vocabulary
    return share >= LARGE or (share >= MANY and certified_mass >= NEARLY_ALL)


def stated(
    state: CertificateState, log_tau: float, set_size: float, certified_mass: float, vocabulary: int
) -> CertificateState:
    """What a step's threshold may be said to rest on, once its set and the fused probability of that are known."""
    if state in ("calibrated", "inherited") and (is_weak(log_tau) or is_wide(set_size, certified_mass, vocabulary)):
        return "uninformative"
    return state


def certifies(state: str) -> bool:
    """Whether a token of the certified set counts as certified: the threshold is the policy's and says something."""
    return state in ("calibrated", "inherited")


def silence(log_tau: float) -> str:
    """Why a threshold says nothing that is known to: there is none, or it is too weak."""
    return TOO_FEW if log_tau == -math.inf else TOO_WEAK


def warning(steps: Sequence[Step]) -> str:
    """What must be said of a chain whose thresholds say nothing at some steps; empty if there is none."""
    silent = [step for step in steps if step.state == "uninformative"]
    if not silent:
        return ""
    where = "every step" if len(silent) == len(steps) else f"{len(silent)} of {len(steps)} steps"
    reasons = [reason for reason in (TOO_FEW, TOO_WEAK) if any(silence(step.log_tau) == reason for step in silent)]
    return f"Nothing is certified at {where}: {', or '.join(reasons)}."
