"""Stage I: the masking operator, in token space (paper Sec. 3.2).

The factual prompt is tokenized with character offsets; every token that overlaps a sensitive span becomes the
sentinel. Both branches therefore have the same length, and the operator is idempotent.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from coft_core.errors import InvalidInputError
from coft_core.model.language_model import ANCHOR, LanguageModel
from coft_core.text.merging import resolve_spans, validate_spans
from coft_core.text.placing import ChosenTokens, chosen_tokens, copies_of, over, read_tokens
from coft_core.text.rendering import Rendering
from coft_core.text.sentinel import require_sentinel, resolve_sentinel, shown_sentinel
from coft_core.text.tokens import fold, require_encodable
from coft_core.text.turns import frame_of, outside_lines
from coft_core.types import KNOWN_FAMILIES, Span, in_page_order

MaskMode = Literal["hard", "soft"]
DEFAULT_HINT = "a person"

NO_SENTINEL = (
    "This model's vocabulary has no token that could stand for a masked one, so the marked words are not masked; "
    "name one of its tokens as the sentinel to mask them."
)


@dataclass(frozen=True, slots=True)
class MaskedPrompt:
    """A prompt in both branches, aligned token by token.

    ``positions`` are the tokens that are masked, ``families`` the attribute family of each, and ``repeated`` those in
    second and later copies of the text, where a chat template prints it several times. ``offsets`` are the characters
    of each token in the reviewer's ``factual_text``; template and special tokens have none. ``text`` is the first copy
    as the masked branch reads it. The sentinel is empty where the vocabulary has none, which only a prompt without a
    masked token can have; ``mode`` is ``"hard"``, or ``"soft: <hint>"``. Warnings are to be shown with the prompt.
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
    """Replace every token that overlaps a sensitive span, in every copy of the text that a chat template prints.

    Spans are character offsets into the text as typed; kept and suggested ones are never masked, but for a token that
    one shares with a masked span, of which a warning says so. ``"hard"`` puts the sentinel everywhere, ``"soft"`` a
    hint first, cut or padded with the sentinel to the span's tokens. A sentinel of None is chosen
    (:func:`~coft_core.text.sentinel.resolve_sentinel`); where the vocabulary has none, nothing is masked and a warning
    says so, unless the mask is ``required``.
    """
    given = tuple(spans)
    require_encodable(text)
    validate_spans(text, given)
    if len(inside := outside_lines(text, given)) < len(given):
        over_line = next(span for span in given if span not in inside)
        raise InvalidInputError(
            f"A span at characters {over_line.start + 1} to {over_line.end} runs over a line that begins a turn; mark "
            "words of one turn."
        )
    resolved = resolve_spans(given)
    ids, places = read_tokens(tokenizer, text, chat)
    chosen = chosen_tokens(places, text, resolved)
    find = require_sentinel if required and chosen.families else resolve_sentinel
    stand_in = find(tokenizer, sentinel)
    if chosen.families and stand_in is None:
        chosen = ChosenTokens({}, places, (NO_SENTINEL,))
    positions = tuple(sorted(chosen.families))
    offsets, copies = chosen.offsets, copies_of(places)
    fillers = {} if stand_in is None else dict.fromkeys(positions, stand_in.token_id)
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
        sentinel="" if stand_in is None else stand_in.text,
        sentinel_id=None if stand_in is None else stand_in.token_id,
        mode="hard" if mode == "hard" else f"soft: {hint}",
        sentinel_reason="" if stand_in is None else stand_in.reason,
        repeated=frozenset(i for i in positions if copies[i] > 0),
        warnings=chosen.warnings,
    )
    return replace(prompt, text="".join(piece for piece, _ in masked_pieces(prompt, tokenizer)))


def prompt_ids(tokenizer: Any, text: str, chat: bool | Rendering = False) -> tuple[int, ...]:
    """The tokens of a text as the factual branch reads it; nothing is masked, so no sentinel is needed."""
    require_encodable(text)
    return read_tokens(tokenizer, text, chat)[0]


