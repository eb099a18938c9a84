"""What a step with factorized masks says of each attribute family."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict

from app.services.views import FAMILY_NAMES, Candidate, FamilyStep, Step, silence
from app.ui.presenters_format import probability, threshold


class FamilyRow(TypedDict):
    """One family's line: ``n`` name, ``f`` key, ``m`` masked, ``j`` joint, ``tau``, ``mark`` and ``why``."""

    n: str
    f: str
    m: str
    j: str
    tau: str
    mark: str
    why: str


def family_rows(step: Step, digits: int) -> list[FamilyRow]:
    """The families' lines of a step; empty with one masked branch."""
    return [_row(part, digits) for part in step.families]


def named(families: Sequence[str], last: str = "and") -> str:
    """Families in a sentence."""
    names = [FAMILY_NAMES.get(family, family) for family in families]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}" if names else "no family"


def refused_by(step: Step) -> tuple[str, ...]:
    """Families whose threshold the emitted token misses."""
    return tuple(part.family for part in step.families if _is_short(part))


def in_state(step: Step, state: str) -> tuple[str, ...]:
    """Families whose threshold rests on this."""
    return tuple(part.family for part in step.families if part.state == state)


def nearest(step: Step) -> FamilyStep:
    """The family that is nearest to refusing the emitted token, or that refuses it by most."""
    return min(step.families, key=lambda part: _margin(part))


def candidate_status(step: Step, candidate: Candidate) -> tuple[str, str]:
    """Mark of a candidate, and which families speak against it."""
    if all(part.state == "none" for part in step.families):
        return ("open", "no τ")
    if candidate.refused_by:
        every = len(candidate.refused_by) == len(step.families) > 1
        names = "every family" if every else ", ".join(FAMILY_NAMES.get(name, name) for name in candidate.refused_by)
        return ("out", f"refused by {names}")
    if step.state == "calibrated":
        return ("tick", "certified for every family")
    return ("borrowed", "borrowed τ") if step.state == "inherited" else ("open", "≥ τ")


def verdict(step: Step, effect: str) -> tuple[str, str]:
    """A step with factorized masks in plain words: a bold beginning and the rest.

    Args:
        step: A step whose thresholds are those of its own policy.
        effect: What masking does to the token, in a sentence.
    """
    if step.fallback:
        return (
            "Fallback:",
            "no token reached the threshold of every family, so the likeliest fused token was written. "
            "Nothing is certified here.",
        )
    if refused := refused_by(step):
        begin = "You forced a token that is not certified:" if step.forced else "Not certified:"
        return (begin, f"{named(refused)} refuse{'s' if len(refused) == 1 else ''} it.")
    if weak := in_state(step, "uninformative"):
        return (
            f"Not certified in any useful sense for {named(weak)}:",
            f"{silence(min(part.log_tau for part in step.families if part.state == 'uninformative'))}.",
        )
    if borrowed := in_state(step, "inherited"):
        return ("Certified with a borrowed threshold:", f"no calibration data at this position for {named(borrowed)}.")
    every = named([part.family for part in step.families], "or")
    return ("Certified:", f"plausible whichever of {every} is masked. {effect}" if len(step.families) > 1 else effect)


def hint(step: Step, digits: int) -> str:
    """The family that decides, with its figures."""
    part = nearest(step)
    joint = probability(math.exp(part.log_joint), digits)
    side = "is under" if _is_short(part) else "reaches"
    name = FAMILY_NAMES.get(part.family, part.family)
    if part.log_tau == -math.inf:
        return "No family has an informative threshold here."
    return f"The tightest family is {name}: its joint support {joint} {side} its threshold τ {_tau(part)}."


def _row(part: FamilyStep, digits: int) -> FamilyRow:
    mark, why = _status(part)
    return FamilyRow(
        n=FAMILY_NAMES.get(part.family, part.family),
        f=part.family,
        m=probability(math.exp(part.log_p_masked), digits),
        j=probability(math.exp(part.log_joint), digits),
        tau=_tau(part),
        mark=mark,
        why=why,
    )


def _status(part: FamilyStep) -> tuple[str, str]:
    if part.state == "none":
        return ("open", "no τ")
    if _is_short(part):
        return ("out", "refuses it")
    return {
        "calibrated": ("tick", "certified"),
        "inherited": ("borrowed", "borrowed τ"),
        "mismatch": ("open", "≥ τ, another policy’s"),
    }.get(part.state, ("open", "every token passes" if part.log_tau == -math.inf else "≥ τ, too weak"))


def _is_short(part: FamilyStep) -> bool:
    return part.state != "none" and part.log_joint < part.log_tau


def _margin(part: FamilyStep) -> float:
    return math.inf if part.log_tau == -math.inf else part.log_joint - part.log_tau


def _tau(part: FamilyStep) -> str:
    return threshold(math.exp(part.log_tau))
