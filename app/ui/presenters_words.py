"""A step in words: its verdict, the figures behind it, and what they mean."""

from __future__ import annotations

import math

from app.services.views import Step
from app.ui import presenters_families as families
from app.ui.presenters_format import count, probability, quoted, signed, threshold, times_likelier

ROUNDING = 1e-6
"""A token this near to its threshold may fall to either side of it."""


def has_threshold(step: Step) -> bool:
    """Whether a threshold was applied at this step."""
    return step.state != "none" and step.log_tau > -math.inf


def verdict(step: Step, digits: int) -> tuple[str, str]:
    """The step in plain words: a bold beginning and the rest."""
    joint = min(step.log_p_fused, step.log_p_masked)
    if step.state == "none":
        return ("Not certified:", "no calibration is used, so there is no threshold.")
    if step.state == "mismatch":
        return ("Not certified:", "the calibration belongs to another policy, so its threshold proves nothing here.")
    if step.families:
        return families.verdict(step, _effect_of_masking(step, digits))
    if step.state == "uninformative":
        return ("Not certified in any useful sense:", "too few contexts for this alpha, so every token passes.")
    if step.forced and not step.certified:
        if _decided_as_typed(step):
            return ("You forced a token that is not certified:", f"{_as_typed(step, digits)}.")
        below = "masked" if step.log_p_masked <= step.log_p_fused else "fused"
        return (
            "You forced a token that is not certified:",
            f"{below} {probability(math.exp(joint), digits)} is under τ {threshold(math.exp(step.log_tau))}.",
        )
    if step.fallback:
        return (
            "Fallback:",
            "no token reached the threshold in both worlds, so the likeliest fused token was written. "
            "Nothing is certified here.",
        )
    if step.state == "inherited":
        return ("Certified with a borrowed threshold:", "no calibration data at this position.")
    if _decided_as_typed(step):
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
    """The joint support against the threshold; without one, what masking does."""
    tau = threshold(math.exp(step.log_tau))
    joint = math.exp(min(step.log_p_fused, step.log_p_masked))
    if step.set_size == 0 and has_threshold(step):
        best = max(math.exp(candidate.log_joint) for candidate in step.candidates)
        return [f"The best joint support is {probability(best, digits)}, under the threshold τ {tau}."]
    if has_threshold(step) and _decided_as_typed(step):
        sentence = _as_typed(step, digits)
        return [f"{sentence[0].upper()}{sentence[1:]}."]
    if has_threshold(step):
        side = "reaches" if joint >= math.exp(step.log_tau) else "is under"
        return [f"Joint support {probability(joint, digits)} {side} the threshold τ {tau}."]
    return [_effect_of_masking(step, digits)]


def _decided_as_typed(step: Step) -> bool:
    """Whether something else than the joint support decided: some methods certify in the prompt as typed alone."""
    own = next((row for row in step.candidates if row.token_id == step.token_id), None)
    if own is None or step.families or abs(own.log_joint - step.log_tau) <= ROUNDING:
        return False
    return own.certified != (own.log_joint >= step.log_tau)


def _as_typed(step: Step, digits: int) -> str:
    """What decided of the token where its joint support did not."""
    own = next((row for row in step.candidates if row.token_id == step.token_id), None)
    accepted = own is not None and own.certified
    if accepted == (step.log_p_factual >= step.log_tau):
        side = "reaches" if accepted else "is under"
        shown = probability(math.exp(step.log_p_factual), digits)
        return f"its probability as typed, {shown}, {side} τ {threshold(math.exp(step.log_tau))}"
    return "the method refuses it by a limit of its own"


def facts(step: Step) -> list[tuple[str, str, str]]:
    """The four figures under the chart: name, value, what it means."""
    return [_set_fact(step), _mass_fact(step), _variation_fact(step), _sensitivity_fact(step)]


def _set_fact(step: Step) -> tuple[str, str, str]:
    notes = {
        "uninformative": "every token passes: the threshold is uninformative",
        "none": "there is no threshold",
        "mismatch": "tokens over a threshold of another policy",
        "inherited": "tokens over a borrowed threshold",
    }
    if step.families:
        notes |= {
            "uninformative": "tokens that no family refuses; a family lets every token pass",
            "calibrated": "tokens certified for every family",
        }
    if step.state == "none":
        return ("Set size", "none", notes["none"])
    note = notes.get(step.state, "tokens certified at this step")
    if step.near_threshold:
        note += "; one stands at the threshold within numeric noise"
    return ("Set size", count(step.set_size), note)


def _mass_fact(step: Step) -> tuple[str, str, str]:
    if step.state == "none":
        return ("Certified mass", "none", "nothing is certified")
    return ("Certified mass", probability(step.certified_mass), "of the fused probability")


def _variation_fact(step: Step) -> tuple[str, str, str]:
    found, bound = step.diagnostics.tv_on_set, step.diagnostics.tv_bound
    if found is None:
        return ("TV on the set", "none", "undefined: the set is empty")
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
