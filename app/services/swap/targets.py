"""What of a prompt an attribute swap can replace."""

from __future__ import annotations

from collections.abc import Sequence

from app.services.views.swaps import SwapPronoun, SwapTarget, SwapTargets
from coft_core.masking.merge import validate_spans
from coft_core.rewording.pronouns import FORMS, ROLES, Pronoun, find_pronouns, is_pronoun
from coft_core.types import Span


def swap_targets(prompt: str, spans: Sequence[Span]) -> SwapTargets:
    """The masked spans and the pronouns of a prompt.

    Args:
        prompt: The text.
        spans: Its spans; kept and suggested ones are not replaced.

    Raises:
        InvalidInputError: A span lies outside the prompt.
    """
    validate_spans(prompt, spans)
    pronouns = find_pronouns(prompt)
    return SwapTargets(
        tuple(
            SwapTarget(s.start, s.end, prompt[s.start : s.end], s.category, is_pronoun(s, pronouns))
            for s in sorted(spans)
            if s.masked
        ),
        tuple(_shown(prompt, item) for item in pronouns),
    )


def _shown(prompt: str, item: Pronoun) -> SwapPronoun:
    text = prompt[item.start : item.end]
    possible = tuple(role for role in ROLES if any(FORMS[name][role] == text.lower() for name in item.sets))
    return SwapPronoun(item.start, item.end, text, item.role, possible or (item.role,), item.sure)
