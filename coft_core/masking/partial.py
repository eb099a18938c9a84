"""Masked prompts in parts: only some attribute families masked, or one span shown again (App. "Beyond tokens")."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from coft_core.errors import InvalidInputError
from coft_core.masking.masker import MaskedPrompt
from coft_core.types import FAMILIES, Span

KNOWN: tuple[str, ...] = (*FAMILIES, "other")


def check_families(families: Collection[str] | None) -> tuple[str, ...] | None:
    """Families in the order in which pages list them, each once; None stands for all.

    Raises:
        InvalidInputError: None is named, or one is unknown.
    """
    if families is None:
        return None
    if isinstance(families, str) or not families:
        raise InvalidInputError("Give the attribute families as a list with at least one name, or none at all for all.")
    if unknown := sorted(set(families) - set(KNOWN)):
        raise InvalidInputError(f"There is no attribute family {unknown[0]!r}; use some of {', '.join(KNOWN)}.")
    return in_page_order(families)


def in_page_order(families: Iterable[str]) -> tuple[str, ...]:
    """Known families in the order in which pages list them, each once."""
    named = frozenset(families)
    return tuple(name for name in KNOWN if name in named)


def masked_families(prompt: MaskedPrompt, families: Collection[str] | None = None) -> tuple[str, ...]:
    """Families that have a masked token in a prompt, in the order in which pages list them.

    Args:
        prompt: The masked prompt.
        families: Families to look for; None looks for all.
    """
    present = {span.category for index in prompt.positions for span in _spans_at(prompt, index)}
    return in_page_order(name for name in present if families is None or name in families)


def mask_families(prompt: MaskedPrompt, families: Collection[str] | None) -> tuple[int, ...]:
    """Tokens of the prompt in which only some families are masked: the operator ``M_k`` for one, a part for several.

    A token that overlaps spans of two families is masked for each of them.

    Args:
        prompt: The prompt with everything masked.
        families: Families to mask; None masks all.

    Returns:
        As many tokens as the prompt has.
    """
    if families is None:
        return prompt.masked_ids
    masked = {
        index for index in prompt.positions if any(span.category in families for span in _spans_at(prompt, index))
    }
    return _chosen(prompt, masked)


def show_span(prompt: MaskedPrompt, span: Span, families: Collection[str] | None = None) -> tuple[int, ...]:
    """Tokens of the masked prompt with one span shown again; what another span covers too stays masked.

    Args:
        prompt: The masked prompt.
        span: One of its masked spans.
        families: Families that are masked; None masks all.
    """
    masked = {
        index
        for index in prompt.positions
        if any(other != span and (families is None or other.category in families) for other in _spans_at(prompt, index))
    }
    return _chosen(prompt, masked)


def masked_spans(prompt: MaskedPrompt, families: Collection[str] | None = None) -> tuple[Span, ...]:
    """Spans of which at least one token is masked, in their order in the text.

    Args:
        prompt: The masked prompt.
        families: Families to look for; None looks for all.
    """
    found = {span for index in prompt.positions for span in _spans_at(prompt, index)}
    return tuple(span for span in prompt.spans if span in found and (families is None or span.category in families))


def _spans_at(prompt: MaskedPrompt, index: int) -> list[Span]:
    start, end = prompt.offsets[index]
    return [span for span in prompt.spans if span.masked and start < span.end and span.start < end]


def _chosen(prompt: MaskedPrompt, masked: Collection[int]) -> tuple[int, ...]:
    pairs = enumerate(zip(prompt.masked_ids, prompt.factual_ids, strict=True))
    return tuple(filler if index in masked else token for index, (filler, token) in pairs)
