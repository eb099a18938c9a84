"""The prompt as its masked branches read it, for people."""

from __future__ import annotations

from collections.abc import Sequence

from app.services.views import MaskPiece, MaskPreview, Span
from coft_core.decode import Plan
from coft_core.masking.masker import MaskedPrompt, masked_pieces
from coft_core.masking.sentinel import sentinel_sentence
from coft_core.policies.factorized import PREFIX


def preview_of(prepared: Plan, policy_branches: Sequence[str], asked: Sequence[Span] = ()) -> MaskPreview:
    """A planned prompt for reading, with what must be said of it.

    Args:
        prepared: The plan.
        policy_branches: Names of the branches that the policy runs.
        asked: Spans as the reviewer gave them; what a whitelist keeps of them against her mark is said.
    """
    prompt = prepared.prompt
    return MaskPreview(
        tuple(MaskPiece(text, masked) for text, masked in masked_pieces(prompt, prepared.model.tokenizer)),
        len(prompt.factual_ids),
        len(prompt.positions) - len(prompt.repeated),
        (*prepared.warnings, *_kept_by_whitelist(prompt, asked)),
        tuple(name.removeprefix(PREFIX) for name in policy_branches),
        sentinel_sentence(prompt.sentinel, prompt.sentinel_reason),
    )


def branch_names(prepared: Plan) -> tuple[str, ...]:
    """Names of the branches that a plan's policy runs, factual first."""
    return tuple(branch.name for branch in prepared.policy.branches(prepared.prompt))


def _kept_by_whitelist(prompt: MaskedPrompt, asked: Sequence[Span]) -> tuple[str, ...]:
    kept = {(span.start, span.end) for span in prompt.spans if span.kept}
    words = [prompt.factual_text[s.start : s.end] for s in asked if s.masked and (s.start, s.end) in kept]
    return tuple(
        f"“{word}” is on the whitelist, so it stays visible; take it off the list to mask it."
        for word in dict.fromkeys(words)
    )
