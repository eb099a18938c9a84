"""Where the tokens of a prompt stand in the reviewer's text, and which of them a span masks.

Tokenizers say which characters a token stands for, and not always truly. A mask that is guessed may leave a word
readable, so what cannot be placed is masked with the span that it touches, or refused.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from coft_core.errors import InvalidInputError
from coft_core.text.rendering import Copy, Rendering, Tokens, read_text
from coft_core.text.turns import lines_between
from coft_core.types import Span

Range = tuple[int, int]
NOWHERE: Range = (0, 0)
"""The place of a token that is none of the reviewer's text."""
LOST: Range = (-1, -1)
"""The place of a token that is read as something and that the tokenizer places where it cannot stand."""

_UNREAD = ("Mn", "Me", "Cc", "Cf")
"""Unicode categories of characters that normalizers take out of a text: accents by themselves and invisible ones."""

_REPEATED = (
    "This model's chat template prints your text {count} times; every copy of it is masked, and the first one is shown."
)


@dataclass(frozen=True, slots=True)
class ChosenTokens:
    """Which tokens are masked."""

    families: Mapping[int, str]
    offsets: tuple[Range, ...]
    warnings: tuple[str, ...] = ()


def read_tokens(tokenizer: Any, text: str, chat: bool | Rendering) -> Tokens:
    """The tokens of a prompt with their places in the reviewer's text, as they were kept or as they are made now."""
    rendering = Rendering.of(chat)
    return rendering.tokens(text, partial(_tokenize, tokenizer, rendering))


def copies_of(offsets: Sequence[Range]) -> tuple[int, ...]:
    """Which copy of the text each token belongs to, where a chat template prints several; the first is 0."""
    numbers: list[int] = []
    number, last, apart = 0, -1, False
    for start, end in offsets:
        if start < end:
            # The text starts over; one that is a single token, behind tokens of the template.
            if start < last or (apart and start <= last):
                number += 1
            last, apart = start, False
        elif (start, end) == NOWHERE:
            apart = True
        numbers.append(number)
    return tuple(numbers)


def chosen_tokens(offsets: Sequence[Range], text: str, spans: Sequence[Span]) -> ChosenTokens:
    """Choose the tokens at ``offsets`` that hold a character of a masked span, in every copy of the text."""
    masked = [span for span in spans if span.masked]
    if not masked:
        return ChosenTokens({}, tuple(offsets))
    _require_placed(offsets, text, masked)
    places = [_in_spans(place, masked) for place in offsets]
    families: dict[int, str] = {}
    told: dict[str, None] = {}
    kept = [span for span in spans if span.kept]
    for index, place in enumerate(places):
        if hidden := over(place, masked):
            families[index] = hidden[0].category
            told |= dict.fromkeys(_shared(text, hidden, over(place, kept)))
    if families and (count := max(copies_of(offsets)) + 1) > 1:
        told[_REPEATED.format(count=count)] = None
    return ChosenTokens(families, tuple(places), tuple(told))


def _tokenize(tokenizer: Any, rendering: Rendering, text: str) -> Tokens:
    chat = rendering.chat and not rendering.as_it_stands
    whole, copies = read_text(tokenizer, text, rendering)
    encoded = tokenizer(
        whole,
        return_offsets_mapping=True,
        return_special_tokens_mask=True,
        add_special_tokens=not (chat or rendering.as_it_stands),
        verbose=False,
    )
    ids = tuple(int(i) for i in encoded["input_ids"])
    offsets, last = [NOWHERE] * len(ids), 0
    for index, (a, b) in enumerate(encoded["offset_mapping"]):
        if a < b:
            inside = [_inside(a, b, copy) for copy in copies if copy.meets(a, b)]
            # A token with parts of two copies stands at two places.
            offsets[index] = LOST if len(inside) > 1 else inside[0] if inside else NOWHERE
            last = a
        elif not encoded["special_tokens_mask"][index]:
            point = next((a - copy.start + copy.shift for copy in copies if copy.start <= a <= copy.end), None)
            if _is_blank(tokenizer, ids[index]):
                # White space that was trimmed from its place, which therefore ends where the space did.
                token_range = NOWHERE if point is None else (max(point - 1, 0), point)
                offsets[index] = token_range if a >= last else offsets[index - 1]
            elif a < last:
                offsets[index] = LOST
            elif point is not None:
                offsets[index] = (point, point) if point else (0, 1)
    return ids, tuple(offsets)