def masked_pieces(prompt: MaskedPrompt, tokenizer: Any) -> list[tuple[str, bool]]:
    """The masked prompt for reading: (text, whether it stands for a masked token) in order.

    White space that a masked token swallowed is shown again. Of a text that a chat template prints several times, the
    first copy is shown.
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
        plain = token == prompt.sentinel_id
        pieces.append((shown_sentinel(prompt.sentinel) if plain else tokenizer.decode([token]).strip(), True))
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


LISTED = "list"
"""Source of spans that a user list decides; the detector's version names the list already."""


def check_whitelist(terms: Iterable[str]) -> tuple[str, ...]:
    """Terms as they are compared: folded, in lower case, without surrounding white space; sorted, each once."""
    return tuple(sorted({folded for term in terms if (folded := _folded(term))}))


def keep_whitelisted(text: str, spans: Sequence[Span], whitelist: Sequence[str]) -> tuple[Span, ...]:
    """Mark the spans whose text is a whitelisted term, as :func:`check_whitelist` gives it, as kept."""
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


def check_families(families: Collection[str] | None) -> tuple[str, ...] | None:
    """Families in the order in which pages list them, each once; None stands for all."""
    if families is None:
        return None
    if isinstance(families, str) or not families:
        raise InvalidInputError("Give the attribute families as a list with at least one name, or none at all for all.")
    if unknown := sorted(set(families) - set(KNOWN_FAMILIES)):
        raise InvalidInputError(
            f"There is no attribute family {unknown[0]!r}; use some of {', '.join(KNOWN_FAMILIES)}."
        )
    return in_page_order(families)


def masked_families(prompt: MaskedPrompt, families: Collection[str] | None = None) -> tuple[str, ...]:
    """Those of some families, or of all, that have a masked token, in the order in which pages list them."""
    return in_page_order(span.category for spans in _masked_by(prompt, families).values() for span in spans)


def mask_families(prompt: MaskedPrompt, families: Collection[str] | None) -> tuple[int, ...]:
    """Tokens of the prompt in which only some families are masked: the operator ``M_k`` for one, a part for several.

    A token that overlaps spans of two families is masked for each of them. None masks all.
    """
    if families is None:
        return prompt.masked_ids
    return _masked_at(prompt, {index for index, spans in _masked_by(prompt, families).items() if spans})


def show_span(prompt: MaskedPrompt, span: Span, families: Collection[str] | None = None) -> tuple[int, ...]:
    """Tokens of the prompt with one of its masked spans shown again; what another span covers too stays masked.

    Only some families are masked, or all.
    """
    others = _masked_by(prompt, families).items()
    return _masked_at(prompt, {index for index, spans in others if any(other != span for other in spans)})


def masked_spans(prompt: MaskedPrompt, families: Collection[str] | None = None) -> tuple[Span, ...]:
    """Spans of some families, or of all, of which at least one token is masked, in their order in the text."""
    masked = {span for spans in _masked_by(prompt, families).values() for span in spans}
    return tuple(span for span in prompt.spans if span in masked)


def _masked_by(prompt: MaskedPrompt, families: Collection[str] | None) -> dict[int, list[Span]]:
    """The spans of some families, or of all, for which each masked token is masked."""
    spans = [s for s in prompt.spans if s.masked and (families is None or s.category in families)]
    return {index: over(prompt.offsets[index], spans) for index in prompt.positions}


def _masked_at(prompt: MaskedPrompt, masked: Collection[int]) -> tuple[int, ...]:
    pairs = enumerate(zip(prompt.masked_ids, prompt.factual_ids, strict=True))
    return tuple(filler if index in masked else token for index, (filler, token) in pairs)


MaskLayout = Literal["joint", "factorized"]
"""One masked branch for everything, or one for each attribute family."""


