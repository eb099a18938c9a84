"""Whitelists: terms that are never masked, by settings or by a reviewer's mark on one prompt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from coft_core.masking.masker import MaskedPrompt
from coft_core.masking.tokens import fold
from coft_core.types import Span

LISTED = "list"
"""Source of spans that a user list decides; the detector's version names the list already."""


def check_whitelist(terms: Iterable[str]) -> tuple[str, ...]:
    """Terms as they are compared: folded, in lower case, without surrounding white space; sorted, each once."""
    return tuple(sorted({folded for term in terms if (folded := _folded(term))}))


def keep_whitelisted(text: str, spans: Sequence[Span], whitelist: Sequence[str]) -> tuple[Span, ...]:
    """Mark the spans whose text is a whitelisted term as kept.

    Args:
        text: The text that the spans point into.
        spans: Its spans.
        whitelist: Terms, as :func:`check_whitelist` gives them.
    """
    terms = frozenset(whitelist)
    return tuple(replace(s, kept=True) if _folded(text[s.start : s.end]) in terms else s for s in spans)


def kept_terms(prompt: MaskedPrompt) -> tuple[str, ...]:
    """What a prompt keeps by whitelist or by the reviewer's mark, as :func:`check_whitelist` gives it.

    A policy that keeps a term has another mask than one that does not, so these terms are part of its fingerprint.
    """
    kept = (s for s in prompt.spans if s.kept and s.source != LISTED)
    return check_whitelist(prompt.factual_text[s.start : s.end] for s in kept)


def _folded(term: str) -> str:
    return " ".join(fold(word) for word in term.split()).lower()
