"""The prompt as its masked branches read it, for people."""

from __future__ import annotations

from collections.abc import Sequence

from app.services.views import MaskPiece, MaskPreview, Span
from coft_core.decode import Plan
from coft_core.engine.model import LanguageModel
from coft_core.masking.masker import MaskedPrompt
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
        _pieces(prompt, prepared.model),
        len(prompt.factual_ids),
        len(prompt.positions),
        (*prepared.warnings, *_kept_by_whitelist(prompt, asked)),
        tuple(name.removeprefix(PREFIX) for name in policy_branches),
    )


def branch_names(prepared: Plan) -> tuple[str, ...]:
    """Names of the branches that a plan's policy runs, factual first."""
    return tuple(branch.name for branch in prepared.policy.branches(prepared.prompt))


def _pieces(prompt: MaskedPrompt, model: LanguageModel) -> tuple[MaskPiece, ...]:
    """Text, and one piece per masked token."""
    pieces: list[MaskPiece] = []
    cursor, text = 0, prompt.factual_text
    for index in prompt.positions:
        start, end = prompt.offsets[index]
        if start >= cursor:
            swallowed = text[start:end]
            space = swallowed[: len(swallowed) - len(swallowed.lstrip())]
            if before := text[cursor:start] + space:
                pieces.append(MaskPiece(before, masked=False))
            cursor = end
        token = prompt.masked_ids[index]
        shown = prompt.sentinel if token == prompt.sentinel_id else model.token_text(token)
        pieces.append(MaskPiece(shown.strip(), masked=True))
    if rest := text[cursor:]:
        pieces.append(MaskPiece(rest, masked=False))
    return tuple(pieces)


def _kept_by_whitelist(prompt: MaskedPrompt, asked: Sequence[Span]) -> tuple[str, ...]:
    kept = {(span.start, span.end) for span in prompt.spans if span.kept}
    words = [prompt.factual_text[s.start : s.end] for s in asked if s.masked and (s.start, s.end) in kept]
    return tuple(
        f"“{word}” is on the whitelist, so it stays visible; take it off the list to mask it."
        for word in dict.fromkeys(words)
    )
