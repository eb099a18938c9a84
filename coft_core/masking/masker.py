"""Stage I: the masking operator, in token space (paper Sec. 3.2).

The factual prompt is tokenized with character offsets; every token that overlaps a sensitive span becomes the
sentinel. Both branches therefore have the same length, and the operator is idempotent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from coft_core.masking.merge import resolve_spans, validate_spans
from coft_core.masking.placing import ChosenTokens, chosen_tokens, copies_of, read_tokens
from coft_core.masking.rendering import Rendering
from coft_core.masking.sentinel import require_sentinel, resolve_sentinel, shown_sentinel
from coft_core.masking.surrogates import require_encodable
from coft_core.types import Span

MaskMode = Literal["hard", "soft"]
DEFAULT_HINT = "a person"

NO_SENTINEL = (
    "This model's vocabulary has no token that could stand for a masked one, so the marked words are not masked; "
    "name one of its tokens as the sentinel to mask them."
)


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
        offsets: Character range of each token in ``factual_text``; empty ranges for template and special tokens, and
            for unmasked ones that the tokenizer gives no character.
        sentinel: The sentinel's name; empty where the vocabulary has none, which only a prompt without a masked token
            can have.
        sentinel_id: Its token; None where there is none.
        mode: ``"hard"``, or ``"soft: <hint>"``.
        sentinel_reason: Why it is this token, as a phrase.
        repeated: Those of ``positions`` in second and later copies of the text, where a chat template prints it several
            times; ``text`` shows the first.
        warnings: Sentences that must be shown with anything made from the prompt.
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
    sentinel_id: int | None
    mode: str
    sentinel_reason: str = ""
    repeated: frozenset[int] = frozenset()
    warnings: tuple[str, ...] = ()

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
    required: bool = True,
) -> MaskedPrompt:
    """Replace every token that overlaps a sensitive span.

    A token that a masked span shares with a kept one is masked, and a warning says so. Where a chat template prints
    the text several times, every copy is masked.

    Args:
        tokenizer: A fast tokenizer (character offsets are needed).
        text: The reviewer's text, exactly as typed.
        spans: Sensitive spans as character offsets into ``text``; kept and suggested spans are never masked.
        sentinel: The sentinel, by text or by name; None chooses one (:func:`~coft_core.masking.sentinel
            .resolve_sentinel`).
        mode: ``"hard"`` puts the sentinel everywhere; ``"soft"`` puts a neutral hint first, cut or padded with the
            sentinel to the span's token count.
        hint: The hint of the soft mask.
        chat: Whether the text goes through the tokenizer's chat template, or in which way; only the reviewer's text
            can be masked.
        required: Whether the caller needs the mask. Without, a vocabulary that has no sentinel leaves everything
            unmasked, and a warning says so.

    Returns:
        Both branches' tokens, equal in number.

    Raises:
        InvalidInputError: A span lies outside the text, is empty, or has an unknown family, source or score; the text
            or the hint holds a lone surrogate; or the tokenizer does not say which tokens hold a masked span.
        SentinelError: The sentinel is not one token, or something is to be masked and the vocabulary has none.
    """
    given = tuple(spans)
    require_encodable(text)
    validate_spans(text, given)
    resolved = resolve_spans(given)
    ids, places = read_tokens(tokenizer, text, chat)
    chosen = chosen_tokens(places, text, resolved)
    find = require_sentinel if required and chosen.families else resolve_sentinel
    found = find(tokenizer, sentinel)
    if chosen.families and found is None:
        chosen = ChosenTokens({}, places, (NO_SENTINEL,))
    positions = tuple(sorted(chosen.families))
    offsets, copies = chosen.offsets, copies_of(places)
    fillers = {} if found is None else dict.fromkeys(positions, found.token_id)
    if mode == "soft":
        fillers |= _hinted(tokenizer, positions, offsets, copies, resolved, hint)
    prompt = MaskedPrompt(
        text=text,
        factual_text=text,
        factual_ids=ids,
        masked_ids=tuple(fillers.get(i, token) for i, token in enumerate(ids)),
        positions=positions,
        spans=resolved,
        families=tuple(chosen.families[i] for i in positions),
        offsets=offsets,
        sentinel="" if found is None else found.text,
        sentinel_id=None if found is None else found.token_id,
        mode="hard" if mode == "hard" else f"soft: {hint}",
        sentinel_reason="" if found is None else found.reason,
        repeated=frozenset(i for i in positions if copies[i] > 0),
        warnings=chosen.warnings,
    )
    return replace(prompt, text="".join(piece for piece, _ in masked_pieces(prompt, tokenizer)))


def prompt_ids(tokenizer: Any, text: str, chat: bool | Rendering = False) -> tuple[int, ...]:
    """The tokens of a text as the factual branch reads it; nothing is masked, so no sentinel is needed.

    Args:
        tokenizer: A fast tokenizer.
        text: The text.
        chat: Whether it goes through the tokenizer's chat template, or in which way.

    Raises:
        InvalidInputError: The text holds a lone surrogate, or the template rewrites it.
    """
    require_encodable(text)
    return read_tokens(tokenizer, text, chat)[0]


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


def masked_pieces(prompt: MaskedPrompt, tokenizer: Any) -> list[tuple[str, bool]]:
    """The masked prompt for reading: (text, whether it stands for a masked token) in order.

    White space that a masked token swallowed is shown again. Of a text that a chat template prints several times, the
    first copy is shown.

    Args:
        prompt: The prompt.
        tokenizer: Its tokenizer, for the words of a hint.
    """
    pieces: list[tuple[str, bool]] = []
    cursor, text = 0, prompt.factual_text
    for index in prompt.positions:
        if index in prompt.repeated:
            continue
        # Tokens that share a character share its range, whose text is replaced but once.
        start, end = (max(place, cursor) for place in prompt.offsets[index])
        swallowed = text[start:end]
        if before := text[cursor:start] + swallowed[: len(swallowed) - len(swallowed.lstrip())]:
            pieces.append((before, False))
        token, cursor = prompt.masked_ids[index], end
        own = token == prompt.sentinel_id
        pieces.append((shown_sentinel(prompt.sentinel) if own else tokenizer.decode([token]).strip(), True))
    return [*pieces, (text[cursor:], False)] if text[cursor:] else pieces


def _hinted(
    tokenizer: Any,
    positions: tuple[int, ...],
    offsets: Sequence[tuple[int, int]],
    copies: Sequence[int],
    spans: Sequence[Span],
    hint: str,
) -> dict[int, int]:
    """The tokens of the hint at the first masked positions of each span, in every copy of the text."""
    require_encodable(hint, "The hint of the soft mask")
    hint_ids = [int(i) for i in tokenizer.encode(" " + hint.strip(), add_special_tokens=False)]
    hinted: dict[int, int] = {}
    taken: set[int] = set()
    for span in (span for span in spans if span.masked):
        over = [i for i in positions if i not in taken and offsets[i][0] < span.end and span.start < offsets[i][1]]
        taken.update(over)
        for copy in {copies[i] for i in over}:
            hinted.update(zip((i for i in over if copies[i] == copy), hint_ids, strict=False))
    return hinted
