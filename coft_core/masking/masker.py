"""Stage I: the masking operator, in token space (paper Sec. 3.2).

The factual prompt is tokenized with character offsets; every token that overlaps a sensitive span becomes the
sentinel. Both branches therefore have the same length, and the operator is idempotent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from coft_core.masking.chat import apply_chat_template
from coft_core.masking.merge import resolve_spans, validate_spans
from coft_core.masking.rendering import Rendering, Tokens
from coft_core.masking.sentinel import resolve_sentinel
from coft_core.masking.surrogates import require_encodable
from coft_core.types import Span

MaskMode = Literal["hard", "soft"]
DEFAULT_HINT = "a person"


@dataclass(frozen=True, slots=True)
class MaskedPrompt:
    """A prompt in both branches, aligned token by token.

    Attributes:
        text: The prompt as the masked branch reads it, sentinels written out.
        factual_text: The reviewer's text.
        factual_ids: Tokens of the factual branch.
        masked_ids: Tokens of the masked branch, the same number.
        positions: Indices of the tokens that differ by construction, ascending.
        spans: All resolved spans, kept and suggested ones included, as offsets into ``factual_text``.
        families: Attribute family of each entry of ``positions``.
        offsets: Character range of each token in ``factual_text``; empty ranges for template and special tokens.
        sentinel: The sentinel's text.
        sentinel_id: Its token.
        mode: ``"hard"``, or ``"soft: <hint>"``.
    """

    text: str
    factual_text: str
    factual_ids: tuple[int, ...]
    masked_ids: tuple[int, ...]
    positions: tuple[int, ...]
    spans: tuple[Span, ...]
    families: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]
    sentinel: str
    sentinel_id: int
    mode: str

    @property
    def branches_equal(self) -> bool:
        """Whether nothing is masked, so that both branches read the same prompt."""
        return self.factual_ids == self.masked_ids


def mask_prompt(
    tokenizer: Any,
    text: str,
    spans: Iterable[Span],
    sentinel: str | None = None,
    mode: MaskMode = "hard",
    hint: str = DEFAULT_HINT,
    chat: bool | Rendering = False,
) -> MaskedPrompt:
    """Replace every token that overlaps a sensitive span.

    Args:
        tokenizer: A fast tokenizer (character offsets are needed).
        text: The reviewer's text, exactly as typed.
        spans: Sensitive spans as character offsets into ``text``; kept and suggested spans are never masked.
        sentinel: Sentinel text; None takes the tokenizer's own.
        mode: ``"hard"`` puts the sentinel everywhere; ``"soft"`` puts a neutral hint first, cut or padded with the
            sentinel to the span's token count.
        hint: The hint of the soft mask.
        chat: Whether the text goes through the tokenizer's chat template, or in which way; only the reviewer's text
            can be masked.

    Returns:
        Both branches' tokens, equal in number.

    Raises:
        InvalidInputError: A span lies outside the text, is empty, or has an unknown family, source or score; the text
            or the hint holds a lone surrogate.
        SentinelError: The sentinel is not one token.
    """
    given = tuple(spans)
    require_encodable(text)
    validate_spans(text, given)
    resolved = resolve_spans(given)
    sentinel_text, sentinel_id = resolve_sentinel(tokenizer, sentinel)
    rendering = Rendering.of(chat)
    ids, offsets = rendering.tokens(text, partial(_tokenize, tokenizer, rendering))
    family_at = _families_by_token(offsets, resolved)
    positions = tuple(sorted(family_at))
    fillers = _fillers(tokenizer, positions, offsets, resolved, sentinel_id, mode, hint)
    masked = tuple(fillers.get(i, token) for i, token in enumerate(ids))
    return MaskedPrompt(
        text=_masked_text(tokenizer, text, offsets, positions, fillers, sentinel_text, sentinel_id),
        factual_text=text,
        factual_ids=ids,
        masked_ids=masked,
        positions=positions,
        spans=resolved,
        families=tuple(family_at[i] for i in positions),
        offsets=offsets,
        sentinel=sentinel_text,
        sentinel_id=sentinel_id,
        mode="hard" if mode == "hard" else f"soft: {hint}",
    )


def mask_tokens(ids: Sequence[int], positions: Iterable[int], sentinel_id: int) -> tuple[int, ...]:
    """The hard operator on tokens alone: idempotent and length-preserving.

    Args:
        ids: Prompt tokens.
        positions: Indices to mask.
        sentinel_id: The sentinel.

    Returns:
        Tokens with the sentinel at ``positions``.
    """
    chosen = frozenset(positions)
    return tuple(sentinel_id if i in chosen else token for i, token in enumerate(ids))


def _tokenize(tokenizer: Any, rendering: Rendering, text: str) -> Tokens:
    """Tokens with offsets into the reviewer's text; what the template adds gets an empty range."""
    chat = rendering.chat
    whole, start, shift = apply_chat_template(tokenizer, text, rendering.moment) if chat else (text, 0, 0)
    encoded = tokenizer(whole, return_offsets_mapping=True, add_special_tokens=not chat, verbose=False)
    end = start + len(text) - shift
    offsets = []
    for a, b in encoded["offset_mapping"]:
        low, high = max(a, start), min(b, end)
        move = shift - start
        offsets.append((low + move, high + move) if low < high else (0, 0))
    return tuple(int(i) for i in encoded["input_ids"]), tuple(offsets)


def _families_by_token(offsets: Sequence[tuple[int, int]], spans: Sequence[Span]) -> dict[int, str]:
    masked = [span for span in spans if span.masked]
    kept = [span for span in spans if span.kept]
    families: dict[int, str] = {}
    for index, (start, end) in enumerate(offsets):
        if start == end or any(start < k.end and k.start < end for k in kept):
            continue
        for span in masked:
            if start < span.end and span.start < end:
                families[index] = span.category
                break
    return families


def _fillers(
    tokenizer: Any,
    positions: tuple[int, ...],
    offsets: Sequence[tuple[int, int]],
    spans: Sequence[Span],
    sentinel_id: int,
    mode: MaskMode,
    hint: str,
) -> dict[int, int]:
    """The masked branch's token at each masked position."""
    fillers = dict.fromkeys(positions, sentinel_id)
    if mode == "hard":
        return fillers
    require_encodable(hint, "The hint of the soft mask")
    hint_ids = [int(i) for i in tokenizer.encode(" " + hint.strip(), add_special_tokens=False)]
    taken: set[int] = set()
    for span in (span for span in spans if span.masked):
        own = [i for i in positions if i not in taken and offsets[i][0] < span.end and span.start < offsets[i][1]]
        taken.update(own)
        fillers.update(zip(own, hint_ids, strict=False))
    return fillers


def _masked_text(
    tokenizer: Any,
    text: str,
    offsets: Sequence[tuple[int, int]],
    positions: tuple[int, ...],
    fillers: dict[int, int],
    sentinel_text: str,
    sentinel_id: int,
) -> str:
    """The masked prompt for reading; the white space that a masked token swallowed is shown again."""
    pieces, cursor = [], 0
    for index in positions:
        start, end = offsets[index]
        if start < cursor and end <= cursor:
            # Tokens that share one character share its range; its text has been replaced already.
            pieces.append(sentinel_text.strip())
            continue
        pieces.append(text[cursor:start])
        swallowed = text[start:end]
        pieces.append(swallowed[: len(swallowed) - len(swallowed.lstrip())])
        filler = fillers[index]
        shown = sentinel_text if filler == sentinel_id else tokenizer.decode([filler])
        pieces.append(shown.strip())
        cursor = end
    return "".join(pieces) + text[cursor:]
