"""The sentinel: one token that stands for every masked token, chosen by its id.

A text is no safe way to a token: SentencePiece vocabularies put a space before it and so make two tokens of ``_``,
although ``_`` is one of their pieces. So a sentinel is looked up in the vocabulary itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from coft_core.errors import SentinelError
from coft_core.text.tokens import surrogate_problem

MASKS = ("<mask>", "[MASK]", "<|mask|>")
"""Names of mask tokens where a tokenizer has one without saying so."""

NEUTRAL = (" _", "_", " ...", "...", " -", "-")
"""Pieces that are light in meaning, in the order in which they are tried."""

SPACES = ("\u2581", "\u0120", " ")
"""A space alone, as SentencePiece, byte-level and character vocabularies write it."""

RESERVED = re.compile(
    r"[<\[]\|?(?:reserved|unused|extra|placeholder|dummy|control|special|spare)(?:_[a-z]+)*_?\d+\|?[>\]]", re.IGNORECASE
)
"""Names of tokens that vocabularies keep free, such as ``<|reserved_special_token_0|>`` and ``[unused1]``."""

FIRST_RESERVED = (
    "<|reserved_special_token_0|>",
    *(f"{before}unused{number}{after}" for before, after in ("<>", "[]") for number in (0, 1)),
)
"""The usual ones, asked for by name: listing thousands of added tokens takes long, and plain pieces are not listed."""

_SPACE = " "


@dataclass(frozen=True, slots=True)
class Sentinel:
    """One token that stands for every masked one, the name that leads back to it, and why it is this one."""

    text: str
    token_id: int
    reason: str


def shown_sentinel(text: str) -> str:
    """A sentinel's name as it stands in a text for reading: without surrounding space, and never invisible."""
    return text.strip() or "\u2423"


def sentinel_sentence(text: str, reason: str) -> str:
    """Which token stands for masked ones and why, in words; empty where none does."""
    return f"“{shown_sentinel(text)}” stands for every masked token: {reason}." if text and reason else ""


def default_sentence(tokenizer: Any) -> str:
    """Which token stands for masked ones unless another is named, and why; or that the vocabulary has none."""
    sentinel = resolve_sentinel(tokenizer)
    if sentinel is None:
        return "No token of this vocabulary could stand for a masked one; name one as the sentinel to mask with it."
    return sentinel_sentence(sentinel.text, sentinel.reason)


def require_sentinel(tokenizer: Any, sentinel: str | None = None) -> Sentinel:
    """The sentinel of :func:`resolve_sentinel`."""
    chosen = resolve_sentinel(tokenizer, sentinel)
    if chosen is None:
        raise SentinelError(
            "This model's vocabulary has no token that could stand for a masked one (no mask token, no reserved one, "
            "no neutral piece, no unknown token); name one of its tokens as the sentinel, or take a policy that masks "
            "nothing."
        )
    return chosen


def resolve_sentinel(tokenizer: Any, sentinel: str | None = None) -> Sentinel | None:
    """Choose the sentinel.

    Without a wish it is the first that the vocabulary has of: the mask token, a reserved or unused special token, a
    neutral piece (:data:`NEUTRAL`, then a space), the unknown token. Tokens that end, begin or pad a text, and those
    that the chat template writes, have a meaning of their own and are never taken.
    """
    if sentinel is not None:
        return _named(tokenizer, sentinel)
    taken = _structural(tokenizer)
    for candidate in _candidates(tokenizer):
        # Fingerprints hold the name alone, so it must lead back to the token.
        if candidate.token_id not in taken and _of_name(tokenizer, candidate.text) == candidate.token_id:
            return candidate
    return None


def _named(tokenizer: Any, text: str) -> Sentinel:
    token_id = _of_name(tokenizer, text)
    if token_id is None:
        raise SentinelError(
            f"The sentinel {text!r} is not exactly one token that decodes to itself, nor a piece of this model's "
            "vocabulary; choose another, or leave it empty."
        )
    if role := _structural(tokenizer).get(token_id):
        raise SentinelError(
            f"The sentinel {text!r} is this model's {role} token, which has a meaning of its own in a prompt; choose "
            "another, or leave it empty."
        )
    return Sentinel(text, token_id, "named in the settings")


