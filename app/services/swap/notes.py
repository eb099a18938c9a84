"""What must be said with a comparison of attribute swaps."""

from __future__ import annotations

from collections.abc import Sequence

from app.services.views.swaps import SwapOutcome, SwapRequest


def swap_notes(request: SwapRequest, outcomes: Sequence[SwapOutcome]) -> list[str]:
    """Sentences on what a distance includes, and on variants whose masked views cannot be equal."""
    settings = request.settings
    notes = [
        f"Distributions are compared over the whole vocabulary at temperature {settings.temperature:g}, before top-p "
        "and top-k."
    ]
    first = outcomes[0]
    for other in (outcome for outcome in outcomes if not outcome.masked_like_first):
        why = "other words stand outside its masked spans"
        if other.tokens != first.tokens:
            why = f"it has {other.tokens} tokens instead of {first.tokens}"
        notes.append(
            f"The masked prompt of “{other.variant.label}” is not that of “{first.variant.label}” ({why}), so that the "
            "masked view differs too."
        )
    prefixes = {tuple(step.token_id for step in outcome.policy.steps[: request.answer_step]) for outcome in outcomes}
    prefixes_alone = {
        tuple(step.token_id for step in outcome.vanilla.steps[: request.answer_step]) for outcome in outcomes
    }
    if len(prefixes) > 1 or len(prefixes_alone) > 1:
        notes.append(
            f"Token {request.answer_step + 1} follows what each chain wrote before it, which is not the same in all "
            "variants; part of the distance comes from there."
        )
    if settings.policy == "vanilla":
        notes.append("The policy is vanilla decoding itself, so that both chains of a variant are the same.")
    return notes