def _inside(a: int, b: int, copy: Copy) -> Range:
    """A range of the templated text, as far as it lies in a copy, as a range of the reviewer's text."""
    move = copy.shift - copy.start
    return max(a, copy.start) + move, min(b, copy.end) + move


def _in_spans(token_range: Range, masked: Sequence[Span]) -> Range:
    """The range of a token; one between two characters is put into the masked spans that it touches."""
    start, end = token_range
    if start != end or token_range in (NOWHERE, LOST):
        return token_range
    touched = [span for span in masked if span.start <= start <= span.end]
    if not touched:
        return token_range
    return max(start - 1, min(span.start for span in touched)), min(start + 1, max(span.end for span in touched))


def _is_blank(tokenizer: Any, token: int) -> bool:
    return not str(tokenizer.decode([token], clean_up_tokenization_spaces=False)).strip()


def over(token_range: Range, spans: Iterable[Span]) -> list[Span]:
    """The spans that a token's characters are of; none for a token without characters."""
    start, end = token_range
    return [span for span in spans if start < end and start < span.end and span.start < end]


def _shared(text: str, masked: Sequence[Span], kept: Sequence[Span]) -> list[str]:
    hidden = "”, “".join(text[span.start : span.end] for span in masked)
    return [
        f"“{text[span.start : span.end]}” is kept, but shares a token with “{hidden}”, which is masked; a token is "
        "masked as a whole, so that this part of it is not visible either."
        for span in kept
    ]


def _require_placed(offsets: Sequence[Range], text: str, masked: Sequence[Span]) -> None:
    """Refuse to mask where tokens of a masked span may stand elsewhere than the tokenizer says.

    A tokenizer that drops a character may count wrongly from there on, so every character has to be accounted for.
    """
    if LOST in offsets:
        raise _unplaced(text, masked[0], "places a token where it cannot stand, or gives two copies of the text one")
    unread = {place for start, end in lines_between(text) for place in range(start, end)}
    copies = copies_of(offsets)
    for number in range(max(copies, default=0) + 1):
        covered = _covered(offset for offset, copy in zip(offsets, copies, strict=True) if copy == number)
        for span in masked:
            if covered.isdisjoint(range(span.start, span.end)) and text[span.start : span.end].strip():
                raise _unplaced(text, span, "names no token that holds it")
        last = 0
        for place in range(len(text)):
            if place in covered or place in unread:
                last = place
            elif not _is_unread(text, last, place):
                why = f"names no token that holds “{text[place]}” (character {place + 1}) and may misplace what follows"
                raise _unplaced(text, min(masked, key=lambda span: abs(span.start - place)), why)


def _covered(offsets: Iterable[Range]) -> set[int]:
    """Characters of the text that some token holds, or touches where it stands between two."""
    covered: set[int] = set()
    for start, end in offsets:
        if (start, end) != NOWHERE:
            covered.update(range(start, end) if start < end else (start - 1, start))
    return covered


def _is_unread(text: str, last: int, place: int) -> bool:
    """Whether normalizers take a character out of the text, or join it with those from the last one that was read."""
    character = text[place]
    if character.isspace() or character == "\ufffd" or unicodedata.category(character) in _UNREAD:
        return True
    joined = unicodedata.normalize("NFKC", text[last : place + 1])
    return last < place and len(joined) <= len(unicodedata.normalize("NFKC", text[last:place]))


def _unplaced(text: str, span: Span, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"“{text[span.start : span.end]}” (characters {span.start + 1} to {span.end}) cannot be masked safely, since "
        f"this model's tokenizer {why}; unmark it, write the prompt otherwise, or choose another model."
    )
