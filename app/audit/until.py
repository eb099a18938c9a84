"""The conditions at which a run stops: how they are written, which step meets them, and why a run ended."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from app.shared.audits import SENSITIVE
from app.shared.errors import ServiceError
from app.shared.format import plural, quoted, signed
from app.shared.step_words import factual_overruled
from coft_core.types import Certificate, Step

FORMS = "fallback, sensitive, sensitive:0.5, overruled or steps:20"
MOST_STEPS = 100_000


def met(until: RunUntil, step: Step, written: int) -> bool:
    """Whether a step ends the run, which has written so many steps with this one."""
    if until.kind == "fallback":
        return step.fallback
    if until.kind == "sensitive":
        return abs(step.diagnostics.log_ratio) >= until.threshold
    return factual_overruled(step) if until.kind == "overruled" else written >= until.steps


def checked(until: RunUntil, certificate: str) -> RunUntil:
    """A condition that a session of this certificate can meet."""
    if until.kind not in get_args(UntilKind):
        raise ServiceError(f"A run cannot be stopped by {until.kind!r}; use {FORMS}.")
    if until.kind == "sensitive" and not (math.isfinite(until.threshold) and until.threshold > 0):
        raise ServiceError(f"The sensitivity to stop at is {until.threshold}; it must be a number above 0.")
    if until.kind == "steps" and not 1 <= until.steps <= MOST_STEPS:
        raise ServiceError(f"The number of steps to write is {until.steps}; it must be from 1 to {MOST_STEPS:,}.")
    thresholded = Certificate.read(certificate).thresholded
    if until.kind in ("fallback", "overruled") and not thresholded:
        raise ServiceError(
            "This session has no threshold, so no step of it can refuse a token; run until a sensitive token or for a "
            "number of steps, or start one with a calibration."
        )
    return until


def until_from_text(text: str) -> RunUntil:
    """Read a condition such as ``"sensitive:0.5"`` or ``"steps:20"``."""
    kind, _, value = text.strip().partition(":")
    try:
        if kind == "steps" and value:
            return RunUntil("steps", steps=int(value))
        if kind == "sensitive":
            return RunUntil("sensitive", threshold=float(value)) if value else RunUntil("sensitive")
        if kind in ("fallback", "overruled") and not value:
            return RunUntil(cast(UntilKind, kind))
    except ValueError:
        pass
    raise ServiceError(f"{text!r} is no place to stop at; use {FORMS}.")


def until_from(choice: object) -> RunUntil | None:
    """A condition as the browser sends it; None runs to the end."""
    if not isinstance(choice, dict):
        return None
    kind: Any = choice.get("kind")
    try:
        if kind == "steps":
            return RunUntil("steps", steps=int(choice["steps"]))
        if kind == "sensitive":
            return RunUntil("sensitive", threshold=float(choice["threshold"]))
    except (KeyError, TypeError, ValueError) as error:
        what = "tokens to write" if kind == "steps" else "sensitivity to stop at"
        raise ServiceError(f"The number of {what} is missing; write one beside the choice.") from error
    return RunUntil(kind)  # the service refuses what it does not know


def stop_sentence(until: RunUntil | None, last: Step | None, written: int, finished: str | None) -> str:
    """Why a run stopped, in words; empty where it was to run to the end and did."""
    if last is None:
        return ""
    step = last.index + 1
    if until is not None and met(until, last, written):
        return f"Stopped at step {step}: {_reason(until, last, written)}."
    if finished is None:
        return f"Paused at step {step}."
    return "" if until is None else f"The chain ended at step {step}: {_never(until, written)}."


def _reason(until: RunUntil, step: Step, written: int) -> str:
    ratio, likeliest = signed(step.diagnostics.log_ratio), quoted(step.candidates[0].token) if step.candidates else ""
    return {
        "fallback": "no token reached the threshold",
        "sensitive": f"the sensitivity of {quoted(step.token)} is {ratio}, {until.threshold:g} was asked for",
        "overruled": f"{likeliest} is likeliest without the mask, and not certified",
        "steps": f"{plural(written, 'token')} {'was' if written == 1 else 'were'} written",
    }[until.kind]


def _never(until: RunUntil, written: int) -> str:
    return {
        "fallback": "at every step that was written some token reached the threshold",
        "sensitive": f"no token that was written reached a sensitivity of {until.threshold:g}",
        "overruled": "the likeliest token without the mask was always certified",
        "steps": f"only {written} of {until.steps} tokens could be written",
    }[until.kind]


UntilKind = Literal["fallback", "sensitive", "overruled", "steps"]
"""What a run may be stopped by, beside the end of the chain."""


@dataclass(frozen=True, slots=True)
class RunUntil:
    """The step that ends a run: it is the last one written."""

    kind: UntilKind
    threshold: float = SENSITIVE
    steps: int = 20
