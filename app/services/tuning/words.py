"""A tuning run in words, the same on pages and commands."""

from __future__ import annotations

from app.services.policy_words import info_of, policy_name
from app.services.views.tuning import TunedMethod, TuningView

ENDED = {"cancelled": "was cancelled", "interrupted": "was interrupted", "failed": "failed"}
"""How a run ended before all methods were swept."""


def calibrated_sentence(view: TuningView) -> str:
    """Whether COFT was certified while it was tuned, and what the calibration rests on."""
    if not view.calibrated_on:
        return "COFT without certification"
    # Other methods that could certify take other calibrations than those that are made here.
    others = any(own.policy != "coft" and info_of(own.policy).certifies for own in view.methods)
    rest = "; the other methods without certification" if others else ""
    if view.calibration_source == "reference":
        return f"COFT calibrated on the references of {view.calibrated_on} at every lambda{rest}"
    return (
        f"COFT calibrated at every lambda on rollouts, what it writes itself on the prompts of {view.calibrated_on} "
        f"in up to {view.settings.max_new_tokens} steps at alpha {view.settings.alpha:g}; other levels are read "
        f"off the same chains{rest}"
    )


def sampling_sentence(view: TuningView) -> str:
    """The sampling controls that the figures hold at."""
    own = view.settings
    cuts = [f"top-p {own.top_p:g}"] if own.top_p < 1 else []
    cuts += [f"top-k {own.top_k}"] if own.top_k else []
    return ", ".join([f"temperature {own.temperature:g}", *cuts])


def none_sentence(own: TunedMethod, floor: float) -> str:
    """Why no point of a complete sweep was chosen; empty where one was, or where nothing was measured."""
    if own.error or not own.points or own.best is not None:
        return ""
    name = policy_name(own.policy)
    if all(point.accuracy[0] < floor for point in own.points):
        return f"{name}: none, no point keeps enough accuracy."
    return f"{name}: none, no point that keeps enough accuracy has a smaller gap than the model alone beyond noise."


def kept_sentence(view: TuningView) -> str:
    """What is kept of a run that ended early, and that nothing is chosen from it; empty for a complete one."""
    if view.complete:
        return ""
    counted = ", ".join(
        f"{policy_name(own.policy)} {len(own.points)} of {own.planned}" for own in view.methods if not own.error
    )
    return (
        f"This run {ENDED.get(view.status, view.status)} after {view.measured} of {view.planned} points ({counted}). "
        "The points that are kept were measured on all prompts. None is chosen, because a choice needs every point; "
        "run it again for one."
    )