def _of_name(tokenizer: Any, text: str) -> int | None:
    return next((token_id for find in _FINDERS if (token_id := find(tokenizer, text)) is not None), None)


def _candidates(tokenizer: Any) -> Iterator[Sentinel]:
    """All that could stand for a masked token, the best first."""
    if tokenizer.mask_token is not None and tokenizer.mask_token_id is not None:
        yield Sentinel(str(tokenizer.mask_token), int(tokenizer.mask_token_id), "the tokenizer's mask token")
    for text in MASKS:
        if (token_id := _exact(tokenizer, text)) is not None:
            yield Sentinel(text, token_id, "a mask token in the vocabulary")
    yield from _reserved(tokenizer)
    # By text first, as earlier versions chose: their calibrations and sessions go by that name.
    for find in _FINDERS:
        for text in NEUTRAL:
            if (token_id := find(tokenizer, text)) is not None:
                yield Sentinel(text, token_id, "a neutral piece, as the vocabulary has no mask or reserved token")
    for text in SPACES:
        if (token_id := _exact(tokenizer, text)) is not None:
            yield Sentinel(text, token_id, "a space, as the vocabulary has no mask, reserved or other neutral token")
    if tokenizer.unk_token is not None and tokenizer.unk_token_id is not None:
        reason = "the unknown token, as the vocabulary has no mask, reserved or neutral one"
        yield Sentinel(str(tokenizer.unk_token), int(tokenizer.unk_token_id), reason)


def _reserved(tokenizer: Any) -> Iterator[Sentinel]:
    """Tokens that are kept free, the usual ones first, then by id; one that the chat template writes is not free."""
    template = str(tokenizer.chat_template or "")
    reason = "a token that the vocabulary keeps free"
    for text in FIRST_RESERVED:
        if text not in template and (token_id := _exact(tokenizer, text)) is not None:
            yield Sentinel(text, token_id, reason)
    added = {int(token_id): str(text) for text, token_id in tokenizer.get_added_vocab().items()}
    for token_id, text in sorted(added.items()):
        if RESERVED.fullmatch(text) and text not in template:
            yield Sentinel(text, token_id, reason)


def _structural(tokenizer: Any) -> dict[int, str]:
    """Tokens with a meaning of their own, by id, and which."""
    roles = (("padding", tokenizer.pad_token_id), ("begin", tokenizer.bos_token_id), ("end", tokenizer.eos_token_id))
    return {int(token_id): role for role, token_id in roles if token_id is not None}


def _one_token(tokenizer: Any, text: str) -> int | None:
    """The token that a text is by itself, if it is one and is read as that text."""
    if surrogate_problem(text):
        return None
    ids = tokenizer.encode(text, add_special_tokens=False)
    if len(ids) != 1 or ids[0] == tokenizer.unk_token_id:
        return None
    decoded = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return int(ids[0]) if decoded.strip() == text.strip() else None


def _piece(tokenizer: Any, text: str) -> int | None:
    """The piece of this name, or the piece that is this text in one of the ways in which vocabularies write it."""
    if surrogate_problem(text):
        return None
    forms = [text, *(text.replace(_SPACE, space) for space in SPACES[:2])]
    if not text.startswith(_SPACE):
        forms += [space + text for space in SPACES[:2]]
    return next((token_id for form in forms if (token_id := _exact(tokenizer, form)) is not None), None)


def _byte(tokenizer: Any, text: str) -> int | None:
    """The piece that stands for a character of one byte where the vocabulary has no piece of it."""
    return _exact(tokenizer, f"<0x{ord(text):02X}>") if len(text) == 1 and text.isascii() else None


def _exact(tokenizer: Any, piece: str) -> int | None:
    """The token of exactly this name; asked by name, since reading the whole vocabulary takes long."""
    token_id = tokenizer.convert_tokens_to_ids(piece)
    if token_id is None or tokenizer.convert_ids_to_tokens(int(token_id)) != piece:
        return None
    return int(token_id)


_FINDERS = (_one_token, _piece, _byte)
"""Ways from a name to a token, in the order in which they are tried."""
