"""A step in words: its verdict, the figures behind it, and what they mean."""

from __future__ import annotations

import math

from app.services.step_words import set_size
from app.services.views import NumericNoise, Step, silence
from app.ui import presenters_families as families
from app.ui.presenters_format import probability, quoted, signed, threshold, times_likelier

ROUNDING = 1e-6
"""A token this near to its threshold may fall to either side of it."""


def has_threshold(step: Step) -> bool:
    """Whether a threshold was applied at this step."""
    return step.state != "none" and step.log_tau > -math.inf


def verdict(step: Step, digits: int) -> tuple[str, str]:
    """The step in plain words: a bold beginning and the rest."""
    if step.state == "none":
        return ("Not certified:", "no calibration is used, so there is no threshold.")
    if step.state == "mismatch":
        return ("Not certified:", "the calibration belongs to another policy, so its threshold proves nothing here.")
    if step.families:
        return families.verdict(step, _effect_of_masking(step, digits))
    if step.state == "uninformative":
        return ("Not certified in any useful sense:", f"{silence(step.log_tau)}.")
    if step.forced and not step.certified:
        if step.certified_in == "factual":
            return ("You forced a token that is not certified:", f"{_as_typed(step, digits)}.")
        below = "masked" if step.log_p_masked <= step.log_p_fused else "fused"
        shown, tau = probability(math.exp(step.log_support), digits), threshold(math.exp(step.log_tau))
        return (
            "You forced a token that is not certified:",
            f"{below} {shown} is under τ {tau}.",
        )
    if step.fallback:
        return (
            "Fallback:",
            f"no token {_enough(step)}, so the likeliest one was written. Nothing is certified here.",
        )
    if step.state == "inherited":
        return ("Certified with a borrowed threshold:", "no calibration data at this position.")
    if step.certified_in == "factual":
        return ("Certified as typed:", f"{_as_typed(step, digits)}. {_effect_of_masking(step, digits)}")
    return ("Certified:", f"plausible in both worlds. {_effect_of_masking(step, digits)}")


def hint(step: Step, digits: int) -> str:
    """The figures behind the verdict, and what would have happened otherwise."""
    sentences = [families.hint(step, digits)] if _has_families(step) else _support(step, digits)
    if step.state == "inherited" and (step.fallback or not step.certified):
        sentences.append("The threshold is borrowed from another position.")
    if step.forced and step.policy_token_id != step.token_id:
        sentences.append(f"Left alone, the policy would have written {quoted(step.policy_token)}.")
    return " ".join(sentences)


def _has_families(step: Step) -> bool:
    return bool(step.families) and step.state != "none"


def _support(step: Step, digits: int) -> list[str]:
    """The support against the threshold; without one, what masking does."""
    tau = threshold(math.exp(step.log_tau))
    if not has_threshold(step):
        return [_effect_of_masking(step, digits)]
    if step.set_size == 0:
        best = max(math.exp(candidate.log_support(step.certified_in)) for candidate in step.candidates)
        if step.certified_in == "factual" and best >= math.exp(step.log_tau):
            return ["Tokens reach the threshold; the method refuses them by a limit of its own."]
        name = "probability as typed" if step.certified_in == "factual" else "joint support"
        return [f"The best {name} is {probability(best, digits)}, under the threshold τ {tau}."]
    if step.certified_in == "factual":
        sentence = _as_typed(step, digits)
        return [f"{sentence[0].upper()}{sentence[1:]}."]
    side = "reaches" if step.log_support >= step.log_tau else "is under"
    return [f"Joint support {probability(math.exp(step.log_support), digits)} {side} the threshold τ {tau}."]


def _enough(step: Step) -> str:
    """What no token did where none is certified."""
    if step.certified_in == "both":
        return "reached the threshold in both worlds"
    limited = any(row.log_p_factual >= step.log_tau for row in step.candidates)
    return "passed the threshold and the method’s own limit" if limited else "reached the threshold as typed"


def _as_typed(step: Step, digits: int) -> str:
    """The probability as typed against the threshold, or that something else decided of the token."""
    own = next((row for row in step.candidates if row.token_id == step.token_id), None)
    accepted = own is not None and own.certified
    if accepted == (step.log_p_factual >= step.log_tau) or abs(step.log_p_factual - step.log_tau) <= ROUNDING:
        side = "reaches" if accepted else "is under"
        shown = probability(math.exp(step.log_p_factual), digits)
        return f"its probability as typed, {shown}, {side} τ {threshold(math.exp(step.log_tau))}"
    return "the method refuses it by a limit of its own"


def facts(step: Step, noise: NumericNoise | None = None) -> list[tuple[str, str, str]]:
    """The four figures under the chart: name, value, what it means.

    Args:
        step: The step.
        noise: Bound on the numeric noise of the model's type; without one no step is said to stand at its threshold.
    """
    return [_set_fact(step, noise), _mass_fact(step), _variation_fact(step), _sensitivity_fact(step)]


def _set_fact(step: Step, noise: NumericNoise | None) -> tuple[str, str, str]:
    notes = {
        "uninformative": f"tokens pass: {silence(step.log_tau)}",
        "none": "there is no threshold",
        "mismatch": "tokens over a threshold of another policy",
        "inherited": "tokens over a borrowed threshold",
    }
    if step.families:
        notes |= {
            "uninformative": "tokens that no family refuses; the threshold of a family, or all together, say nothing",
            "calibrated": "tokens certified for every family",
        }
    if step.state == "none":
        return ("Set size", "none", notes["none"])
    note = notes.get(step.state, "tokens certified at this step")
    if noise is not None and step.near_threshold(noise.nats):
        note += f"; within numeric noise ({noise.text}) tokens stand at the threshold"
    return ("Set size", set_size(step), note)


def _mass_fact(step: Step) -> tuple[str, str, str]:
    if step.state == "none":
        return ("Certified mass", "none", "nothing is certified")
    return ("Certified mass", probability(step.certified_mass), "of the fused probability")


def _variation_fact(step: Step) -> tuple[str, str, str]:
    found, bound = step.diagnostics.tv_on_set, step.diagnostics.tv_bound
    if found is None:
        return ("TV on the set", "none", "undefined: the set is empty")
    if bound is None and step.certified_in == "factual" and has_threshold(step):
        return ("TV on the set", probability(found), "no bound: the set is certified as typed alone")
    if bound is None:
        return ("TV on the set", probability(found), "no bound: there is no threshold")
    if bound > 1:
        return ("TV on the set", probability(found), f"bound {bound:.2f}: above 1, so it says nothing here")
    return ("TV on the set", probability(found), f"and at most {bound:.2f} by its bound")


def _sensitivity_fact(step: Step) -> tuple[str, str, str]:
    ratio = step.diagnostics.log_ratio
    return ("Sensitivity", signed(ratio), times_likelier(ratio))


def _effect_of_masking(step: Step, digits: int) -> str:
    seen = probability(math.exp(step.log_p_factual), digits)
    masked = probability(math.exp(step.log_p_masked), digits)
    if seen == masked:
        return f"Masking leaves this token at {seen}."
    masked += " on average over the families" if len(step.families) > 1 else ""
    verb = "lowers" if step.log_p_masked < step.log_p_factual else "raises"
    return f"Masking {verb} this token from {seen} to {masked}."
