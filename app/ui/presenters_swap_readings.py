"""The readings that an attribute swap compares, in words; only some methods fuse what they draw from."""

from __future__ import annotations

from app.services.policy_words import info_of, policy_name
from app.services.views.swaps import SwapResult

_NAMES = {
    "factual": ("Visible", "the model alone, reading the prompt as it stands"),
    "fused": ("After fusion", "what the policy makes of the visible and the masked reading"),
    "drawn": ("Drawn from", "what is left of it on the certified tokens, which the policy draws from"),
    "masked": ("Masked", "the model reading the masked prompt"),
}
_SENTENCES = {
    "factual": "Visible: {}",
    "fused": "after fusion {}",
    "drawn": "among the certified tokens {}",
    "masked": "masked {}",
}


def policy_of(result: SwapResult) -> str:
    """The policy that is compared with vanilla decoding."""
    return result.outcomes[0].policy.start.settings.policy


def view_name(result: SwapResult, view: str) -> tuple[str, str]:
    """A reading's name, and what it is."""
    policy = policy_of(result)
    if view == "fused" and not info_of(policy).fuses:
        return f"Under {policy_name(policy)}", "the distribution that the method makes"
    return _NAMES[view]


def view_sentence(result: SwapResult, view: str) -> str:
    """A distance in a reading, as a part of the result's sentence; ``{}`` stands for the distance."""
    policy = policy_of(result)
    if view == "fused" and not info_of(policy).fuses:
        return f"under {policy_name(policy)} {{}}"
    return _SENTENCES[view]