@dataclass(frozen=True, slots=True)
class MaskSettings:
    """How spans are masked."""

    mode: MaskMode = "hard"
    hint: str = DEFAULT_HINT
    sentinel: str | None = None
    families: tuple[str, ...] | None = None
    layout: MaskLayout = "joint"
    whitelist: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Bring families and whitelist into the form in which they are compared."""
        object.__setattr__(self, "families", check_families(self.families))
        object.__setattr__(self, "whitelist", check_whitelist(self.whitelist))

    @property
    def label(self) -> str:
        """``"hard"`` or ``"soft: <hint>"``, then whatever is not the default: layout, families, kept terms."""
        hint = json.dumps(self.hint, ensure_ascii=False) if ";" in self.hint else self.hint
        parts = ["hard" if self.mode == "hard" else f"soft: {hint}"]
        if self.layout != "joint":
            parts.append(self.layout)
        if self.families is not None:
            parts.append(f"only {' '.join(self.families)}")
        if self.whitelist:
            # JSON, so that no term can be taken for two.
            parts.append(f"keeps {json.dumps(self.whitelist, ensure_ascii=False)}")
        return "; ".join(parts)


def continuation_ids(model: LanguageModel, prompt: MaskedPrompt, continuation: str) -> tuple[int, ...]:
    """Tokenize a continuation so that the prompt's own tokens stay as they are.

    Prompt and continuation are tokenized together when that leaves the prompt's tokens unchanged. Where a token would
    straddle the border, the continuation, which is taken literally, is tokenized on its own.
    """
    require_encodable(continuation, "The continuation")
    tokenizer = model.tokenizer
    prefix = list(prompt.factual_ids)
    if not model.chat:
        together = tokenizer(prompt.factual_text + continuation, verbose=False)["input_ids"]
        if together[: len(prefix)] == prefix and len(together) > len(prefix):
            return tuple(int(i) for i in together[len(prefix) :])
    anchor = tokenizer.encode(ANCHOR, add_special_tokens=False)
    alone = tokenizer.encode(ANCHOR + continuation, add_special_tokens=False)
    if alone[: len(anchor)] != anchor:
        alone = [*anchor, *tokenizer.encode(continuation, add_special_tokens=False)]
    if len(alone) == len(anchor):
        raise InvalidInputError("The continuation is empty; give at least one word.")
    return tuple(int(i) for i in alone[len(anchor) :])


def harness_ids(model: LanguageModel, prompt: MaskedPrompt, continuation: str) -> tuple[int, ...]:
    """Tokens of a continuation as in lm-evaluation-harness: those of the whole text, less as many as the prompt has.

    Where a token reaches over the border, the prompt keeps its own last token. Nothing is left of a continuation that
    the tokenizer joins with the prompt. Behind an empty prompt, and behind a chat template, which ends what was said
    before, the continuation is tokenized by itself.
    """
    if model.chat:
        return continuation_ids(model, prompt, continuation)
    require_encodable(continuation, "The continuation")
    prefix = prompt.factual_ids
    if prompt.factual_text:
        whole = model.tokenizer(prompt.factual_text + continuation, verbose=False)["input_ids"]
        return tuple(int(i) for i in whole[len(prefix) :])
    alone = tuple(int(i) for i in model.tokenizer(continuation, add_special_tokens=False, verbose=False)["input_ids"])
    return alone[len(prefix) :] if alone[: len(prefix)] == prefix else alone


def joined(prompt: str, reference: str) -> str:
    """The reference as it follows the prompt: a space is supplied where two words would run together."""
    if prompt and reference and not prompt[-1].isspace() and (reference[0].isalnum() or reference[0] in "\"'("):
        return f" {reference}"
    return reference


def following(model: LanguageModel, prompt: str, reference: str) -> str:
    """The reference as the model reads it behind a prompt: a chat template ends what is said before an answer."""
    return reference if model.chat and not frame_of(prompt).prefill else joined(prompt, reference)
