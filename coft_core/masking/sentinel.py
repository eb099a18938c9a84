"""The sentinel: one token that stands for every masked token."""

from __future__ import annotations

from typing import Any

from coft_core.errors import SentinelError
from coft_core.masking.surrogates import surrogate_problem

FALLBACKS = ("<mask>", "[MASK]", " _", "_", " ...", "...", " -", "-")
"""Tried in this order when the tokenizer names no mask token: light in meaning, one token in most vocabularies."""


def resolve_sentinel(tokenizer: Any, sentinel: str | None = None) -> tuple[str, int]:
    """Choose the sentinel and return its text and id.

    Args:
        tokenizer: A fast tokenizer.
        sentinel: The wanted text; None takes the tokenizer's own mask token, or the first fallback that works.

    Returns:
        (text, token id).

    Raises:
        SentinelError: The wanted text is not exactly one token that round-trips, or no fallback works.
    """
    if sentinel is not None:
        token_id = _one_token(tokenizer, sentinel)
        if token_id is None:
            raise SentinelError(
                f"The sentinel {sentinel!r} is not exactly one token that decodes to itself in this model's "
                "tokenizer; choose another, or leave it empty."
            )
        return sentinel, token_id
    for text in (tokenizer.mask_token, *FALLBACKS):
        if text and (token_id := _one_token(tokenizer, text)) is not None:
            return text, token_id
    raise SentinelError("No usual sentinel is one token in this model's tokenizer; name one that is.")


def _one_token(tokenizer: Any, text: str) -> int | None:
    if surrogate_problem(text):
        return None
    ids = tokenizer.encode(text, add_special_tokens=False)
    if len(ids) != 1 or ids[0] == tokenizer.unk_token_id:
        return None
    decoded = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return int(ids[0]) if decoded.strip() == text.strip() else None
